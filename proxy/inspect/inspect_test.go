package inspect

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/proxy"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestRequest: a request passes in every pair of versions, with its path and query byte for byte, is judged and told of.
func TestRequest(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			rw.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.RequestURI, body))
			rw.Header()["Content-Type"], rw.Header()["Date"] = nil, nil
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, "hello")
		}, origin)
		resp, body := w.do(w.client(version), "POST", "/a%2fb%41/~x?q=%2f&&r", strings.NewReader("data"))
		if resp.ProtoMajor != version || resp.StatusCode != 201 || body != "hello" {
			t.Errorf("got %s %d %q", resp.Proto, resp.StatusCode, body)
		}
		if got, want := resp.Header.Get("X-Seen"), `POST api.test /a%2fb%41/~x?q=%2f&&r "data"`; got != want {
			t.Errorf("the origin saw %s, want %s", got, want)
		}
		if resp.ContentLength != 5 {
			t.Errorf("the length is %d, want 5", resp.ContentLength)
		}
		for _, name := range []string{"Content-Type", "Date"} {
			if v, ok := resp.Header[name]; ok {
				t.Errorf("%s was added: %q", name, v)
			}
		}
		want := proxy.InnerRequest{Method: "POST", Host: host, Path: "/a%2fb%41/~x", Status: 201, Code: netrule.CodeAllowedByRule}
		if got := w.one(); got != want {
			t.Errorf("told of %v, want %v", got, want)
		}
		if w.dials.Load() != 1 || w.judged.Load() != 1 {
			t.Errorf("%d dials and %d judgements, want 1 and 1", w.dials.Load(), w.judged.Load())
		}
	})
}

// TestKeptConnection: every request on a kept connection is judged, and the origin is dialled once.
func TestKeptConnection(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, origin)
		c := w.client(version)
		w.get(c, "/1")
		w.get(c, "/2")
		w.mu.Lock()
		w.judge = func(string, uint16) (netrule.Code, bool) { return netrule.CodeDeniedByRule, false }
		w.mu.Unlock()
		resp, body := w.get(c, "/3")
		if resp.StatusCode != 403 || resp.Header.Get("X-Dshproxy-Code") != "denied_by_rule" || resp.Header.Get("X-Proxy-Error") != "blocked-by-denylist" {
			t.Errorf("got %d %v", resp.StatusCode, resp.Header)
		}
		inert(t, body, "# [network: denied] a rule denies the target\n# target: api.test:443\n# code: denied_by_rule   id: ")
		if w.judged.Load() != 3 || w.dials.Load() != 1 {
			t.Errorf("%d judgements and %d dials, want 3 and 1", w.judged.Load(), w.dials.Load())
		}
	})
}

// inert checks that every line of a body of ours is a shell comment, and how it starts.
func inert(t *testing.T, body, start string) {
	t.Helper()
	if !strings.HasPrefix(body, start) {
		t.Errorf("the body is %q, want it to start with %q", body, start)
	}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "# ") {
			t.Errorf("line %q would run in a shell", line)
		}
	}
}

// TestForeignAuthority: a request that names another host, port or scheme than its tunnel is refused unjudged and
// undialled, and ends the connection.
func TestForeignAuthority(t *testing.T) {
	for _, test := range []struct{ name, head, told string }{
		{"host", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "evil.test"},
		{"port", "GET / HTTP/1.1\r\nHost: api.test:8443\r\n\r\n", "api.test"},
		{"subdomain", "GET / HTTP/1.1\r\nHost: x.api.test\r\n\r\n", "x.api.test"},
		{"empty", "GET / HTTP/1.1\r\nHost: \r\n\r\n", ""},
		{"two dots", "GET / HTTP/1.1\r\nHost: api.test..\r\n\r\n", "api.test.."},
		{"absolute", "GET https://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "evil.test"},
		{"in clear", "GET http://api.test:443/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "api.test"},
		{"old", "GET / HTTP/1.0\r\nHost: evil.test\r\n\r\n", "evil.test"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
			resp, body, c := w.raw(test.head)
			if resp.StatusCode != 421 || resp.Header.Get("X-Dshproxy-Code") != "host_mismatch" {
				t.Errorf("got %d %v", resp.StatusCode, resp.Header)
			}
			inert(t, body, "# [network: denied] the request names another host than its tunnel\n# target: api.test:443\n")
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after the answer: %v, want the end", err)
			}
			if got := w.one(); got.Host != test.told || got.Code != netrule.CodeHostMismatch || got.Status != 421 {
				t.Errorf("told of %v", got)
			}
			if w.judged.Load() != 0 || w.dials.Load() != 0 {
				t.Errorf("%d judgements and %d dials, want none", w.judged.Load(), w.dials.Load())
			}
		})
	}
}

