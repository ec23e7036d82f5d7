package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
)

// tunnelTo opens a tunnel through the proxy.
func (w *world) tunnelTo(host string, port int) *testConn {
	w.t.Helper()
	c := w.dial().send(fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\n\r\n", host, port))
	if r := c.response("CONNECT"); r.StatusCode != 200 {
		w.t.Fatalf("CONNECT %s: %s, %s", host, r.Status, w.lastRecord().Cause)
	}
	return c
}

// echo is an origin that gives back what it gets.
func echo(t testing.TB) *origin {
	return newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) { io.Copy(c, r); c.CloseWrite() })
}

const allowTwo = allowNames + `
  - match: { network: { domains: ["=other.test"], ips: ["127.0.0.1"] } }
    action: allow
    reason: another
  - match: { network: { domains: ["=named.test"] } }
    action: allow
    reason: by name
`

// TestSNI: the name in a TLS hello is held against the target, however the hello arrives (CON-13, CON-14, CON-15, CON-16,
// CON-17).
func TestSNI(t *testing.T) {
	hello := func(name string) []byte { return helloOf(t, &tls.Config{ServerName: name, InsecureSkipVerify: true}) } //nolint:gosec // never verified
	own := hello("allowed.test")
	ip := bytes.ReplaceAll(hello("1.2.3.4.test"), []byte("1.2.3.4.test"), []byte("127.000.0.01"))
	for _, tt := range []struct {
		name  string
		bytes []byte
		mode  SNIMode
		code  netrule.Code // of the refusal; internal error for none
	}{
		{"its own", own, SNIEnforce, 0},
		{"in records of one byte", inRecords(own, 1), SNIEnforce, 0},
		{"in capitals", bytes.ReplaceAll(own, []byte("allowed.test"), []byte("ALLOWED.TEST")), SNIEnforce, 0},
		{"another that is allowed there", hello("other.test"), SNIEnforce, 0},
		{"a foreign one", hello("evil.test"), SNIEnforce, netrule.CodeSNIMismatch},
		{"a foreign one in pieces", inRecords(hello("evil.test"), 3), SNIEnforce, netrule.CodeSNIMismatch},
		{"a foreign one, observed", hello("evil.test"), SNIObserve, 0},
		{"a foreign one, not looked at", hello("evil.test"), SNIOff, 0},
		{"below it, which the rule covers", hello("x.allowed.test"), SNIEnforce, 0},
		{"an address", ip, SNIEnforce, netrule.CodeSNIMismatch},
		{"a NUL", bytes.ReplaceAll(own, []byte("allowed.test"), []byte("allowed\x00test")), SNIEnforce, netrule.CodeSNIMismatch},
		{"no hello", []byte{22, 3, 1, 0, 1, 2, 0, 0, 0, 0}, SNIEnforce, netrule.CodeTLSIncomplete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowTwo)
			w.srv.SNI = tt.mode
			w.name("allowed.test", "127.0.0.1")
			o := echo(t)
			c := w.tunnelTo("allowed.test", o.port)
			c.send(string(tt.bytes))
			if tt.code == 0 {
				got := make([]byte, len(tt.bytes))
				if _, err := io.ReadFull(c.r, got); err != nil || !bytes.Equal(got, tt.bytes) {
					t.Fatalf("%d bytes came back, %v", len(got), err)
				}
				return
			}
			if got := c.rest(); got != string(alertAccessDenied) {
				t.Errorf("got %x, want the alert", got)
			}
			c.Close()
			w.await("the close", func() bool { return len(w.closes) == 1 })
			if cl := w.closes[0]; cl.ClosedBy != "proxy" || cl.Why != tt.code.String() || cl.BytesIn != 0 {
				t.Errorf("%+v", cl)
			}
			open, inside := w.records[0], w.lastRecord()
			if inside.Stage != stageTunnel || inside.ID != open.ID || inside.Code != tt.code || inside.Outcome != outcomeRefused || inside.Decision.Action != netrule.Deny {
				t.Errorf("%+v", inside)
			}
		})
	}
}

