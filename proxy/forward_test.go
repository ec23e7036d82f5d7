package proxy

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// forwardWorld is a proxy that admits allowed.test and an origin behind it.
func forwardWorld(t *testing.T, serve func(c *net.TCPConn, r *bufio.Reader)) (*world, *origin, string) {
	t.Helper()
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := newOrigin(t, serve)
	return w, o, fmt.Sprintf("http://allowed.test:%d", o.port)
}

// scripted answers the first request with raw bytes, then does what after says.
func scripted(raw string, after func(c *net.TCPConn)) func(c *net.TCPConn, r *bufio.Reader) {
	return func(c *net.TCPConn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		io.WriteString(c, raw)
		if after != nil {
			after(c)
		}
	}
}

func headOf(head, name string) []string {
	var out []string
	for _, line := range strings.Split(head, "\r\n")[1:] {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			out = append(out, strings.TrimSpace(v))
		}
	}
	return out
}

// TestRequestFields: what an origin gets to see (HDR-01, HDR-02, HDR-10, HDR-14, HDR-15, HDR-17, HDR-18, HDR-25, HDR-28,
// HDR-29, HDR-40, FRM-08, TGT-29, TGT-45, TGT-47, TGT-48).
func TestRequestFields(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(_ *http.Request, head string) string { return okReply(head) })
	base := fmt.Sprintf("http://allowed.test:%d", o.port)
	fetch := func(requestLine, fields string) string {
		t.Helper()
		c := w.dial().send(requestLine + " HTTP/1.1\r\nHost: evil.test\r\n" + fields + "\r\n")
		r := c.response("GET")
		if r.StatusCode != 200 {
			t.Fatalf("%s: %s", requestLine, r.Status)
		}
		return bodyOf(r)
	}
	head := fetch("GET "+base+"/", "Proxy-Authorization: s\r\nProxy_Authorization: s\r\nproxy.authorization: s\r\nProxy-Connection: keep-alive\r\n"+
		"Proxy: http://evil/\r\nConnection: close, X-Drop,  x-other\r\nX-Drop: 1\r\nX-Other: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"+
		"Content_Length: 3\r\nTransfer_Encoding: chunked\r\nX-Keep: yes\r\nAccept-Encoding: br\r\nVia: 1.0 before\r\n")
	if got := headOf(head, "Host"); len(got) != 1 || got[0] != fmt.Sprintf("allowed.test:%d", o.port) {
		t.Errorf("HDR-01: Host %q", got)
	}
	for _, gone := range []string{"Proxy-Authorization", "Proxy_Authorization", "proxy.authorization", "Proxy-Connection", "Proxy", "X-Drop", "X-Other", "Keep-Alive", "TE", "Upgrade", "HTTP2-Settings", "Content_Length", "Transfer_Encoding", "Connection", "X-Forwarded-For", "Forwarded", "User-Agent"} {
		if got := headOf(head, gone); got != nil {
			t.Errorf("%s reached the origin: %q", gone, got)
		}
	}
	if got := headOf(head, "Accept-Encoding"); len(got) != 1 || got[0] != "br" {
		t.Errorf("HDR-28: Accept-Encoding %q", got)
	}
	if got := headOf(head, "X-Keep"); len(got) != 1 {
		t.Errorf("X-Keep %q", got)
	}
	if got := headOf(head, "Via"); len(got) != 2 || got[1] != "1.1 "+w.srv.Pseudonym() {
		t.Errorf("HDR-21: Via %q", got)
	}
	if head := fetch("GET "+base+"/", "Connection: Host, Via, Content-Length, X-Mine\r\nX-Mine: 1\r\n"); len(headOf(head, "Via")) != 1 || len(headOf(head, "Host")) != 1 {
		t.Errorf("HDR-17: %q", head)
	}
	for _, tt := range []struct{ id, line, want string }{
		{"TGT-29", "GET HTTP://ALLOWED.test:" + fmt.Sprint(o.port) + "/x", "GET /x HTTP/1.1"},
		{"TGT-45", "OPTIONS " + base, "OPTIONS * HTTP/1.1"},
		{"TGT-47", "GET " + base + "/a/../b/%2e%2e/%2F/a;b?c=d;e=%zz", "GET /a/../b/%2e%2e/%2F/a;b?c=d;e=%zz HTTP/1.1"},
		{"TGT-48", "GET " + base + "/\xff\xfe", "GET /\xff\xfe HTTP/1.1"},
		{"no path", "GET " + base, "GET / HTTP/1.1"},
		{"query alone", "GET " + base + "?a=b", "GET /?a=b HTTP/1.1"},
		{"TGT-35", "GET " + base + "?@evil.test/", "GET /?@evil.test/ HTTP/1.1"},
		{"odd method", "PURGE " + base + "/", "PURGE / HTTP/1.1"},
	} {
		if got, _, _ := strings.Cut(fetch(tt.line, ""), "\r\n"); got != tt.want {
			t.Errorf("%s: the origin got %q, want %q", tt.id, got, tt.want)
		}
	}
}

