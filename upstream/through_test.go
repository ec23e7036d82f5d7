package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"dshproxy/resolve"
)

func dialer() *Dialer { return &Dialer{Check: allow} }

// TestConnect: what a parent is asked, for names and for adjudicated addresses (UPS-11, UPS-15, DNS-31), and that the
// connection is a bare one that outlives the context of the dial.
func TestConnect(t *testing.T) {
	heads := make(chan string, 1)
	p := mustParent(t, "http://ann:sesame@"+fake(t, answering(heads, "HTTP/1.1 200 Connection Established\r\n\r\n")))
	for _, tc := range []struct {
		dest Destination
		want string
		addr string
	}{
		{Named(p, "a.test", 443), "a.test:443", ""},
		{Named(p, "2001:db8::1", 443), "[2001:db8::1]:443", ""},
		{Through(p, pin(8443, "192.0.2.1")), "192.0.2.1:8443", "192.0.2.1:8443"},
		{Through(p, pin(443, "2001:db8::1", "192.0.2.1")), "[2001:db8::1]:443", "[2001:db8::1]:443"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		c, early, addr, err := dialer().DialThrough(ctx, tc.dest, "1.1 us-1")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		want := "CONNECT " + tc.want + " HTTP/1.1\r\nHost: " + tc.want + "\r\nVia: 1.1 us-1\r\nProxy-Authorization: Basic YW5uOnNlc2FtZQ==\r\n\r\n"
		if head := <-heads; head != want {
			t.Errorf("got %q, want %q", head, want)
		}
		if addr.IsValid() != (tc.addr != "") || tc.addr != "" && addr.String() != tc.addr || len(early) != 0 {
			t.Errorf("%s: addr %v, early %q", tc.want, addr, early)
		}
		if _, bare := c.(*net.TCPConn); !bare {
			t.Errorf("a %T", c)
		}
		echoes(t, c)
		c.Close()
	}
}

// TestConnectWithoutExtras: no credentials and no pseudonym leave no fields.
func TestConnectWithoutExtras(t *testing.T) {
	heads := make(chan string, 1)
	p := mustParent(t, "http://"+fake(t, answering(heads, "HTTP/1.0 200\r\n\r\n")))
	c, _, _, err := (&Dialer{Check: allow}).DialThrough(t.Context(), Named(p, "a.test", 1), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if head := <-heads; head != "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test:1\r\n\r\n" {
		t.Errorf("%q", head)
	}
}

// TestEarlyBytes: what comes in one segment with the answer is kept, whatever lengths it claims to have (UPS-07,
// UPS-08), and interim responses are skipped.
func TestEarlyBytes(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.0 299 \r\nX: a\r\n b\r\n\r\n",
		"HTTP/1.1 200 OK\nX: a\n\n",
	} {
		p := mustParent(t, "http://"+fake(t, answering(nil, answer+"hello\r\n\r\n")))
		c, early, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 1), "1.1 us-1")
		if err != nil {
			t.Errorf("%q: %v", answer, err)
			continue
		}
		// How much is early depends on segments; that nothing is lost does not.
		rest := make([]byte, len("hello\r\n\r\n")-len(early))
		if _, err := io.ReadFull(c, rest); err != nil || string(early)+string(rest) != "hello\r\n\r\n" {
			t.Errorf("%q: early %q, then %q, %v", answer, early, rest, err)
		}
		echoes(t, c)
		c.Close()
	}
}

