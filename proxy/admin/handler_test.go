package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// endpoints has every path with a request that is answered.
var endpoints = []struct {
	method, path, body, calls string
	limit                     int
}{
	{"GET", "/v1/status", "", "status", 0},
	{"GET", "/v1/decisions?limit=5&verdict=deny&host=a.test&id=x", "", "records", 0},
	{"GET", "/v1/tunnels", "", "tunnels", 0},
	{"GET", "/v1/rules", "", "rules", 0},
	{"GET", "/v1/events", "", "records", 0},
	{"POST", "/v1/check", `{"tool":"bash","args":{"command":"ls"},"cwd":"/w","agent":["a"],"platform":"linux","env":{"CI":"1"}}`, `check bash {"command":"ls"}`, maxCallBody},
	{"POST", "/v1/explain", `{"target":"https://a.test/","resolve":["192.0.2.1","2001:db8::1"],"lookup":true,"agent":["a"]}`, "explain a.test:443 192.0.2.1 2001:db8::1", maxCallBody},
	{"POST", "/v1/explain", `{"tool":"bash","args":{}}`, "explain call bash", maxCallBody},
	{"POST", "/v1/reload", `{}`, "reload", maxBody},
	{"POST", "/v1/allow", `{"host":"A.test.","port":443,"private":true}`, "allow a.test:443 private", maxBody},
	{"POST", "/v1/stop", `{}`, "stop, status", maxBody},
	{"POST", "/v1/resume", `{}`, "resume, status", maxBody},
}

// faults are what each endpoint refuses before it asks the backend.
var faults = []struct {
	name   string
	on     string // the method of the endpoints it applies to; empty for all
	change func(*http.Request)
	status int
	code   string
}{
	{"SELF-06: no token", "", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "unauthorized"},
	{"wrong token", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken[1:]+"0") }, 401, "unauthorized"},
	{"longer token", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken+"0") }, 401, "unauthorized"},
	{"empty token", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401, "unauthorized"},
	{"other scheme", "", func(r *http.Request) { r.Header.Set("Authorization", "Basic "+testToken) }, 401, "unauthorized"},
	{"two tokens", "", func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") }, 401, "unauthorized"},
	{"token of the proxy's clients", "", func(r *http.Request) {
		r.Header.Set("Proxy-Authorization", r.Header.Get("Authorization"))
		r.Header.Del("Authorization")
	}, 401, "unauthorized"},
	{"SELF-09: foreign Host", "", func(r *http.Request) { r.Host = "evil.example:9129" }, 421, "misdirected"},
	{"SELF-09: foreign Host and no token", "", func(r *http.Request) { r.Host = "evil.example"; r.Header.Del("Authorization") }, 421, "misdirected"},
	{"SELF-10: foreign Origin", "", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, "foreign_origin"},
	{"SELF-10: opaque Origin", "", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, "foreign_origin"},
	{"SELF-10: a second, foreign Origin", "", func(r *http.Request) {
		r.Header.Add("Origin", "http://admin.test")
		r.Header.Add("Origin", "http://evil.example")
	}, 403, "foreign_origin"},
	{"SELF-10: cross-site", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "foreign_origin"},
	{"SELF-10: same site, other origin", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403, "foreign_origin"},
	{"SELF-10: read by POST", "GET", func(r *http.Request) { r.Method = "POST" }, 405, "method_not_allowed"},
	{"SELF-10: changed by GET", "POST", func(r *http.Request) { r.Method, r.Body, r.ContentLength = "GET", nil, 0 }, 405, "method_not_allowed"},
	{"PUT", "", func(r *http.Request) { r.Method = "PUT" }, 405, "method_not_allowed"},
	{"OPTIONS", "", func(r *http.Request) { r.Method = "OPTIONS" }, 405, "method_not_allowed"},
	{"unknown parameter", "", func(r *http.Request) { r.URL.RawQuery += "&verdicts=deny" }, 400, "bad_request"},
	{"bad escape", "", func(r *http.Request) { r.URL.RawQuery = "%zz" }, 400, "bad_request"},
	{"other path", "", func(r *http.Request) { r.URL.Path += "/" }, 404, "not_found"},
	{"SELF-12: debug path", "", func(r *http.Request) { r.URL.Path = "/debug/pprof/heap" }, 404, "not_found"},
	{"GET with a body", "GET", func(r *http.Request) { setBody(r, "{}") }, 400, "bad_request"},
	{"SELF-10: a form's type", "POST", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "unsupported_media_type"},
	{"a form's type without a body", "POST", func(r *http.Request) { setBody(r, ""); r.Header.Set("Content-Type", "text/plain") }, 415, "unsupported_media_type"},
	{"no type", "POST", func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "unsupported_media_type"},
	{"two types", "POST", func(r *http.Request) { r.Header.Add("Content-Type", "application/json") }, 415, "unsupported_media_type"},
	{"other charset", "POST", func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-16") }, 415, "unsupported_media_type"},
	{"compressed", "POST", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, "unsupported_media_type"},
	{"unknown field", "POST", func(r *http.Request) { setBody(r, `{"force":true}`) }, 400, "bad_request"},
	{"field of another case", "POST", func(r *http.Request) { setBody(r, `{"HOST":"a.test","Tool":"bash","TARGET":"a.test"}`) }, 400, "bad_request"},
	{"duplicate field", "POST", func(r *http.Request) { setBody(r, `{"tool":"a","tool":"bash","host":"a.test","host":"b.test"}`) }, 400, "bad_request"},
	{"no object", "POST", func(r *http.Request) { setBody(r, `[]`) }, 400, "bad_request"},
	{"no JSON", "POST", func(r *http.Request) { setBody(r, `{"tool"`) }, 400, "bad_request"},
	{"two objects", "POST", func(r *http.Request) { setBody(r, `{}{}`) }, 400, "bad_request"},
}

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	if body == "" {
		r.Body = nil
	}
}