// TestResponseFields: what a client gets to see of an origin (HDR-19, HDR-27, HDR-33, FRM-53).
func TestResponseFields(t *testing.T) {
	w, _, base := forwardWorld(t, scripted("HTTP/1.1 200 <b>evil phrase</b>\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nProxy-Authenticate: Basic\r\nTrailer: X\r\n"+
		"Proxy-Status: dshproxy; error=http_request_denied, cdn; hit\r\nX-Dshproxy-Code: denied_by_rule\r\nX-Proxy-Error: blocked-by-policy\r\nx_dshproxy.id: 1\r\nX-Fold: a\r\n b\r\nContent-Length: 2\r\n\r\nok", nil))
	c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	r := c.response("GET")
	if r.Status != "200 OK" {
		t.Errorf("phrase %q", r.Status)
	}
	for _, gone := range []string{"X-Hop", "Keep-Alive", "Proxy-Authenticate", "X-Dshproxy-Code", "X-Proxy-Error", "X_dshproxy.id", "Connection"} {
		if got := r.Header[http.CanonicalHeaderKey(gone)]; got != nil {
			t.Errorf("%s reached the client: %q", gone, got)
		}
	}
	if got := r.Header.Get("Proxy-Status"); got != "cdn; hit" {
		t.Errorf("HDR-27: Proxy-Status %q", got)
	}
	if got := r.Header.Get("X-Fold"); got != "a b" {
		t.Errorf("HDR-33: %q", got)
	}
	if got := r.Header.Get("Via"); got != "1.1 "+w.srv.Pseudonym() {
		t.Errorf("Via %q", got)
	}
}