// TestForeignAuthorityHTTP2: the same for :authority, and the connection takes no further request.
func TestForeignAuthorityHTTP2(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	c := w.client(2)
	resp, _ := w.get(c, "/", "Host: evil.test")
	if resp.ProtoMajor != 2 || resp.StatusCode != 421 || resp.Header.Get("X-Dshproxy-Code") != "host_mismatch" {
		t.Errorf("got %s %d %v", resp.Proto, resp.StatusCode, resp.Header)
	}
	if got := w.one(); got.Host != "evil.test" {
		t.Errorf("told of %v", got)
	}
	if w.judged.Load() != 0 || w.dials.Load() != 0 {
		t.Errorf("%d judgements and %d dials, want none", w.judged.Load(), w.dials.Load())
	}
	if resp, _ := w.get(c, "/"); resp.StatusCode != 200 || w.opened.Load() != 2 {
		t.Errorf("afterwards: %d, in tunnel %d, want a second one", resp.StatusCode, w.opened.Load())
	}
}

// TestHostBesideAuthority: in HTTP/2 a Host field may say something else than :authority (RFC 9113 §8.3.1), and an origin
// may listen to either.
func TestHostBesideAuthority(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct{ authority, host, scheme, want string }{
		{"api.test", "", "https", "200"},
		{"api.test", "api.test:443", "https", "200"},
		{"", "api.test", "https", "200"},
		{"api.test", "evil.test", "https", "421"},
		{"evil.test", "api.test", "https", "421"},
		{"", "evil.test", "https", "421"},
		{"", "", "https", "421"},
	} {
		fields := [][2]string{{":method", "GET"}, {":path", "/"}, {":scheme", test.scheme}}
		if test.authority != "" {
			fields = append(fields, [2]string{":authority", test.authority})
		}
		if test.host != "" {
			fields = append(fields, [2]string{"host", test.host})
		}
		if got := frames(t, w.secure("h2"), fields); got != test.want {
			t.Errorf(":authority %q, host %q: got %s, want %s", test.authority, test.host, got, test.want)
		}
	}
}

// frames sends one HTTP/2 request without a client's checks and gives the status of the answer.
func frames(t *testing.T, c net.Conn, fields [][2]string) (status string) {
	t.Helper()
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	var block bytes.Buffer
	for e := hpack.NewEncoder(&block); len(fields) > 0; fields = fields[1:] {
		_ = e.WriteField(hpack.HeaderField{Name: fields[0][0], Value: fields[0][1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		}
	}
}

// TestTargetBytes: a request target goes out byte for byte, whatever net/url would make of it.
func TestTargetBytes(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.RequestURI) }, onlyHTTP1)
	for _, target := range []string{"/\xc3\xa9|^[]", "/a?b|c\xff", "/?", "//evil.test/x", "/%2e%2e/%2E", "/a%zz?%zz", "/;a,b:c@d"} {
		resp, body, _ := w.raw("GET " + target + " HTTP/1.1\r\nHost: api.test\r\n\r\n")
		if resp.StatusCode == 400 && strings.Contains(target, "%zz") {
			continue // net/http reads no such path
		}
		if body != target {
			t.Errorf("%q became %q", target, body)
		}
	}
	before := w.dials.Load()
	if resp, _, _ := w.raw("OPTIONS * HTTP/1.1\r\nHost: api.test\r\n\r\n"); resp.StatusCode != 200 || w.dials.Load() != before+1 {
		t.Errorf("OPTIONS * gives %d with %d dials, want the origin's answer", resp.StatusCode, w.dials.Load()-before)
	}
}

// TestBulk: large bodies pass whole both ways at once, many requests side by side.
// TestOwnAuthority: other spellings of the tunnel's host are that host, and the origin gets the canonical one.
func TestOwnAuthority(t *testing.T) {
	for name, head := range map[string]string{
		"case":       "GET /p HTTP/1.1\r\nHost: API.Test\r\n\r\n",
		"port":       "GET /p HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
		"dot":        "GET /p HTTP/1.1\r\nHost: api.test.\r\n\r\n",
		"absolute":   "GET https://api.test/p HTTP/1.1\r\nHost: evil.test\r\n\r\n", // the target wins (RFC 9112 §3.2.2)
		"old":        "GET /p HTTP/1.0\r\n\r\n",
		"upper case": "GET HTTPS://API.TEST:443/p HTTP/1.1\r\nHost: api.test\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Host+r.RequestURI) })
			if resp, body, _ := w.raw(head); resp.StatusCode != 200 || body != "api.test/p" {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
		})
	}
}