// TestSNIMissing: a hello without a name passes for an address, or where an ips rule admitted it.
func TestSNIMissing(t *testing.T) {
	nameless := string(helloOf(t, &tls.Config{InsecureSkipVerify: true})) //nolint:gosec // never verified
	for host, passes := range map[string]bool{"allowed.test": true, "127.0.0.1": true, "named.test": false} {
		w := newWorld(t, allowTwo+"  - match: { network: { ips: [\"127.0.0.1\"], domains: [\"127.0.0.1\"] } }\n    action: allow\n    reason: literal\n",
			withOptions(func(o *netrule.Options) { o.Guard = netrule.GuardOff }))
		w.name("allowed.test", "127.0.0.1")
		w.name("named.test", "127.0.0.1")
		o := echo(t)
		c := w.tunnelTo(host, o.port).send(nameless)
		if !passes {
			if got := c.rest(); got != string(alertAccessDenied) {
				t.Errorf("%s: got %x", host, got)
			}
			if r := w.lastRecord(); r.Code != netrule.CodeSNIMissing {
				t.Errorf("%s: %+v", host, r)
			}
			continue
		}
		if b, err := c.r.Peek(len(nameless)); err != nil || string(b) != nameless {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestHelloTimesOut: there is no clock before the first byte, and one from it on.
func TestHelloTimesOut(t *testing.T) {
	w := newWorld(t, allowTwo, withLimits(Limits{Hello: 100 * time.Millisecond}))
	w.name("allowed.test", "127.0.0.1")
	c := w.tunnelTo("allowed.test", echo(t).port).send("\x16\x03\x01\x02\x00\x01")
	begun := time.Now()
	if got := c.rest(); got != string(alertAccessDenied) || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("got %x after %v", got, time.Since(begun))
	}
	if r := w.lastRecord(); r.Code != netrule.CodeTLSIncomplete {
		t.Errorf("%+v", r)
	}
}

// TestRealTLS: a handshake of real programs passes through, and the bytes behind it.
func TestRealTLS(t *testing.T) {
	w := newWorld(t, allowTwo)
	w.name("allowed.test", "127.0.0.1")
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "over TLS") }))
	defer s.Close()
	port := s.Listener.Addr().(*net.TCPAddr).Port
	c := w.tunnelTo("allowed.test", port)
	tc := tls.Client(c.TCPConn, &tls.Config{ServerName: "allowed.test", InsecureSkipVerify: true}) //nolint:gosec // the certificate is for another name
	io.WriteString(tc, "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(tc); err != nil || !strings.HasSuffix(string(b), "over TLS") {
		t.Errorf("%q %v", b, err)
	}
}