// TestPipelining: every request is judged, answers come in order, and nothing is served behind a refusal (FRM-28, FRM-33).
func TestPipelining(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(r *http.Request, _ string) string { return okReply(r.URL.Path) })
	base := fmt.Sprintf("http://allowed.test:%d", o.port)
	get := func(url string) string { return "GET " + url + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	c := w.dial().send(get(base+"/1") + get(base+"/2") + get("http://denied.test/3") + get(base+"/4"))
	for _, want := range []string{"/1", "/2"} {
		if got := bodyOf(c.response("GET")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if r := c.response("GET"); r.StatusCode != 403 {
		t.Errorf("FRM-33: %s", r.Status)
	}
	if rest := c.rest(); rest != "" {
		t.Errorf("behind the refusal came %q", rest)
	}
	// FRM-28: a refused POST whose body holds a request.
	inner := get(base + "/smuggled")
	c = w.dial().send(fmt.Sprintf("POST http://denied.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s", len(inner), inner, inner))
	if r := c.response("POST"); r.StatusCode != 403 || !r.Close {
		t.Errorf("FRM-28: %s", r.Status)
	}
	if rest := c.rest(); rest != "" {
		t.Errorf("FRM-28: behind the refusal came %q", rest)
	}
	// FRM-01, FRM-02: heads with two framings never let a second request through.
	for _, head := range []string{
		"POST " + base + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST " + base + "/ HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		before := o.accepted()
		c := w.dial().send(head + inner)
		if r := c.response("POST"); r.StatusCode != 400 {
			t.Errorf("%q: %s", head, r.Status)
		}
		if rest := c.rest(); rest != "" || o.accepted() != before {
			t.Errorf("%q let %q through", head, rest)
		}
	}
}

// TestBodies: request bodies arrive whole whatever their framing, and so do trailers that may pass (FRM-23, FRM-25).
func TestBodies(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(r *http.Request, _ string) string {
		b, _ := io.ReadAll(r.Body)
		return okReply(fmt.Sprintf("%x %v", sha256.Sum256(b), r.Trailer))
	})
	base := fmt.Sprintf("http://allowed.test:%d/", o.port)
	body := strings.Repeat("0123456789abcdef", 8<<16) // 8 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
	c := w.dial()
	send := func(s string) {
		t.Helper()
		// The origin answers at the end only, so a plain write cannot block for good.
		c.send(s)
	}
	send(fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", base, len(body), body))
	if got := bodyOf(c.response("PUT")); got != sum+" map[]" {
		t.Errorf("by length: %s", got)
	}
	var chunked strings.Builder
	for rest := body; len(rest) > 0; {
		n := min(len(rest), 1+len(rest)%77777)
		fmt.Fprintf(&chunked, "%X;ext=\"1\"\r\n%s\r\n", n, rest[:n])
		rest = rest[n:]
	}
	chunked.WriteString("0\r\nX-Sum: yes\r\nHost: evil\r\nContent-Length: 9\r\nAuthorization: x\r\nTransfer_Encoding: y\r\n\r\n")
	send("PUT " + base + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked.String())
	if got := bodyOf(c.response("PUT")); got != sum+" map[X-Sum:[yes]]" {
		t.Errorf("FRM-25 chunked with trailers: %s", got)
	}
	if o.accepted() != 1 {
		t.Errorf("%d origin connections", o.accepted())
	}
}

// TestBadChunks: a malformed chunk ends the exchange on both sides, and the client is told when nothing was sent yet
// (FRM-18, FRM-19, FRM-21, FRM-23).
func TestBadChunks(t *testing.T) {
	for id, chunk := range map[string]string{
		"FRM-18 0x": "0x3\r\nabc\r\n0\r\n\r\n", "FRM-18 plus": "+3\r\nabc\r\n0\r\n\r\n", "FRM-18 space": " 3\r\nabc\r\n0\r\n\r\n", "FRM-18 under": "3_\r\nabc\r\n0\r\n\r\n",
		"FRM-19": "7fffffffffffffff\r\nabc\r\n0\r\n\r\n", "FRM-21": "3\nabc\r\n0\r\n\r\n", "FRM-21 extension": "3;\nxxx\r\nabc\r\n0\r\n\r\n", "FRM-23": "3\r\nabcX\r\n0\r\n\r\n",
	} {
		t.Run(id, func(t *testing.T) {
			ended := make(chan string, 1)
			w, _, base := forwardWorld(t, func(_ *net.TCPConn, r *bufio.Reader) {
				b, _ := io.ReadAll(r)
				ended <- string(b)
			})
			c := w.dial().send("POST " + base + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + "GET " + base + "/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
			if r := c.response("POST"); r.StatusCode != 400 {
				t.Errorf("%s", r.Status)
			}
			if got := <-ended; strings.Contains(got, "smuggled") || strings.Contains(got, "0\r\n\r\n") {
				t.Errorf("the origin got %q", got)
			}
		})
	}
}

// TestExpect: the origin's word is what the client waits for (FRM-29, FRM-30, FRM-31).
func TestExpect(t *testing.T) {
	body := strings.Repeat("x", 8<<20)
	t.Run("FRM-30 the origin agrees", func(t *testing.T) {
		w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
			for {
				if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
					break
				}
			}
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			n, _ := io.CopyN(io.Discard, r, int64(len(body)))
			io.WriteString(c, okReply(fmt.Sprint(n)))
		})
		c := w.dial().send(fmt.Sprintf("PUT %s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", base, len(body)))
		if r := c.response("PUT"); r.StatusCode != 100 {
			t.Fatalf("%s", r.Status)
		}
		if got := bodyOf(c.send(body).response("PUT")); got != fmt.Sprint(len(body)) {
			t.Errorf("the origin got %s bytes", got)
		}
	})
	t.Run("FRM-31 the origin refuses", func(t *testing.T) {
		w, o, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
			for {
				if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
					break
				}
			}
			io.WriteString(c, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
			io.Copy(io.Discard, r)
		})
		c := w.dial().send(fmt.Sprintf("PUT %s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", base, len(body)))
		if r := c.response("PUT"); r.StatusCode != 417 || !r.Close {
			t.Errorf("%s, close %v", r.Status, r.Close)
		}
		if rest := c.rest(); rest != "" || o.accepted() != 1 {
			t.Errorf("then %q", rest)
		}
	})
	t.Run("FRM-29 the policy refuses", func(t *testing.T) {
		w := newWorld(t, allowNames)
		c := w.dial().send("PUT http://denied.test/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8388608\r\n\r\n")
		if r := c.response("PUT"); r.StatusCode != 403 {
			t.Errorf("%s", r.Status)
		}
	})
}

