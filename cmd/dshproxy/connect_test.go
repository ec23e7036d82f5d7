package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fakeProxy serves one connection on an address and gives its URL. What serve gets has read the request.
func fakeProxy(t *testing.T, network, address string, serve func(*testing.T, net.Conn, *http.Request)) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Errorf("the proxy cannot read the request: %v", err)
			return
		}
		serve(t, c, r)
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	if network == "unix" {
		return "unix:" + address
	}
	return "http://" + l.Addr().String()
}

// tunnelTo makes the client side, as the command does.
func tunnelTo(t *testing.T, url string) *clientTunnel {
	t.Helper()
	p, err := parseProxyAddr(url)
	if err != nil {
		t.Fatal(err)
	}
	target, err := connectTarget("host.test", "22")
	if err != nil {
		t.Fatal(err)
	}
	return &clientTunnel{proxy: p, target: target, timeout: 20 * time.Second, halfClosed: 20 * time.Second}
}

// TestConnectHalfCloses: each side may end its own direction first, and the other goes on. Bytes that come with the
// answer's head are the target's first.
func TestConnectHalfCloses(t *testing.T) {
	for _, first := range []string{"client", "target"} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(first+" ends first on "+network, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				address := "127.0.0.1:0"
				if network == "unix" {
					address = filepath.Join(t.TempDir(), "s")
				}
				targetEnded := make(chan struct{})
				url := fakeProxy(t, network, address, func(t *testing.T, c net.Conn, r *http.Request) {
					if r.Method != http.MethodConnect || r.RequestURI != "host.test:22" || r.Host != "host.test:22" {
						t.Errorf("got %s %s for %s", r.Method, r.RequestURI, r.Host)
					}
					// A length says nothing here, and an interim answer is none.
					io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nearly bytes\n")
					if first == "target" {
						io.WriteString(c, "end of target\n")
						c.(halfCloser).CloseWrite()
						close(targetEnded)
					}
					text, err := io.ReadAll(c)
					if string(text) != "hello\nend of client\n" || err != nil {
						t.Errorf("the target got %q, %v", text, err)
					}
					if first == "client" {
						io.WriteString(c, "end of target\n")
						close(targetEnded)
					}
				})
				in, typed := io.Pipe()
				printed, out := io.Pipe()
				done := make(chan error, 1)
				go func() {
					defer out.Close()
					done <- tunnelTo(t, url).run(t.Context(), stdio{in, out, io.Discard})
				}()
				io.WriteString(typed, "hello\n")
				if first == "client" {
					io.WriteString(typed, "end of client\n")
					typed.Close()
					<-targetEnded
				}
				text, err := io.ReadAll(printed) // ends although stdin is still open
				if string(text) != "early bytes\nend of target\n" || err != nil {
					t.Errorf("stdout got %q, %v", text, err)
				}
				if first == "target" {
					io.WriteString(typed, "end of client\n")
					typed.Close()
				}
				if err := <-done; err != nil {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestConnectWaitsForStdinNoLongerThanItMust: stdin that never ends does not keep the command for ever.
func TestConnectWaitsForStdinNoLongerThanItMust(t *testing.T) {
	url := fakeProxy(t, "tcp", "127.0.0.1:0", func(_ *testing.T, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	in, typed := io.Pipe()
	defer typed.Close()
	tunnel := tunnelTo(t, url)
	tunnel.halfClosed = time.Millisecond
	if err := tunnel.run(t.Context(), stdio{in, io.Discard, io.Discard}); err != nil {
		t.Errorf("got %v", err)
	}
}

// countedReader counts reads.
type countedReader struct {
	io.Reader
	reads atomic.Int32
}

func (r *countedReader) Read(p []byte) (int, error) {
	r.reads.Add(1)
	return r.Reader.Read(p)
}

// TestConnectReadsNothingBeforeSuccess: what is typed must not be lost to, or told to, a proxy that refuses.
func TestConnectReadsNothingBeforeSuccess(t *testing.T) {
	in := &countedReader{Reader: strings.NewReader("secret\n")}
	before := int32(-1)
	url := fakeProxy(t, "tcp", "127.0.0.1:0", func(t *testing.T, c net.Conn, _ *http.Request) {
		before = in.reads.Load()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		if text, err := io.ReadAll(c); string(text) != "secret\n" || err != nil {
			t.Errorf("the target got %q, %v", text, err)
		}
	})
	if err := tunnelTo(t, url).run(t.Context(), stdio{in, io.Discard, io.Discard}); err != nil || before != 0 || in.reads.Load() == 0 {
		t.Errorf("got %v, %d reads before the answer and %d in all", err, before, in.reads.Load())
	}
	in = &countedReader{Reader: strings.NewReader("secret\n")}
	url = fakeProxy(t, "tcp", "127.0.0.1:0", func(_ *testing.T, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	})
	if err := tunnelTo(t, url).run(t.Context(), stdio{in, io.Discard, io.Discard}); err == nil || in.reads.Load() != 0 {
		t.Errorf("got %v, %d reads", err, in.reads.Load())
	}
}

// TestConnectAnswers: every answer but success ends the command, with the proxy's own words made harmless.
func TestConnectAnswers(t *testing.T) {
	long := strings.Repeat("x", maxAnswerBody)
	for _, c := range []struct {
		name, answer string
		code         int
		prints, says string
	}{
		{
			"denied", "HTTP/1.1 403 Forbidden by dshproxy: no rule allows host.test:22\r\nContent-Length: 27\r\n\r\n# first line\r\n# second line", exitDeny,
			"# first line\n# second line\n", "the proxy answers 403 Forbidden by dshproxy: no rule allows host.test:22",
		},
		{"no body", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", exitDeny, "", "403"},
		{"chunked", "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", exitDeny, "abc\n", "403"},
		{"cut", "HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n# as far as it came", exitDeny, "# as far as it came\n", "403"},
		{"controls", "HTTP/1.1 403 \x1b]0;owned\x07\r\n\r\n\x1b[2J\u202e\x9b\x00", exitDeny, `\x1b[2J\u202e\x9b\x00` + "\n", `403 \x1b]0;owned\x07`},
		{"endless", "HTTP/1.1 403 Forbidden\r\n\r\n" + long + long, exitDeny, long + "\n", "403"},
		{"credentials", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", exitFailure, "", "407"},
		{"network", "HTTP/1.1 502 Bad Gateway\r\n\r\nno such name\n", exitFailure, "no such name\n", "502"},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://other.test/\r\n\r\n", exitFailure, "", "302"},
		{"unasked upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", exitFailure, "", "101"},
		{"silence", "", exitFailure, "", "closed the connection without an answer"},
		{"half a head", "HTTP/1.1 200 OK\r\nX: y", exitFailure, "", "closed the connection without an answer"},
		{"no HTTP", "SSH-2.0-OpenSSH\x1b[2J\r\n", exitFailure, "", `malformed HTTP`},
		{"head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxAnswerHead), exitFailure, "", "an answer's head of over"},
		{"interims without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxAnswerHead/10), exitFailure, "", "an answer's head of over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := fakeProxy(t, "tcp", "127.0.0.1:0", func(_ *testing.T, conn net.Conn, _ *http.Request) {
				io.WriteString(conn, c.answer)
			})
			var errs strings.Builder
			err := tunnelTo(t, url).run(t.Context(), stdio{strings.NewReader("x"), io.Discard, &errs})
			var ee *exitError
			if !errors.As(err, &ee) || ee.code != c.code || !strings.Contains(err.Error(), c.says) || strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("got %q, want code %d and %q in it", err, c.code, c.says)
			}
			if errs.String() != c.prints {
				t.Errorf("printed %.200q, want %.200q", errs.String(), c.prints)
			}
		})
	}
}

// TestConnectTimesOut: a proxy that says nothing, or speaks for ever, is given up.
func TestConnectTimesOut(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	url := fakeProxy(t, "tcp", "127.0.0.1:0", func(_ *testing.T, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		<-release
	})
	tunnel := tunnelTo(t, url)
	tunnel.timeout = 500 * time.Millisecond
	err := tunnel.run(t.Context(), stdio{strings.NewReader(""), io.Discard, io.Discard})
	if err == nil || !strings.Contains(err.Error(), "no answer within 500ms") {
		t.Errorf("got %v", err)
	}
}

// TestConnectReset: a connection that breaks is no success.
func TestConnectReset(t *testing.T) {
	url := fakeProxy(t, "tcp", "127.0.0.1:0", func(_ *testing.T, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		c.(*net.TCPConn).SetLinger(0)
	})
	in, typed := io.Pipe()
	defer typed.Close()
	if err := tunnelTo(t, url).run(t.Context(), stdio{in, io.Discard, io.Discard}); err == nil {
		t.Error("ends well")
	}
}

// TestConnectThroughTLS: an https proxy is verified, and gets the token.
func TestConnectThroughTLS(t *testing.T) {
	var credentials atomic.Value
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials.Store(r.Header.Get("Proxy-Authorization"))
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		text, err := io.ReadAll(rw) // ends by the client's close_notify
		io.WriteString(c, "got "+string(text))
		if err != nil {
			t.Error(err)
		}
	}))
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells that the client did not trust it
	proxy.StartTLS()
	defer proxy.Close()
	tunnel := tunnelTo(t, proxy.URL)
	err := tunnel.run(t.Context(), stdio{strings.NewReader(""), io.Discard, io.Discard})
	if err == nil || !strings.Contains(err.Error(), "TLS: ") || credentials.Load() != nil {
		t.Errorf("an unknown authority: got %v, and the proxy %v", err, credentials.Load())
	}
	tunnel.roots = proxy.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	tunnel.token = &proxyToken{"ci", "s3:cret"}
	var out strings.Builder
	if err := tunnel.run(t.Context(), stdio{strings.NewReader("hello"), &out, io.Discard}); err != nil || out.String() != "got hello" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if got := credentials.Load(); got != "Basic Y2k6czM6Y3JldA==" {
		t.Errorf("credentials %v", got)
	}
}

// TestConnectArguments: what netrule does not take as a host and a port reaches no proxy.
func TestConnectArguments(t *testing.T) {
	for _, c := range []struct{ host, port, want string }{
		{"Host.Test.", "22", "host.test:22"},
		{"192.0.2.1", "22", "192.0.2.1:22"},
		{"2001:DB8::1", "22", "[2001:db8::1]:22"},
		{"[2001:db8::1]", "22", "[2001:db8::1]:22"},
		{"fe80::1%eth0", "22", ""},
		{"host.test", "0", ""},
		{"host.test", "ssh", ""},
		{"host.test", "65536", ""},
		{"host.test:22", "22", ""},
		{"a\r\nX: y", "22", ""},
		{"$(id).test", "22", ""},
		{"127.1", "22", ""},
		{"", "22", ""},
	} {
		got, err := connectTarget(c.host, c.port)
		if (err == nil) != (c.want != "") || err == nil && got.Authority() != c.want {
			t.Errorf("%q %q: got %s, %v", c.host, c.port, got.Authority(), err)
		}
		if c.want != "" {
			continue
		}
		var out strings.Builder
		code := run(context.Background(), []string{"connect", "--proxy", "127.0.0.1:1", "--", c.host, c.port}, stdio{strings.NewReader(""), &out, &out})
		if code != exitUsage || !strings.Contains(out.String(), "hint: give a name or an address, and a port") {
			t.Errorf("%q %q ends with %d: %s", c.host, c.port, code, out.String())
		}
	}
}