// TestClearHTTPInside: requests in a tunnel are served one by one, and none names another host than the tunnel's.
func TestClearHTTPInside(t *testing.T) {
	own := func(port int) string { return fmt.Sprintf("allowed.test:%d", port) }
	for _, tt := range []struct {
		name, request string // HOST is the tunnel's authority
		status        int
	}{
		{"its own host", "GET /a HTTP/1.1\r\nHost: HOST\r\n\r\n", 200},
		{"no port", "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 200},
		{"absolute-form", "GET http://HOST/a HTTP/1.1\r\nHost: HOST\r\n\r\n", 200},
		{"HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", 200},
		{"a foreign host", "GET /a HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		{"another port", "GET /a HTTP/1.1\r\nHost: allowed.test:1\r\n\r\n", 400},
		{"a foreign absolute-form", "GET http://evil.test/a HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
		{"https in absolute-form", "GET https://HOST/a HTTP/1.1\r\nHost: HOST\r\n\r\n", 400},
		{"two hosts", "GET /a HTTP/1.1\r\nHost: HOST\r\nHost: evil.test\r\n\r\n", 400},
		{"no host", "GET /a HTTP/1.1\r\n\r\n", 400},
		{"a line before it", "\r\nGET /a HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		{"bare line feeds", "GET /a HTTP/1.1\nHost: evil.test\n\n", 400},
		{"tabs", "GET\t/a HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		{"CONNECT", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 400},
		{"two lengths", "POST /a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: HOST\r\n\r\n", 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowNames)
			w.name("allowed.test", "127.0.0.1")
			var heads []string
			o := httpOrigin(t, func(_ *http.Request, head string) string { heads = append(heads, head); return okReply("inside") })
			c := w.tunnelTo("allowed.test", o.port)
			c.send(strings.ReplaceAll(tt.request, "HOST", own(o.port)))
			r := c.response("GET")
			if r.StatusCode != tt.status {
				t.Fatalf("got %s %q", r.Status, bodyOf(r))
			}
			if tt.status == 200 {
				if !strings.HasPrefix(heads[0], "GET /a HTTP/1.1\r\nHost: "+own(o.port)+"\r\n") || !strings.Contains(heads[0], "Via: 1.1 dshproxy-") {
					t.Errorf("the origin got %q", heads[0])
				}
				if o.accepted() != 1 {
					t.Errorf("%d connections", o.accepted())
				}
				return
			}
			if len(heads) > 0 {
				t.Errorf("the origin got %q", heads)
			}
			if rec := w.lastRecord(); rec.Stage != stageTunnel || rec.Outcome != outcomeRefused {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// TestSecondRequestInside: a good first request opens nothing for the next.
func TestSecondRequestInside(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	var paths []string
	o := httpOrigin(t, func(r *http.Request, _ string) string { paths = append(paths, r.URL.Path); return okReply("x") })
	c := w.tunnelTo("allowed.test", o.port)
	for range 3 {
		c.send(fmt.Sprintf("GET /good HTTP/1.1\r\nHost: allowed.test:%d\r\n\r\n", o.port))
		if r := c.response("GET"); r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
	}
	c.send("GET /bad HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if r := c.response("GET"); r.StatusCode != 400 || r.Header.Get("X-Dshproxy-Code") != "host_mismatch" {
		t.Errorf("%s %v", r.Status, r.Header)
	}
	if rest := c.rest(); rest != "" || strings.Join(paths, " ") != "/good /good /good" {
		t.Errorf("%q %v", rest, paths)
	}
	w.await("the end of the tunnel", func() bool {
		for _, cl := range w.closes {
			if cl.ID == w.records[0].ID && cl.BytesOut > 0 {
				return true
			}
		}
		return false
	})
}

// TestWebSocketInside: an upgrade inside a tunnel becomes one of bytes.
func TestWebSocketInside(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
		io.Copy(c, r)
		c.CloseWrite()
	})
	c := w.tunnelTo("allowed.test", o.port)
	c.send("GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if r, err := http.ReadResponse(c.r, nil); err != nil || r.StatusCode != 101 {
		t.Fatal(r, err)
	}
	c.send("GET /frames are not requests").CloseWrite()
	if got := c.rest(); got != "hiGET /frames are not requests" {
		t.Errorf("%q", got)
	}
	w.await("the end of both", func() bool { return len(w.closes) == 2 })
	if n := w.srv.Active(); n != 0 {
		t.Errorf("%d slots are held", n)
	}
}

// TestServerFirst: what a server says first is not held up by what its client has not said yet.
func TestServerFirst(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		io.WriteString(c, "220 ready\r\n")
		line, _ := r.ReadString('\n')
		io.WriteString(c, "250 "+line)
	})
	c := w.tunnelTo("allowed.test", o.port)
	if line, err := c.r.ReadString('\n'); err != nil || line != "220 ready\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	c.send("EH").send("LO me\r\n")
	if got := c.rest(); got != "250 EHLO me\r\n" {
		t.Errorf("%q", got)
	}
}

// TestSchemesInside: a rule with schemes admits only what it lists, by the bytes.
func TestSchemesInside(t *testing.T) {
	const rules = `rules:
  - match: { network: { domains: ["=denied.test"], schemes: [http] } }
    action: deny
    reason: not in clear
  - match: { network: { domains: ["=clear.test"], ips: ["127.0.0.1"], schemes: [http] } }
    action: allow
    reason: clear
  - match: { network: { domains: ["=secret.test", "=denied.test"], ips: ["127.0.0.1"], schemes: [https] } }
    action: allow
    reason: secret
  - match: { network: { domains: ["=denied.test", "=any.test"], ips: ["127.0.0.1"] } }
    action: allow
    reason: anything
`
	for _, tt := range []struct {
		host, kind string
		code       netrule.Code // 0: passes
	}{
		{"clear.test", "http", 0},
		{"clear.test", "tls", netrule.CodeSchemeMismatch},
		{"clear.test", "other", netrule.CodeSchemeMismatch},
		{"secret.test", "tls", 0},
		{"secret.test", "http", netrule.CodeNotAllowed},
		{"secret.test", "other", netrule.CodeSchemeMismatch},
		{"denied.test", "tls", 0},
		{"denied.test", "http", netrule.CodeDeniedByRule},
		{"denied.test", "other", 0},
		{"any.test", "other", 0},
	} {
		t.Run(tt.host+" "+tt.kind, func(t *testing.T) {
			w := newWorld(t, rules)
			w.name(tt.host, "127.0.0.1")
			first := map[string]string{
				"http": "GET / HTTP/1.1\r\nHost: " + tt.host + "\r\n\r\n", "other": "\x00other",
				"tls": string(helloOf(t, &tls.Config{ServerName: tt.host})),
			}[tt.kind]
			o := echo(t)
			if tt.kind == "http" {
				o = httpOrigin(t, func(*http.Request, string) string { return okReply("ok") })
			}
			c := w.tunnelTo(tt.host, o.port).send(first)
			switch {
			case tt.kind == "http":
				r := c.response("GET")
				if (r.StatusCode == 200) != (tt.code == 0) {
					t.Errorf("%s", r.Status)
				}
			case tt.code == 0:
				if b, err := c.r.Peek(len(first)); err != nil || string(b) != first {
					t.Errorf("%q %v", b, err)
				}
			default:
				c.CloseWrite()
				if got := c.rest(); got != "" && got != string(alertAccessDenied) {
					t.Errorf("%x", got)
				}
			}
			if tt.code == 0 {
				return
			}
			if r := w.lastRecord(); r.Code != tt.code || r.Stage != stageTunnel {
				t.Errorf("%+v", r)
			}
		})
	}
}

// coversOne is an Inspector that must not be asked.
type coversOne string

func (c coversOne) Covers(host string) bool { return host == string(c) }

func (coversOne) Inspect(_ context.Context, t *InspectedTunnel) {
	t.Client.Close()
}

// TestNameBesideInspection: a name that is allowed at the same address leads past no inspection.
func TestNameBesideInspection(t *testing.T) {
	w := newWorld(t, allowTwo)
	w.srv.Inspector = coversOne("allowed.test")
	w.name("allowed.test", "127.0.0.1")
	c := w.tunnelTo("allowed.test", echo(t).port).send(string(helloOf(t, &tls.Config{ServerName: "other.test"})))
	if got := c.rest(); got != string(alertAccessDenied) {
		t.Errorf("got %x, want the alert", got)
	}
	if r := w.lastRecord(); r.Code != netrule.CodeSNIMismatch {
		t.Errorf("%+v", r)
	}
}

// TestDryRunInside: without enforcement a tunnel is not refused for what it carries, and each finding is recorded once.
func TestDryRunInside(t *testing.T) {
	const schemes = allowNames + `
  - match: { network: { domains: ["=secret.test"], ips: ["127.0.0.1"], schemes: [https] } }
    action: allow
    reason: secret
`
	for _, tt := range []struct {
		name, host, first string
		would             netrule.Code
	}{
		{"a foreign name", "allowed.test", string(helloOf(t, &tls.Config{ServerName: "evil.test"})), netrule.CodeSNIMismatch},
		{"no name", "allowed.test", string(helloOf(t, &tls.Config{InsecureSkipVerify: true})), 0}, //nolint:gosec // never verified
		{"its own name", "allowed.test", string(helloOf(t, &tls.Config{ServerName: "allowed.test"})), 0},
		{"another scheme", "secret.test", "\x00other", netrule.CodeNotAllowed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, schemes)
			w.setPolicy(schemes, netrule.Options{Mode: netrule.Whitelist, DryRun: true, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}, PrivateAllowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			w.name(tt.host, "127.0.0.1")
			c := w.tunnelTo(tt.host, echo(t).port).send(tt.first)
			c.CloseWrite()
			if got := c.rest(); got != tt.first {
				t.Fatalf("%d bytes came back, %+v", len(got), w.lastRecord())
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			var found []netrule.Code
			for _, r := range w.records {
				if r.Stage == stageTunnel {
					if r.Code != netrule.CodeDryRun || !r.Decision.DryRun || r.Outcome != outcomeOK || r.ID != w.records[0].ID {
						t.Errorf("%+v", r)
					}
					found = append(found, r.Decision.WouldCode)
				}
			}
			if tt.would == 0 && len(found) == 0 {
				return
			}
			if len(found) != 1 || found[0] != tt.would {
				t.Errorf("recorded %v, want %v", found, tt.would)
			}
		})
	}
}

// TestLimitsOfStreams: lifetime and byte limit hold for whatever carries bytes.
func TestLimitsOfStreams(t *testing.T) {
	endless := func(t *testing.T) *origin {
		return newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
			if _, _, err := readRequest(r); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for chunk := make([]byte, 1000); ; {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		})
	}
	const request = "GET http://allowed.test:%d/ HTTP/1.1\r\nHost: allowed.test:%[1]d\r\n\r\n"
	for name, open := range map[string]func(w *world, port int) *testConn{
		"inside a tunnel": func(w *world, port int) *testConn { return w.tunnelTo("allowed.test", port) },
		"absolute-form":   func(w *world, _ int) *testConn { return w.dial() },
	} {
		for why, limits := range map[string]Limits{"bytes": {TunnelBytes: 1 << 20}, "lifetime": {Lifetime: 50 * time.Millisecond}} {
			t.Run(name+" "+why, func(t *testing.T) {
				w := newWorld(t, allowNames, withLimits(limits))
				w.name("allowed.test", "127.0.0.1")
				o := endless(t)
				c := open(w, o.port).send(fmt.Sprintf(request, o.port))
				n, _ := io.Copy(io.Discard, c.r)
				if why == "bytes" && n > 3<<20 {
					t.Errorf("%d bytes came", n)
				}
				w.await("the close", func() bool { return len(w.closes) == 1 })
				if cl := w.closes[0]; cl.ClosedBy != "proxy" || cl.Why != why || cl.BytesOut == 0 {
					t.Errorf("%+v", cl)
				}
			})
		}
	}
	t.Run("several requests inside a tunnel", func(t *testing.T) {
		w := newWorld(t, allowNames, withLimits(Limits{TunnelBytes: 2000}))
		w.name("allowed.test", "127.0.0.1")
		o := httpOrigin(t, func(*http.Request, string) string { return okReply(strings.Repeat("x", 900)) })
		c := w.tunnelTo("allowed.test", o.port)
		c.send(strings.Repeat(fmt.Sprintf("GET / HTTP/1.1\r\nHost: allowed.test:%d\r\n\r\n", o.port), 5)) // at once: the end may come soon
		io.Copy(io.Discard, c.r)
		w.await("the close", func() bool { return len(w.closes) == 1 })
		if cl := w.closes[0]; cl.Why != "bytes" || cl.BytesOut > 2700 {
			t.Errorf("%+v", cl)
		}
	})
}