// TestEndpoints: what is well-formed is answered, and every endpoint refuses every fault without asking the backend, on
// TCP and on a unix socket.
func TestEndpoints(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		w := newWorld(t, network, nil)
		for _, e := range endpoints {
			if status, head, body := w.send(t, w.request(t, e.method, e.path, e.body)); status != 200 || !isSealed(head) {
				t.Errorf("%s %s %s: %d %v %s", network, e.method, e.path, status, head, body)
			}
			if got := w.backend.taken(); got != e.calls {
				t.Errorf("%s %s asked the backend %q, want %q", e.method, e.path, got, e.calls)
			}
			for _, f := range faults {
				if f.on != "" && f.on != e.method {
					continue
				}
				req := w.request(t, e.method, e.path, e.body)
				f.change(req)
				status, head, body := w.send(t, req)
				if code := errorCode(t, body); status != f.status || code != f.code || !isSealed(head) {
					t.Errorf("%s %s %s, %s: %d %s, want %d %s: %v", network, e.method, e.path, f.name, status, code, f.status, f.code, head)
				}
				if (head.Get("WWW-Authenticate") == "Bearer") != (f.status == 401) || f.status == 405 && head.Get("Allow") != e.method {
					t.Errorf("%s %s, %s: %v", e.method, e.path, f.name, head)
				}
				if got := w.backend.taken(); got != "" {
					t.Errorf("%s %s, %s: the backend was asked %q", e.method, e.path, f.name, got)
				}
			}
		}
	}
}

func isSealed(h http.Header) bool {
	return h.Get("Cache-Control") == "no-store" && h.Get("X-Content-Type-Options") == "nosniff" && h.Get("Access-Control-Allow-Origin") == "" && h.Get("Content-Type") != ""
}

// TestOversized: no endpoint reads more than its limit (SELF-13), whether the length is told or not.
func TestOversized(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	for _, e := range endpoints {
		if e.method != "POST" {
			continue
		}
		for _, told := range []bool{true, false} {
			req := w.request(t, e.method, e.path, e.body)
			setBody(req, e.body+strings.Repeat(" ", e.limit+1-len(e.body)))
			if !told {
				req.ContentLength = -1
			}
			if status, _, body := w.send(t, req); status != 413 || errorCode(t, body) != "too_large" {
				t.Errorf("%s, length told %v: %d %s", e.path, told, status, body)
			}
			if got := w.backend.taken(); got != "" {
				t.Errorf("%s: the backend was asked %q", e.path, got)
			}
		}
		req := w.request(t, e.method, e.path, e.body)
		size := min(e.limit, 2*maxBody) // more would only be slow
		setBody(req, e.body+strings.Repeat(" ", size-len(e.body)))
		if status, _, body := w.send(t, req); status != 200 {
			t.Errorf("%s with %d bytes: %d %s", e.path, size, status, body)
		}
		w.backend.taken()
	}
}