// TestRefusedHeads: what the forwarder of plain requests refuses is refused here, and no request reaches the origin.
func TestRefusedHeads(t *testing.T) {
	const end = " HTTP/1.1\r\nHost: api.test\r\n"
	for _, test := range []struct {
		name, head string
		status     int
	}{
		{"TRACE", "TRACE /" + end + "\r\n", 405},
		{"CONNECT", "CONNECT api.test:443" + end + "\r\n", 405},
		{"CONNECT elsewhere", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 405},
		{"method", strings.Repeat("M", 33) + " /" + end + "\r\n", 501},
		{"fragment", "GET /a#b" + end + "\r\n", 400},
		{"path in Host", "GET / HTTP/1.1\r\nHost: api.test/x\r\n\r\n", 400},
		{"user in Host", "GET / HTTP/1.1\r\nHost: api.test@evil.test\r\n\r\n", 400},
		{"two hosts", "GET /" + end + "Host: api.test\r\n\r\n", 400},
		{"fields", "GET /" + end + strings.Repeat("X: y\r\n", 201) + "\r\n", 431},
		{"size", "GET /" + end + "X: " + strings.Repeat("y", 70<<10) + "\r\n\r\n", 431},
		{"own Via", "GET /" + end + "Via: 1.1 a, 1.1 dshproxy-0badcafe\r\n\r\n", 508},
		{"many proxies", "GET /" + end + "Via: " + strings.Repeat("1.1 a,", 20) + "1.1 a\r\n\r\n", 508},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
			if resp, _, _ := w.raw(test.head); resp.StatusCode != test.status {
				t.Errorf("got %d, want %d", resp.StatusCode, test.status)
			}
			if w.dials.Load() != 0 {
				t.Error("the origin was dialled")
			}
		})
	}
}

// TestFields: nothing hop-by-hop passes, nothing is added but Via, and no origin forges what is ours.
func TestFields(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		seen := make(chan http.Header, 1)
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			seen <- r.Header
			h := rw.Header()
			h.Set("X-Dshproxy-Code", "forged")
			h.Set("X_Dshproxy_Id", "forged")
			h.Set("X-Proxy-Error", "forged")
			h.Set("Proxy-Authenticate", "Basic")
			h.Add("Proxy-Status", "dshproxy; error=forged")
			h.Add("Proxy-Status", "cdn; hit")
			h.Set("X-Kept", "1")
		}, origin)
		fields := []string{
			"Accept-Encoding: br", "X-Kept: 1", "Proxy-Authorization: Basic x", "Proxy_Authorization: x", "User-Agent: me",
			"Proxy-Connection: keep-alive", "Transfer.Encoding: chunked", "Content_Length: 7",
		}
		if version == 1 {
			fields = append(fields, "Connection: x-named, Upgrade, HTTP2-Settings", "X-Named: 1", "Upgrade: h2c", "HTTP2-Settings: AAA")
		}
		resp, _ := w.get(w.client(version), "/", fields...)
		got := <-seen
		want := http.Header{
			"Accept-Encoding": {"br"}, "X-Kept": {"1"}, "User-Agent": {"me"},
			"Via": {map[int]string{1: "1.1", 2: "2.0"}[version] + " dshproxy-0badcafe"},
		}
		sameHeader(t, "request", got, want)
		for _, name := range []string{"Date", "Content-Length", "Content-Type"} {
			resp.Header.Del(name)
		}
		by := "2.0 dshproxy-0badcafe"
		if !w.origin.EnableHTTP2 {
			by = "1.1 dshproxy-0badcafe"
		}
		sameHeader(t, "response", resp.Header, http.Header{"X-Kept": {"1"}, "Proxy-Status": {"cdn; hit"}, "Via": {by}})
	})
}

func sameHeader(t *testing.T, what string, got, want http.Header) {
	t.Helper()
	for name := range got {
		if fmt.Sprint(got[name]) != fmt.Sprint(want[name]) {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], want[name])
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", what, name)
		}
	}
}

// TestNoUserAgent: a client that names itself not is not named.
func TestNoUserAgent(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(rw, len(r.Header), r.Header["Via"]) })
	if _, body, _ := w.raw("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"); body != "1 [1.1 dshproxy-0badcafe]" {
		t.Errorf("the origin saw %s", body)
	}
}