// TestHostileAnswers: an answer that is not exactly a 2xx of HTTP/1 is an error of its own, and the connection is closed
// (UPS-02, UPS-06, UPS-09, CON-03).
func TestHostileAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		status       int
		want         error
	}{
		{"UPS-02 407", "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=evil\r\nContent-Length: 0\r\n\r\n", 407, nil},
		{"CON-03 502", "HTTP/1.1 502 Bad Gateway\r\n\r\n", 502, nil},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://evil/\r\n\r\n", 302, nil},
		{"unasked upgrade", "HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 101, nil},
		{"UPS-09 four digits", "HTTP/1.1 2000\r\n\r\n", 0, errAnswerStatus},
		{"UPS-09 four digits and phrase", "HTTP/1.1 2000 OK\r\n\r\n", 0, errAnswerStatus},
		{"UPS-09 two digits", "HTTP/1.1 20\r\n\r\n", 0, errAnswerStatus},
		{"UPS-09 two digits and phrase", "HTTP/1.1 20 OK\r\n\r\n", 0, errAnswerStatus},
		{"UPS-09 HTTP/2", "HTTP/2 200\r\n\r\n", 0, errAnswerStatus},
		{"HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n", 0, errAnswerStatus},
		{"HTTP/1.10", "HTTP/1.10 200 OK\r\n\r\n", 0, errAnswerStatus},
		{"lower case", "http/1.1 200 OK\r\n\r\n", 0, errAnswerStatus},
		{"two spaces", "HTTP/1.1  200 OK\r\n\r\n", 0, errAnswerStatus},
		{"signed", "HTTP/1.1 +20 OK\r\n\r\n", 0, errAnswerStatus},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", 0, errAnswerStatus},
		{"status 600", "HTTP/1.1 600 x\r\n\r\n", 600, nil},
		{"empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", 0, errAnswerStatus},
		{"no HTTP", "SSH-2.0-OpenSSH\r\n", 0, errAnswerStatus},
		{"bare CR", "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", 0, errAnswerField},
		{"NUL", "HTTP/1.1 200 O\x00K\r\n\r\n", 0, errAnswerField},
		{"no field", "HTTP/1.1 200 OK\r\nX\r\n\r\n", 0, errAnswerField},
		{"nameless field", "HTTP/1.1 200 OK\r\n: x\r\n\r\n", 0, errAnswerField},
		{"fold of nothing", "HTTP/1.1 200 OK\r\n x: y\r\n\r\n", 0, errAnswerField},
		{"1xx flood", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000), 0, errInterim},
		{"UPS-06 endless field", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", maxAnswer), 0, errAnswerSize},
		{"UPS-06 endless fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: a\r\n", maxAnswer/6), 0, errAnswerSize},
		{"UPS-06 endless line", strings.Repeat("a", maxAnswer+1), 0, errAnswerSize},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan string, 1)
			p := mustParent(t, "http://ann:sesame@"+fake(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				readHead(r)
				_, _ = io.WriteString(c, tc.answer)
				rest, _ := io.ReadAll(r) // ends because the dialer closes
				got <- string(rest)
			}))
			c, early, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 443), "1.1 us-1")
			if err == nil {
				t.Fatalf("got %v, early %q", c, early)
			}
			asParentError(t, err, OpConnect, tc.status)
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if strings.Contains(err.Error(), "evil") {
				t.Errorf("the error has words of the parent: %v", err)
			}
			if rest := <-got; rest != "" {
				t.Errorf("sent behind the request: %q", rest)
			}
		})
	}
}

// TestPieces: an answer that comes byte by byte is read alike.
func TestPieces(t *testing.T) {
	answer := strings.Split("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\n\r\nhello", "")
	p := mustParent(t, "http://"+fake(t, answering(nil, answer...)))
	c, early, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 1), "1.1 us-1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rest := make([]byte, len("hello")-len(early))
	if _, err := io.ReadFull(c, rest); err != nil || string(early)+string(rest) != "hello" {
		t.Errorf("%q %q %v", early, rest, err)
	}
}