// TestAccepted: what operators and the page may say in place of the usual.
func TestAccepted(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	_, port, _ := net.SplitHostPort(w.addr.String())
	tests := map[string]func(*http.Request){
		"localhost":              func(r *http.Request) { r.Host = "LocalHost:" + port },
		"another loopback":       func(r *http.Request) { r.Host = "127.1.2.3:" + port },
		"IPv6 loopback":          func(r *http.Request) { r.Host = "[::1]:" + port },
		"a name of the settings": func(r *http.Request) { r.Host = "Admin.test" },
		"with the port":          func(r *http.Request) { r.Host = "admin.test:" + port },
		"own origin":             func(r *http.Request) { r.Header.Set("Origin", "http://localhost:"+port) },
		"origin of the settings": func(r *http.Request) { r.Header.Set("Origin", "https://admin.test") },
		"own page":               func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") },
		"typed address":          func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") },
		"scheme in lower case":   func(r *http.Request) { r.Header.Set("Authorization", "bearer "+testToken) },
		"charset":                func(r *http.Request) { r.Header.Set("Content-Type", "Application/JSON; charset=UTF-8") },
		"no body":                func(r *http.Request) { setBody(r, ""); r.Header.Del("Content-Type") },
		"blank body":             func(r *http.Request) { setBody(r, " \n") },
	}
	for name, change := range tests {
		req := w.request(t, "POST", "/v1/reload", "{}")
		change(req)
		if status, _, body := w.send(t, req); status != 200 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestNoToken: an API without a token is closed, not open.
func TestNoToken(t *testing.T) {
	w := newWorld(t, "tcp", func(o *Options) { o.Token = "" })
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer " + testToken} {
		req := w.request(t, "GET", "/v1/status", "")
		req.Header.Set("Authorization", authorization)
		if status, _, body := w.send(t, req); status != 401 {
			t.Errorf("%q: %d %s", authorization, status, body)
		}
	}
}

// TestRawRequests: forms of requests that no client of Go sends (SELF-06, SELF-09).
func TestRawRequests(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	auth := "Authorization: Bearer " + testToken + "\r\n"
	tests := []struct {
		request string
		status  int
	}{
		{"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		{"OPTIONS * HTTP/1.1\r\nHost: " + w.host() + "\r\n\r\n", 401},
		{"GET http://evil.example/v1/status HTTP/1.1\r\nHost: " + w.host() + "\r\n" + auth + "\r\n", 421},
		{"CONNECT " + w.host() + " HTTP/1.1\r\nHost: " + w.host() + "\r\n" + auth + "\r\n", 404},
		{"GET /v1/status HTTP/1.0\r\n" + auth + "\r\n", 421},
		{"GET /v1/status HTTP/1.1\r\nHost:\r\n" + auth + "\r\n", 421},
		{"GET /v1/status HTTP/1.1\r\nHost: " + w.host() + "\r\nHost: evil.example\r\n" + auth + "\r\n", 400},
		{"GET //v1/status HTTP/1.1\r\nHost: " + w.host() + "\r\n" + auth + "\r\n", 404},
		{"GET /v1/x/../status HTTP/1.1\r\nHost: " + w.host() + "\r\n" + auth + "\r\n", 404},
		{"GET /v1/status HTTP/1.1\r\nHost: " + w.host() + "\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431}, // SELF-13
	}
	for _, tt := range tests {
		c, err := net.Dial("tcp", w.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprint(c, tt.request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.60q: %v", tt.request, err)
		} else if resp.StatusCode != tt.status {
			t.Errorf("%.60q: %d, want %d", tt.request, resp.StatusCode, tt.status)
		}
		c.Close()
	}
	if got := w.backend.taken(); got != "" {
		t.Errorf("the backend was asked %q", got)
	}
}

// TestBadRequests: what is well-formed and asks for nothing sensible.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	tests := []struct{ method, path, body string }{
		{"GET", "/v1/decisions?limit=0", ""},
		{"GET", "/v1/decisions?limit=1001", ""},
		{"GET", "/v1/decisions?limit=-1", ""},
		{"GET", "/v1/decisions?limit=x", ""},
		{"GET", "/v1/decisions?limit=1&limit=2", ""},
		{"GET", "/v1/decisions?verdict=DENY", ""},
		{"POST", "/v1/check", `{}`},
		{"POST", "/v1/check", `{"tool":""}`},
		{"POST", "/v1/check", `{"tool":5}`},
		{"POST", "/v1/check", `{"tool":"bash","args":null}`},
		{"POST", "/v1/check", `{"tool":"bash","args":[]}`},
		{"POST", "/v1/check", `{"tool":"bash","args":{"a":1,"A":2}}`},
		{"POST", "/v1/check", `{"tool":"bash","cwd":"rel"}`},
		{"POST", "/v1/explain", `{}`},
		{"POST", "/v1/explain", `{"agent":["a"]}`},
		{"POST", "/v1/explain", `{"target":"a.test","tool":"bash"}`},
		{"POST", "/v1/explain", `{"target":"a b"}`},
		{"POST", "/v1/explain", `{"resolve":["192.0.2.1"]}`},
		{"POST", "/v1/explain", `{"target":"a.test","resolve":["x"]}`},
		{"POST", "/v1/explain", `{"target":"a.test","resolve":["fe80::1%eth0"]}`},
		{"POST", "/v1/explain", `{"args":{}}`},
		{"POST", "/v1/allow", `{}`},
		{"POST", "/v1/allow", `{"port":443}`},
		{"POST", "/v1/allow", `{"host":"*.a.test"}`},
		{"POST", "/v1/allow", `{"host":"=a.test"}`},
		{"POST", "/v1/allow", `{"host":"https://a.test"}`},
		{"POST", "/v1/allow", `{"host":"https:a.test"}`},
		{"POST", "/v1/allow", `{"host":"a.test:80"}`},
		{"POST", "/v1/allow", `{"host":"u@a.test"}`},
		{"POST", "/v1/allow", `{"host":" a.test"}`},
		{"POST", "/v1/allow", `{"host":"a.test\nb.test"}`},
		{"POST", "/v1/allow", `{"host":"fe80::1%eth0"}`},
		{"POST", "/v1/allow", `{"host":"a.test","port":65536}`},
		{"POST", "/v1/allow", `{"host":"a.test","port":"443"}`},
		{"POST", "/v1/allow", `{"host":"a.test","port":-1}`},
	}
	for _, tt := range tests {
		if status, _, body := w.send(t, w.request(t, tt.method, tt.path, tt.body)); status != 400 || errorCode(t, body) != "bad_request" {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, status, body)
		}
		if got := w.backend.taken(); got != "" {
			t.Errorf("%s %s: the backend was asked %q", tt.path, tt.body, got)
		}
	}
}

func TestAllowTargets(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	for body, want := range map[string]string{
		`{"host":"a.test"}`:                "allow a.test",
		`{"host":"192.0.2.1","port":8443}`: "allow 192.0.2.1:8443",
		`{"host":"2001:DB8::1","port":1}`:  "allow [2001:db8::1]:1",
		`{"host":"[2001:db8::1]"}`:         "allow [2001:db8::1]",
	} {
		_, _, answer := w.send(t, w.request(t, "POST", "/v1/allow", body))
		if got := w.backend.taken(); got != want {
			t.Errorf("%s: %q, want %q: %s", body, got, want, answer)
		}
	}
	if log := w.log.String(); !strings.Contains(log, "what=allow") || !strings.Contains(log, "192.0.2.1:8443") {
		t.Errorf("the log does not tell: %s", log)
	}
}

// TestAnswers: lists are lists even when they are empty, and the shapes are those of the commands.
func TestAnswers(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	for i, outcome := range []string{"refused", "ok"} {
		d := decisionlog.Decision{ID: fmt.Sprint(i), Outcome: outcome, Judged: true, Target: netrule.Target{Host: "a.test", Port: 443}}
		w.backend.ring.Decided(&d)
	}
	tests := []struct{ method, path, body, want string }{
		{"GET", "/v1/tunnels", "", `{"tunnels":[]}`},
		{"GET", "/v1/rules", "", `{"rules":[]}`},
		{"GET", "/v1/decisions?host=b.test", "", `{"decisions":[]}`},
		{"GET", "/v1/decisions?host=A.TEST.&limit=1", "", `{"decisions":[{"time":"0001-01-01T00:00:00.000000Z","msg":"decision","id":"1","listener":"","client":"","scheme":"","host":"a.test","port":443,"verdict":"deny","code":"internal_error","mode":"deny-all","matched":false,"outcome":"ok"}]}`},
		{"POST", "/v1/check", `{"tool":"bash"}`, `{"action":"deny","code":"denied_by_rule","rule":{"file":"/r","line":3,"index":0,"reason":""}}`},
		{"POST", "/v1/explain", `{"tool":"bash"}`, `{"action":"ask","code":"","trace":[]}`},
		{"POST", "/v1/explain", `{"target":"a.test"}`, `{"target":"a.test","action":"allow","code":"","mode":"","matched":false,"trace":[]}`},
		{"POST", "/v1/reload", `{}`, `{"changed":true,"rules":4,"policy":""}`},
		{"POST", "/v1/stop", `{}`, `{"stopped":true}`},
		{"POST", "/v1/resume", `{}`, `{"stopped":false}`},
		{"POST", "/v1/allow", `{"host":"a.test"}`, `{"written":true,"target":"a.test","action":"allow","code":""}`},
	}
	for _, tt := range tests {
		if status, _, body := w.send(t, w.request(t, tt.method, tt.path, tt.body)); status != 200 || body != tt.want+"\n" {
			t.Errorf("%s %s: %d %s, want %s", tt.path, tt.body, status, body, tt.want)
		}
	}
	w.backend.ring = nil
	if _, _, body := w.send(t, w.request(t, "GET", "/v1/decisions", "")); body != "{\"decisions\":[]}\n" {
		t.Errorf("without a ring: %s", body)
	}
	if status, _, body := w.send(t, w.request(t, "GET", "/v1/events", "")); status != 409 {
		t.Errorf("events without a ring: %d %s", status, body)
	}
}

// TestBackendFails: an *Error is passed on, the text of any other error is not, and a panic ends one request only.
func TestBackendFails(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	w.backend.err = fmt.Errorf("reload: %w", &Error{409, "reload_failed", "r.yaml:3:1: unknown key", "see lint"})
	for _, e := range endpoints {
		if e.method != "POST" {
			continue
		}
		status, _, body := w.send(t, w.request(t, e.method, e.path, e.body))
		if want := `{"error":{"code":"reload_failed","message":"r.yaml:3:1: unknown key","hint":"see lint"}}` + "\n"; status != 409 || body != want {
			t.Errorf("%s: %d %s", e.path, status, body)
		}
	}
	for _, err := range []error{errors.New("secret detail"), &Error{Message: "secret detail"}} {
		w.backend.err = err
		status, _, body := w.send(t, w.request(t, "POST", "/v1/reload", "{}"))
		if status != 500 || errorCode(t, body) != "internal_error" || strings.Contains(body, "secret") {
			t.Errorf("%v: %d %s", err, status, body)
		}
		if !strings.Contains(w.log.String(), "secret detail") {
			t.Error("the log does not tell")
		}
	}
	w.backend.err, w.backend.panics = nil, true
	for _, e := range endpoints {
		status, head, body := w.send(t, w.request(t, e.method, e.path, e.body))
		if status != 500 || errorCode(t, body) != "internal_error" || !isSealed(head) {
			t.Errorf("panic in %s: %d %s", e.path, status, body)
		}
	}
	if !strings.Contains(w.log.String(), "a fault of the backend") {
		t.Error("the log does not tell of the panic")
	}
	w.backend.panics = false
	if status, _, body := w.send(t, w.request(t, "GET", "/v1/status", "")); status != 200 {
		t.Errorf("afterwards: %d %s", status, body)
	}
}

// TestServerLimits: SELF-13.
func TestServerLimits(t *testing.T) {
	s := Server(nil)
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Error("a limit is missing")
	}
}