// TestEarlyAnswer: an answer that comes before the body has gone passes at once, and the connection ends with it.
func TestEarlyAnswer(t *testing.T) {
	w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
		r.ReadString('\n')
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
		io.Copy(io.Discard, r)
	})
	c := w.dial().send("POST " + base + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nsome")
	r := c.response("POST")
	if r.StatusCode != 413 || bodyOf(r) != "large" || !r.Close {
		t.Errorf("%s", r.Status)
	}
}

// TestInterim: 1xx pass, bounded, never to HTTP/1.0; an unasked 101 is refused (FRM-35, FRM-36, FRM-37).
func TestInterim(t *testing.T) {
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 3)
	w, _, base := forwardWorld(t, scripted(hints+okReply("done"), nil))
	c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	for range 3 {
		if r := c.response("GET"); r.StatusCode != 103 || r.Header.Get("Link") != "x" {
			t.Errorf("%s", r.Status)
		}
	}
	if r := c.response("GET"); bodyOf(r) != "done" {
		t.Errorf("%s", r.Status)
	}
	c = w.dial().send("GET " + base + "/ HTTP/1.0\r\n\r\n") // FRM-36
	if r := c.response("GET"); r.StatusCode != 200 || !r.Close {
		t.Errorf("HTTP/1.0 got %s", r.Status)
	}
	w, _, base = forwardWorld(t, scripted(strings.Repeat("HTTP/1.1 102 P\r\n\r\n", 500)+okReply("done"), nil))
	c = w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	n := 0
	for {
		r, err := http.ReadResponse(c.r, &http.Request{Method: "GET"})
		if err != nil || r.StatusCode != 102 {
			break
		}
		n++
	}
	if n == 0 || n > maxInterim {
		t.Errorf("FRM-35: %d interim responses", n)
	}
	w, _, base = forwardWorld(t, scripted("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", nil))
	if got := w.status("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); got != 502 {
		t.Errorf("FRM-37: %d", got)
	}
	if got := w.status("GET " + base + "/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"); got != 502 {
		t.Errorf("FRM-39: %d", got)
	}
}

// TestUpgrade: a WebSocket becomes a tunnel, with the bytes that came early on either side (FRM-38, FRM-39, FRM-40).
func TestUpgrade(t *testing.T) {
	asked := make(chan string, 3)
	w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
		var head strings.Builder
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		asked <- head.String()
		if !strings.Contains(head.String(), "Upgrade") {
			io.WriteString(c, okReply("plain"))
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: k\r\n\r\nhello ")
		io.Copy(c, r)
		c.CloseWrite()
	})
	c := w.dial().send("GET " + base + "/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly ")
	r := c.response("GET")
	if r.StatusCode != 101 || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-WebSocket-Accept") != "k" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	c.send("late").CloseWrite()
	if got := c.rest(); got != "hello early late" {
		t.Errorf("got %q", got)
	}
	if head := <-asked; len(headOf(head, "Upgrade")) != 1 || len(headOf(head, "Connection")) != 1 {
		t.Errorf("the origin got %q", head)
	}
	w.await("one close record", func() bool { return len(w.closes) == 1 })
	for id, upgrade := range map[string]string{"FRM-39": "h2c", "FRM-40": "TLS/1.0"} {
		r := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + upgrade + "\r\nHTTP2-Settings: x\r\n\r\n").response("GET")
		if head := <-asked; r.StatusCode != 200 || strings.Contains(head, "pgrade") || strings.Contains(head, "HTTP2") {
			t.Errorf("%s: %s, the origin got %q", id, r.Status, head)
		}
	}
}