// TestSilence: a parent that says nothing, or a part only, is given up when the context ends (UPS-06), in every step.
func TestSilence(t *testing.T) {
	for _, tc := range []struct{ name, scheme, said, op string }{
		{"nothing", "http", "", OpConnect},
		{"a part", "http", "HTTP/1.1 200 OK\r\nX", OpConnect},
		{"no hello", "https", "", OpTLS},
		{"no method", "socks5", "", OpSOCKS},
		{"no reply", "socks5", "\x05\x00\x05", OpSOCKS},
	} {
		for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
			t.Run(tc.name+" "+end.Error(), func(t *testing.T) {
				read := make(chan struct{})
				closed := make(chan struct{})
				p := mustParent(t, tc.scheme+"://"+fake(t, func(c net.Conn) {
					_, _ = c.Read(make([]byte, 1))
					_, _ = io.WriteString(c, tc.said)
					close(read)
					_, _ = io.Copy(io.Discard, c)
					close(closed)
				}))
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if errors.Is(end, context.Canceled) {
					ctx, cancel = context.WithCancel(t.Context())
					go func() { <-read; cancel() }()
				}
				_, _, _, err := dialer().DialThrough(ctx, Named(p, "a.test", 1), "1.1 us-1")
				asParentError(t, err, tc.op, 0)
				if !errors.Is(err, end) {
					t.Errorf("got %v, want %v", err, end)
				}
				<-closed
			})
		}
	}
}

// TestReset: a parent that resets, or ends, is an error of the step.
func TestReset(t *testing.T) {
	for _, reset := range []bool{false, true} {
		p := mustParent(t, "http://"+fake(t, func(c net.Conn) {
			readHead(bufio.NewReader(c))
			if _, _ = io.WriteString(c, "HTTP/1.1 2"); reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
		}))
		_, _, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 1), "1.1 us-1")
		asParentError(t, err, OpConnect, 0)
		if want := map[bool]error{false: errAnswerEnd, true: syscall.ECONNRESET}[reset]; !errors.Is(err, want) {
			t.Errorf("reset %v: %v", reset, err)
		}
	}
}

// TestNeverDirect: a target that would answer is not reached when its parent is dead, refuses, or is none.
func TestNeverDirect(t *testing.T) {
	reached := make(chan struct{}, 10)
	target := netip.MustParseAddrPort(fake(t, func(net.Conn) { reached <- struct{}{} }))
	dead := mustParent(t, "http://127.0.0.9:"+itoa(target.Port()))
	refusing := mustParent(t, "http://"+fake(t, answering(nil, "HTTP/1.1 502 x\r\n\r\n")))
	for _, p := range []*Parent{dead, refusing, nil} {
		for _, dest := range []Destination{Named(p, "127.0.0.1", target.Port()), Through(p, pin(target.Port(), "127.0.0.1"))} {
			c, _, _, err := dialer().DialThrough(t.Context(), dest, "1.1 us-1")
			if err == nil {
				t.Fatalf("%v: reached %v", p, c.RemoteAddr())
			}
			if p == dead && !errors.Is(err, syscall.ECONNREFUSED) || p == nil && !errors.Is(err, errNoParent) {
				t.Errorf("%v: %v", p, err)
			}
			if _, _, err := dialer().Dial(t.Context(), dest); !errors.Is(err, ErrChained) {
				t.Errorf("Dial of a chained destination: %v", err)
			}
		}
	}
	if len(reached) != 0 {
		t.Error("the target was dialled")
	}
}

func TestDialThroughRefuses(t *testing.T) {
	p := mustParent(t, "http://"+fake(t, func(net.Conn) { t.Error("the parent was dialled") }))
	for _, host := range []string{"", "A.test", "a.test.", "a b", "a\r\nX: y", "a:1", "[::1]", "fe80::1%eth0", "::1%25.example.com", "127.1", "a/b", strings.Repeat("a.", 127) + "b"} {
		_, _, _, err := dialer().DialThrough(t.Context(), Named(p, host, 443), "1.1 us-1")
		asParentError(t, err, OpTarget, 0)
	}
	_, _, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 0), "1.1 us-1")
	asParentError(t, err, OpTarget, 0)
	_, _, _, err = dialer().DialThrough(t.Context(), Direct(pin(443, "127.0.0.1")), "1.1 us-1")
	asParentError(t, err, OpTarget, 0)
	_, _, _, err = dialer().DialThrough(t.Context(), Through(p, resolve.Pinned{}), "1.1 us-1")
	if asParentError(t, err, OpTarget, 0); !errors.Is(err, ErrNoAddress) {
		t.Errorf("%v", err)
	}
	_, _, _, err = (&Dialer{}).DialThrough(t.Context(), Named(p, "a.test", 443), "1.1 us-1")
	if asParentError(t, err, OpDial, 0); !errors.Is(err, ErrNoCheck) {
		t.Errorf("%v", err)
	}
}