// TestGzip: an encoded body passes as it is, and nothing asks for one.
// TestStreaming: head and events arrive while the origin still holds the rest back, whatever their type.
// TestTrailers: trailers pass both ways, apart from those that could change the message.
// TestInterim: 103 passes, and Expect is answered by the origin's word.
// webSocket is an origin that accepts the upgrade and sends back what it gets, in upper case.
// TestWebSocket: an upgrade is a stream in both directions, bytes behind the request included, and its end ends the
// tunnel; towards an origin that offers HTTP/2 too.
// TestUnaskedUpgrade: a 101 that nobody asked for, or for another protocol, never turns the connection over.
// TestCutAnswer: an answer that breaks off does not look whole.
// TestOriginFails: an origin that cannot be reached or trusted is an answer of ours, and the request is told of.
// TestJSON: a program that asks for JSON gets it.
func TestJSON(t *testing.T) {
	w := newWorld(t, nil)
	w.judge = func(string, uint16) (netrule.Code, bool) { return netrule.CodeNeedsApproval, false }
	resp, body := w.get(w.client(2), "/", "Accept: application/json")
	want := `{"verdict":"ask","code":"needs_approval","host":"api.test","port":443,"reason":"api.test:443 needs approval","reason_source":"dshproxy","id":""}` + "\n"
	if resp.StatusCode != 403 || resp.Header.Get("Content-Type") != "application/json" || body != want {
		t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, body)
	}
}

// TestZeroTunnel: without a judge or a dial nothing passes.
func TestZeroTunnel(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for name, it := range map[string]*proxy.InspectedTunnel{
		"no_policy":      {Host: host, Port: port, Dial: w.dial},
		"internal_error": {Host: host, Port: port, Judge: w.judge},
	} {
		client, server := net.Pipe()
		it.Client = server
		done := make(chan struct{})
		go func() { defer close(done); w.engine.Inspect(t.Context(), it) }()
		c := tls.Client(client, w.trust("http/1.1"))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode < 500 || resp.Header.Get("X-Dshproxy-Code") != name {
			t.Errorf("got %d %v, want %s", resp.StatusCode, resp.Header, name)
		}
		_ = client.Close()
		<-done
	}
}

// TestPoisonedEnvironment: proxies in the environment are not asked, and nothing is dialled but through Dial.
func TestPoisonedEnvironment(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			c.Close()
		}
	}()
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for version := 1; version <= 2; version++ {
		if resp, _ := w.get(w.client(version), "/"); resp.StatusCode != 200 {
			t.Errorf("got %d", resp.StatusCode)
		}
	}
	if w.dials.Load() != 2 {
		t.Errorf("%d dials, want one a tunnel", w.dials.Load())
	}
	if c, err := w.engine.proxy.ConnectDial("tcp", w.origin.Listener.Addr().String()); err == nil {
		c.Close()
		t.Error("goproxy has a way out of its own")
	}
	if w.engine.proxy.Tr.Proxy != nil || w.engine.proxy.ConnectDialWithReq != nil {
		t.Error("goproxy has a way out of its own")
	}
	select {
	case <-asked:
		t.Error("the proxy of the environment was asked")
	default:
	}
}

// TestPanic: a panic in what the engine calls is an answer for this request, and neither the process nor the engine ends.
// TestHandshakeStops: a client that stops in its handshake, speaks no TLS or trusts no CA ends its tunnel and no more.
// TestSlowHead: a request head has as long as the limit says.
// TestIdle: a tunnel in which nothing moves ends, though a request is in flight.
// TestEnd: the end of the context, and that of the client, ends tunnels in every state.
// TestReturnsLast: Inspect returns after the last request has, so that nothing of a tunnel outlives its books.
// TestEarlyAnswer: an answer passes while the request is still being sent, and the rest of the request after it.
// TestNotCovered: a tunnel to another host is not served, whoever hands it over.
func TestNotCovered(t *testing.T) {
	w := newWorld(t, nil)
	for name, want := range map[string]bool{
		"api.test": true, "x.api.test": true, "API.test.": true, "test": false, "xapi.test": false, "api.test.evil.test": false,
		"127.0.0.1": false, "::1": false, "": false, "api.test:443": false,
	} {
		if got := w.engine.Covers(name); got != want {
			t.Errorf("Covers(%q) is %v", name, got)
		}
	}
	client, server := net.Pipe()
	go w.engine.Inspect(t.Context(), &proxy.InspectedTunnel{Client: server, Host: "evil.test", Port: port})
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// TestBodyCut: a client that breaks its request body off is answered for that, and the origin does not see a whole one.