// TestResponseBodies: framings of responses, and what must look cut (FRM-45, FRM-51, FRM-52, FRM-54, FRM-55).
func TestResponseBodies(t *testing.T) {
	type want struct {
		body  string
		close bool
		cut   bool
	}
	tests := []struct {
		name, method, version, raw string
		want                       want
	}{
		{"length", "GET", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", want{"hello", false, false}},
		{"chunked", "GET", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nX-T: 1\r\n\r\n", want{"hello", false, false}},
		{"close", "GET", "1.1", "HTTP/1.1 200 OK\r\n\r\nhello", want{"hello", true, false}},
		{"chunked to HTTP/1.0", "GET", "1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", want{"hello", true, false}},
		{"FRM-60 HTTP/1.0 origin", "GET", "1.1", "HTTP/1.0 200 OK\r\n\r\nhello", want{"hello", true, false}},
		{"FRM-52 HEAD", "HEAD", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", want{"", false, false}},
		{"FRM-51 204", "GET", "1.1", "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", want{"", false, false}},
		{"304", "GET", "1.1", "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", want{"", false, false}},
		{"FRM-54 extra bytes", "GET", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", want{"hello", false, false}},
		{"FRM-45 cut by length", "GET", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", want{"hello", false, true}},
		{"FRM-45 cut chunk", "GET", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello", want{"hello", false, true}},
		{"FRM-45 cut before the last chunk", "GET", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", want{"hello", false, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, o, base := forwardWorld(t, scripted(tt.raw, func(c *net.TCPConn) { c.CloseWrite() }))
			c := w.dial().send(tt.method + " " + base + "/ HTTP/" + tt.version + "\r\nHost: x\r\n\r\n")
			r, err := http.ReadResponse(c.r, &http.Request{Method: tt.method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if string(body) != tt.want.body || r.Close != tt.want.close || (err != nil) != tt.want.cut {
				t.Errorf("body %q close %v error %v, want %+v", body, r.Close, err, tt.want)
			}
			if tt.name == "FRM-52 HEAD" && r.Header.Get("Content-Length") != "5" || tt.name == "FRM-51 204" && r.Header.Get("Content-Length") != "" { // FRM-53
				t.Errorf("length field %q", r.Header.Get("Content-Length"))
			}
			if tt.want.close || tt.want.cut {
				return
			}
			// What the origin sent too much must not become the next answer.
			c.send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
			if r := c.response("GET"); strings.Contains(bodyOf(r), "evil") || o.accepted() != 2 {
				t.Errorf("second request: %s over %d connections", r.Status, o.accepted())
			}
		})
	}
}

// TestBadResponses: what is no response is a 502 (FRM-44, FRM-47, FRM-55).
func TestBadResponses(t *testing.T) {
	for id, raw := range map[string]string{
		"FRM-44":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"FRM-47":        "HTTP/1.1 099 OK\r\n\r\n",
		"FRM-55":        "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n",
		"two lengths":   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"garbage":       "hello\r\n\r\n",
		"cut head":      "HTTP/1.1 200 OK\r\nX: y",
		"nothing":       "",
		"HDR-34 CR":     "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
		"fields HDR-39": "HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", 300) + "\r\n",
	} {
		t.Run(id, func(t *testing.T) {
			w, _, base := forwardWorld(t, scripted(raw, nil))
			r := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n").response("GET")
			code := r.Header.Get("X-Dshproxy-Code")
			if r.StatusCode != 502 || code != "bad_response" && (id != "nothing" || code != "connection_terminated") {
				t.Errorf("%s %s", r.Status, code)
			}
		})
	}
	t.Run("FRM-56 late head", func(t *testing.T) {
		w := newWorld(t, allowNames, withLimits(Limits{ResponseHead: 50 * time.Millisecond}))
		w.name("allowed.test", "127.0.0.1")
		o := newOrigin(t, func(_ *net.TCPConn, r *bufio.Reader) { io.Copy(io.Discard, r) })
		if got := w.status(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)); got != 504 {
			t.Errorf("got %d", got)
		}
	})
}

// TestStreaming: an event stream passes as it comes, chunk by chunk.
func TestStreaming(t *testing.T) {
	next := make(chan string)
	w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for s := range next {
			fmt.Fprintf(c, "%x\r\n%s\r\n", len(s), s)
		}
		io.WriteString(c, "0\r\n\r\n")
	})
	c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	r, err := http.ReadResponse(c.r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	for i := range 3 {
		event := fmt.Sprintf("data: %d\n\n", i)
		next <- event
		n, err := io.ReadAtLeast(r.Body, buf, len(event)) // blocks for good if the proxy buffers
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("got %q %v", buf[:n], err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// TestRetry: a kept connection that has died is replaced once, for a request without body.
func TestRetry(t *testing.T) {
	for name, then := range map[string]func(*net.TCPConn){
		"after the answer, without saying so": nil,
		"of the next request, which nobody can see before it is sent": func(c *net.TCPConn) {
			var b [1]byte
			_, _ = c.Read(b[:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, o, base := forwardWorld(t, scripted(okReply("once"), then)) // one answer a connection
			c := w.dial()
			for range 3 {
				c.send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
				if got := bodyOf(c.response("GET")); got != "once" {
					t.Errorf("got %q", got)
				}
			}
			if o.accepted() != 3 {
				t.Errorf("%d connections", o.accepted())
			}
		})
	}
}

// TestUpgradeWithBody: a request with a body changes no protocol, and its head is not looked at while the body takes its
// place (for -race).
func TestUpgradeWithBody(t *testing.T) {
	answer := scripted("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", nil)
	w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		answer(c, bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: x\r\n\r\n")))
	})
	for range 10 {
		c := w.dial().send("POST " + base + "/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n")
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 500 {
				if _, err := io.WriteString(c, "100\r\n"+strings.Repeat("y", 256)+"\r\n"); err != nil {
					return
				}
			}
		}()
		if r := c.response("POST"); r.StatusCode != http.StatusBadGateway {
			t.Errorf("got %s", r.Status)
		}
		c.Close()
		<-sent
	}
}

// TestPoolBelongsToOneClient: two clients never share an origin connection (FRM-57), and a new policy starts anew (CFG-26).
func TestPoolBelongsToOneClient(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(*http.Request, string) string { return okReply("ok") })
	get := fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)
	a, b := w.dial(), w.dial()
	for range 2 {
		a.send(get).response("GET")
		b.send(get).response("GET")
	}
	if o.accepted() != 2 {
		t.Errorf("%d origin connections for two clients", o.accepted())
	}
	w.setPolicy(allowNames, w.policy.Options())
	a.send(get).response("GET")
	if o.accepted() != 3 {
		t.Errorf("%d origin connections after a reload", o.accepted())
	}
}

// TestClientLeaves: a client that resets while the origin thinks ends the exchange.
func TestClientLeaves(t *testing.T) {
	gone := make(chan struct{})
	started := make(chan struct{})
	w, _, base := forwardWorld(t, func(_ *net.TCPConn, r *bufio.Reader) {
		readRequest(r)
		close(started)
		io.Copy(io.Discard, r)
		close(gone)
	})
	c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	<-started
	c.SetLinger(0)
	c.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the origin connection stays open")
	}
}

// TestHalfClosingClient: a client that ends its side after the request still gets the answer.
func TestHalfClosingClient(t *testing.T) {
	release := make(chan struct{})
	w, _, base := forwardWorld(t, func(c *net.TCPConn, r *bufio.Reader) {
		readRequest(r)
		<-release
		io.WriteString(c, okReply("late"))
	})
	c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	c.CloseWrite()
	time.AfterFunc(2*time.Second, func() { close(release) }) // longer than the proxy waits before it looks
	if got := bodyOf(c.response("GET")); got != "late" {
		t.Errorf("got %q", got)
	}
}