// TestParentIsChecked: the check is asked about the parent's own address and port and nothing else (UPS-16), and can
// refuse it.
func TestParentIsChecked(t *testing.T) {
	at := fake(t, answering(nil, "HTTP/1.1 200 OK\r\n\r\n"))
	p := mustParent(t, "http://"+at)
	var asked []string
	refused := errors.New("refused by the check")
	d := &Dialer{Check: func(a netip.AddrPort) error { asked = append(asked, a.String()); return refused }}
	_, _, _, err := d.DialThrough(t.Context(), Through(p, pin(1, "192.0.2.1")), "1.1 us-1")
	if asParentError(t, err, OpDial, 0); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if _, _, err := d.DialParent(t.Context(), p); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if got := strings.Join(asked, " "); got != at+" "+at {
		t.Errorf("asked about %s", got)
	}
}

// TestNextAddress: the next adjudicated address is asked for when the parent did not reach one, and only then.
func TestNextAddress(t *testing.T) {
	for _, tc := range []struct {
		refusal string
		op      string
		tries   int
	}{
		{"HTTP/1.1 502 x\r\n\r\n", OpConnect, 2},
		{"HTTP/1.1 504 x\r\n\r\n", OpConnect, 2},
		{"HTTP/1.1 407 x\r\n\r\n", OpConnect, 1},
		{"HTTP/1.1 403 x\r\n\r\n", OpConnect, 1},
		{"HTTP/2 502\r\n\r\n", OpConnect, 1},
	} {
		tries := make(chan string, 10)
		p := mustParent(t, "http://"+fake(t, func(c net.Conn) {
			head := readHead(bufio.NewReader(c))
			tries <- head
			answer := tc.refusal
			if strings.HasPrefix(head, "CONNECT 192.0.2.2:443 ") {
				answer = "HTTP/1.1 200 OK\r\n\r\n"
			}
			_, _ = io.WriteString(c, answer)
			_, _ = io.Copy(io.Discard, c)
		}))
		c, _, addr, err := dialer().DialThrough(t.Context(), Through(p, pin(443, "192.0.2.1", "192.0.2.2", "192.0.2.3")), "1.1 us-1")
		if len(tries) != tc.tries || (err == nil) != (tc.tries == 2) {
			t.Errorf("%q: %d tries, %v", tc.refusal, len(tries), err)
		}
		if err == nil {
			if addr.String() != "192.0.2.2:443" {
				t.Errorf("%v", addr)
			}
			c.Close()
		}
	}
	var n int
	tries := make(chan bool, 10)
	p := mustParent(t, "http://"+fake(t, func(c net.Conn) { tries <- true; answering(nil, "HTTP/1.1 502 x\r\n\r\n")(c) }))
	many := pin(443, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6")
	_, _, _, err := dialer().DialThrough(t.Context(), Through(p, many), "1.1 us-1")
	asParentError(t, err, OpConnect, 502)
	if n = len(tries); n != maxTargets {
		t.Errorf("%d tries", n)
	}
}

// TestTLSParent: an https parent is verified, against the system's roots or a pinned CA, whatever the hook says (UPS-14).
func TestTLSParent(t *testing.T) {
	roots, cert := authority(t, "127.0.0.1")
	otherRoots, otherCert := authority(t, "other.test")
	start := func(cert tls.Certificate, protocols ...string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols, MinVersion: tls.VersionTLS12})
		serveOn(t, l, answering(nil, "HTTP/1.1 200 OK\r\n\r\nhello"))
		return "https://ann:sesame@" + l.Addr().String()
	}
	for _, tc := range []struct {
		name, url string
		tls       *tls.Config
		good      bool
	}{
		{"pinned CA", start(cert), &tls.Config{RootCAs: roots}, true},
		{"another server name", start(otherCert), &tls.Config{RootCAs: otherRoots, ServerName: "other.test"}, true},
		{"offers HTTP/2 too", start(cert, "h2", "http/1.1"), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}, true},
		{"UPS-14 system roots", start(cert), nil, false},
		{"UPS-14 insecure", start(cert), &tls.Config{InsecureSkipVerify: true}, false},
		{"UPS-14 another CA", start(cert), &tls.Config{RootCAs: otherRoots}, false},
		{"UPS-14 another name", start(otherCert), &tls.Config{RootCAs: otherRoots}, false},
	} {
		p := mustParent(t, tc.url)
		p.TLS = tc.tls
		c, early, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 443), "1.1 us-1")
		if !tc.good {
			asParentError(t, err, OpTLS, 0)
			if strings.HasPrefix(tc.name, "UPS-14") {
				var unknown x509.UnknownAuthorityError
				var name x509.HostnameError
				if !errors.As(err, &unknown) && !errors.As(err, &name) {
					t.Errorf("%s: %v", tc.name, err)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if secure, bare := c.(*tls.Conn); !bare {
			t.Errorf("a %T", c)
		} else if got := secure.ConnectionState().NegotiatedProtocol; got != "" && got != "http/1.1" {
			t.Errorf("%s: speaks %s", tc.name, got)
		}
		got := make([]byte, len("hello")-len(early))
		if _, err := io.ReadFull(c, got); err != nil || string(early)+string(got) != "hello" {
			t.Errorf("%q %q %v", early, got, err)
		}
		echoes(t, c)
		c.Close()
		c, addr, err := dialer().DialParent(t.Context(), p)
		if err != nil || addr.String() != c.RemoteAddr().String() {
			t.Fatalf("%v %v", addr, err)
		}
		if _, bare := c.(*tls.Conn); !bare {
			t.Errorf("a %T", c)
		}
		c.Close()
	}
}

// TestPlainServerBehindTLS: a parent that answers a hello in clear is no parent, and the connection is closed.
func TestPlainServerBehindTLS(t *testing.T) {
	closed := make(chan struct{})
	p := mustParent(t, "https://"+fake(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
		close(closed)
	}))
	_, _, err := dialer().DialParent(t.Context(), p)
	asParentError(t, err, OpTLS, 0)
	<-closed
}

