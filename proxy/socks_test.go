package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/identity"
)

// socksName is a request for a name.
func socksName(host string, port int) string {
	return "\x05\x01\x00\x03" + string(rune(len(host))) + host + string([]byte{byte(port >> 8), byte(port)})
}

func socksAddr(addr string, port int) string {
	a := netip.MustParseAddr(addr)
	kind := "\x01"
	if a.Is6() {
		kind = "\x04"
	}
	return "\x05\x01\x00" + kind + string(a.AsSlice()) + string([]byte{byte(port >> 8), byte(port)})
}

// reply gives the second byte of a SOCKS reply.
func (c *testConn) reply() byte {
	c.t.Helper()
	b := make([]byte, 10)
	if _, err := io.ReadFull(c.r, b); err != nil || b[0] != 5 || string(b[2:]) != "\x00\x01\x00\x00\x00\x00\x00\x00" {
		c.t.Fatalf("reply %x %v", b, err)
	}
	return b[1]
}

// TestSOCKSReplies: every outcome has its reply, and the record says what the reply cannot.
func TestSOCKSReplies(t *testing.T) {
	o := echo(t)
	for _, tt := range []struct {
		name, request string
		reply         byte
		code          netrule.Code
	}{
		{"allowed name", socksName("allowed.test", o.port), 0, netrule.CodeAllowedByRule},
		{"capitals and a dot", socksName("ALLOWED.test.", o.port), 0, netrule.CodeAllowedByRule},
		{"denied name", socksName("denied.test", 443), 2, netrule.CodeNotAllowed},
		{"special address", socksAddr("127.0.0.1", o.port), 2, netrule.CodeNotAllowed},
		{"IPv6", socksAddr("2001:db8::1", 443), 2, netrule.CodeNotAllowed},
		{"mapped", socksAddr("::ffff:127.0.0.1", 443), 2, netrule.CodeNotAllowed},
		{"no such name", socksName("missing.allowed.test", 443), 4, netrule.CodeDNSError},
		{"DNS timeout", socksName("slow.allowed.test", 443), 6, netrule.CodeDNSTimeout},
		{"refused", socksName("allowed.test", closedPort(t)), 5, netrule.CodeConnectionRefused},
		{"port 0", socksName("allowed.test", 0), 1, netrule.CodeBadTarget},
		{"a URL", socksName("http://allowed.test", 80), 1, netrule.CodeBadTarget},
		{"a NUL", socksName("allowed.test\x00.evil.test", 80), 1, netrule.CodeBadTarget},
		{"an empty name", socksName("", 80), 1, netrule.CodeBadTarget},
		{"a number", socksName("2130706433", 80), 1, netrule.CodeBadTarget},
		{"brackets", socksName("[::1]", 80), 1, netrule.CodeBadTarget},
		{"itself", "ITSELF", 1, netrule.CodeLoop},
		{"BIND", strings.Replace(socksName("allowed.test", o.port), "\x05\x01", "\x05\x02", 1), 7, netrule.CodeBadRequest},
		{"UDP", strings.Replace(socksName("allowed.test", o.port), "\x05\x01", "\x05\x03", 1), 7, netrule.CodeBadRequest},
		{"another type", "\x05\x01\x00\x02\x00\x00", 8, netrule.CodeBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowNames)
			w.name("allowed.test", "127.0.0.1")
			w.name("slow.allowed.test", "timeout")
			if tt.request == "ITSELF" {
				ap := netip.MustParseAddrPort(w.addr)
				tt.request = socksAddr("127.0.0.1", int(ap.Port()))
			}
			c := w.dial().send("\x05\x01\x00" + tt.request) // pipelined: nobody waits for the method
			if b, err := c.r.ReadByte(); err != nil || b != 5 {
				t.Fatal(b, err)
			}
			if b, err := c.r.ReadByte(); err != nil || b != 0 {
				t.Fatal(b, err)
			}
			if got := c.reply(); got != tt.reply {
				t.Errorf("reply %d, want %d", got, tt.reply)
			}
			if r := w.lastRecord(); r.Code != tt.code || r.Protocol != "socks5" {
				t.Errorf("%+v", r)
			}
			if tt.reply != 0 {
				c.CloseWrite()
				if rest := c.rest(); rest != "" {
					t.Errorf("then %x", rest)
				}
				return
			}
			c.send("\x00bytes").CloseWrite()
			if got := c.rest(); got != "\x00bytes" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestSOCKSHint: a client that resolves names itself is told so in the record.
func TestSOCKSHint(t *testing.T) {
	w := newWorld(t, allowNames)
	c := w.dial().send("\x05\x01\x00" + socksAddr("192.0.2.1", 443))
	c.rest()
	if r := w.lastRecord(); !strings.Contains(r.Cause, "socks5h") {
		t.Errorf("%+v", r)
	}
}

// TestSOCKSGreeting: what is no greeting, or stops inside one, ends without a tunnel.
func TestSOCKSGreeting(t *testing.T) {
	for _, tt := range []struct{ sent, want string }{
		{"\x05\x00", "\x05\xff"},
		{"\x05\x01\x01", "\x05\xff"},
		{"\x05\x02\x00\x02", "\x05\x00"},
		{"\x05\x01\x02\x01\x01u\x01p", "\x05\x02\x01\x00"},
		{"\x05\x01\x02\x02\x01u\x01p", "\x05\x02"},
		{"\x05", ""},
		{"\x05\x05\x00", ""},
		{"\x05\x01\x00\x04\x01\x00\x01", "\x05\x00"},
		{"\x05\x01\x00\x05\x01\x00\x03\xff", "\x05\x00"},
	} {
		w := newWorld(t, allowNames)
		c := w.dial().send(tt.sent)
		c.CloseWrite()
		if got := c.rest(); got != tt.want {
			t.Errorf("%x: %x, want %x", tt.sent, got, tt.want)
		}
		w.srv.init()
		if r := w.lastRecord(); r.Judged || r.Outcome != outcomeRefused {
			t.Errorf("%x: %+v", tt.sent, r)
		}
	}
}

// TestSOCKSSlow: the greeting has the time of a head (DOS-01).
func TestSOCKSSlow(t *testing.T) {
	w := newWorld(t, allowNames, withLimits(Limits{HeadTimeout: 50 * time.Millisecond}))
	c := w.dial().send("\x05\x01")
	begun := time.Now()
	c.rest()
	if time.Since(begun) > 5*time.Second {
		t.Error("it was waited for")
	}
}

// TestSOCKSIdentity: where tokens are configured the method with a password is chosen whenever it is offered.
func TestSOCKSIdentity(t *testing.T) {
	const rules = `rules:
  - match: { network: { domains: ["=allowed.test"], ips: ["127.0.0.1"] }, agents: [deployers] }
    action: allow
    reason: deploys
`
	book, err := identity.NewBook(identity.Config{Local: []string{"test"}, Tokens: []identity.Token{{Grant: identity.Grant{Name: "ci", Agents: []string{"deployers"}}, Token: "0123456789abcdef"}}})
	if err != nil {
		t.Fatal(err)
	}
	o := echo(t)
	login := func(user, password string) string {
		return fmt.Sprintf("\x01%c%s%c%s", len(user), user, len(password), password)
	}
	for _, tt := range []struct {
		name, sent, want string
		code             netrule.Code
	}{
		{"right", "\x05\x02\x00\x02" + login("ci", "0123456789abcdef") + socksName("allowed.test", o.port), "\x05\x02\x01\x00" + string(granted), netrule.CodeAllowedByRule},
		{"wrong", "\x05\x01\x02" + login("ci", "0123456789abcdeX") + socksName("allowed.test", o.port), "\x05\x02\x01\x01", netrule.CodeAuthRequired},
		{"another name", "\x05\x01\x02" + login("cj", "0123456789abcdef") + socksName("allowed.test", o.port), "\x05\x02\x01\x01", netrule.CodeAuthRequired},
		{"not offered", "\x05\x01\x00" + socksName("allowed.test", o.port), "\x05\x00" + string(socksReply(netrule.CodeAuthRequired)), netrule.CodeAuthRequired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, rules)
			w.name("allowed.test", "127.0.0.1")
			w.srv.Book = func() *identity.Book { return book }
			c := w.dial().send(tt.sent)
			c.CloseWrite()
			if got := c.rest(); got != tt.want {
				t.Errorf("%x, want %x", got, tt.want)
			}
			r := w.lastRecord()
			if r.Code != tt.code {
				t.Errorf("%+v", r)
			}
			if tt.code == netrule.CodeAllowedByRule && (r.Identity != "ci" || r.Client != "token:ci") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestProtocols: a listener may leave a protocol out.
func TestProtocols(t *testing.T) {
	for _, tt := range []struct {
		l          Listener
		sent, want string
	}{
		{Listener{NoSOCKS: true}, "\x05\x01\x00", "\x05\xff"},
		{Listener{NoHTTP: true}, "GET http://allowed.test/ HTTP/1.1\r\n\r\n", ""},
	} {
		w := newWorld(t, allowNames)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tt.l.Listener, tt.l.Name = l, "test"
		done := make(chan error, 1)
		go func() { done <- w.srv.Serve(tt.l) }()
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := &testConn{nc.(*net.TCPConn), t, bufio.NewReader(nc), &w.mu}
		c.send(tt.sent).CloseWrite()
		if got := c.rest(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.sent, got, tt.want)
		}
		nc.Close()
		l.Close()
		<-done
	}
}