func TestDialParent(t *testing.T) {
	at := fake(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	ctx, cancel := context.WithCancel(t.Context())
	c, addr, err := dialer().DialParent(ctx, mustParent(t, "http://"+at))
	cancel()
	if err != nil || addr.String() != at {
		t.Fatalf("%v %v", addr, err)
	}
	if _, bare := c.(*net.TCPConn); !bare {
		t.Errorf("a %T", c)
	}
	echoes(t, c)
	c.Close()
	_, _, err = dialer().DialParent(t.Context(), mustParent(t, "socks5://"+at))
	asParentError(t, err, OpTarget, 0)
	_, _, err = dialer().DialParent(t.Context(), nil)
	asParentError(t, err, OpTarget, 0)
}

// TestParentAddrs: names of parents are looked up by the dialer's own lookup, which knows literals and localhost alone
// when there is none.
func TestParentAddrs(t *testing.T) {
	failed := errors.New("no such name")
	lookup := func(_ context.Context, name string) ([]netip.Addr, error) {
		switch name {
		case "proxy.corp":
			return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1"), netip.MustParseAddr("127.0.0.9")}, nil
		case "empty.corp":
			return nil, nil
		default:
			return nil, failed
		}
	}
	d := dialer()
	d.Lookup = lookup
	for _, tc := range []struct {
		parent string
		d      *Dialer
		want   string
		err    error
	}{
		{"http://proxy.corp:1", d, "127.0.0.1:1 127.0.0.9:1", nil},
		{"http://localhost:2", d, "127.0.0.1:2 [::1]:2", nil},
		{"http://10.0.0.5:3", d, "10.0.0.5:3", nil},
		{"http://10.0.0.5:3", dialer(), "10.0.0.5:3", nil},
		{"http://proxy.corp:1", dialer(), "", errNoLookup},
		{"http://gone.corp:1", d, "", failed},
		{"http://empty.corp:1", d, "", nil},
	} {
		addrs, err := tc.d.ParentAddrs(t.Context(), mustParent(t, tc.parent))
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %v, %v", tc.parent, addrs, err)
		}
		if err != nil {
			if asParentError(t, err, OpLookup, 0); tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("%s: %v", tc.parent, err)
			}
		}
	}
	at := netip.MustParseAddrPort(fake(t, answering(nil, "HTTP/1.1 200 OK\r\n\r\n")))
	c, _, _, err := d.DialThrough(t.Context(), Named(mustParent(t, "http://proxy.corp:"+itoa(at.Port())), "a.test", 1), "1.1 us-1")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// FuzzReadAnswer: an answer is read alike whole and byte by byte, and every byte of it is accounted for.
func FuzzReadAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\n\r\nearly", "HTTP/1.1 100 C\r\n\r\nHTTP/1.0 200\nX: y\n\n", "HTTP/1.1 2000\r\n\r\n", "HTTP/2 200\r\n\r\n",
		"HTTP/1.1 407 x\r\nProxy-Authenticate: Basic\r\n\r\nbody", "HTTP/1.1 101 x\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole := bytes.NewReader(data)
		status, early, err := readAnswer(whole)
		pieces := bytes.NewReader(data)
		status2, early2, err2 := readAnswer(oneByte{pieces})
		if status != status2 || !errors.Is(err, err2) || len(early2) != 0 {
			t.Fatalf("%q: %d %v whole, %d %v early %q in pieces", data, status, err, status2, err2, early2)
		}
		if err != nil {
			return
		}
		head := len(data) - pieces.Len()
		if !bytes.HasPrefix(data[head:], early) || head+len(early) != len(data)-whole.Len() {
			t.Fatalf("%q: the head is %d bytes and early is %q", data, head, early)
		}
		if status < 101 || status > 999 || head > maxAnswer || !bytes.HasPrefix(data, []byte("HTTP/1.")) || data[head-1] != '\n' {
			t.Fatalf("%q: status %d, head of %d bytes", data, status, head)
		}
	})
}

// oneByte reads a byte at a time.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(len(b), 1)]) }

func TestDestinationTells(t *testing.T) {
	p := mustParent(t, "http://proxy:1")
	addrs := pin(443, "192.0.2.1")
	for _, tc := range []struct {
		dest   Destination
		parent *Parent
		named  bool
		pinned int
	}{
		{Destination{}, nil, false, 0},
		{Direct(addrs), nil, false, 1},
		{Named(p, "a.test", 443), p, true, 0},
		{Through(p, addrs), p, false, 1},
	} {
		if tc.dest.Parent() != tc.parent || tc.dest.IsNamed() != tc.named || tc.dest.Pinned().Len() != tc.pinned {
			t.Errorf("%v %v %v, want %v", tc.dest.Parent(), tc.dest.IsNamed(), tc.dest.Pinned(), tc)
		}
	}
}

// TestParentErrorText: the text names parent, step and cause, and never a secret.
func TestParentErrorText(t *testing.T) {
	p := mustParent(t, "http://ann:sesame@"+fake(t, answering(nil, "HTTP/1.1 407 x\r\n\r\n")))
	_, _, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 1), "1.1 us-1")
	if want := "parent proxy " + p.String() + ": connect: refused with status 407, it wants other credentials"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := (&ParentError{Parent: "http://proxy:1", Op: OpConnect, Status: 502}).Error(); got != "parent proxy http://proxy:1: connect: refused with 502" {
		t.Error(got)
	}
}
