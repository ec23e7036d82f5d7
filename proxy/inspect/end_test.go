package inspect

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy"

	"golang.org/x/net/http2"
)

func TestOriginFails(t *testing.T) {
	refusing := func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	for _, test := range []struct {
		name   string
		change func(*world)
		option worldOption
		status int
		code   netrule.Code
		error  string
	}{
		{
			"unknown root", nil, func(o *Options, _ *tls.Config) { o.Roots = x509.NewCertPool() },
			502, netrule.CodeConnectionTerminated, "tls_certificate_error",
		},
		{"another name", nil, func(o *Options, c *tls.Config) {
			c.Certificates[0], o.Roots = originCert(t, "other.test")
		}, 502, netrule.CodeConnectionTerminated, "tls_certificate_error"},
		{"refused", func(w *world) { w.dial = refusing }, nil, 502, netrule.CodeConnectionRefused, "connection_refused"},
		{"no dial", func(w *world) {
			w.dial = func(context.Context) (net.Conn, error) { return nil, errors.New("no") }
		}, nil, 502, netrule.CodeConnectionTerminated, "connection_terminated"},
		{"no TLS", func(w *world) {
			w.dial = func(context.Context) (net.Conn, error) {
				a, b := net.Pipe()
				go func() {
					_, _ = b.Read(make([]byte, 64<<10))
					_, _ = io.WriteString(b, "HTTP/1.1 200 OK\r\n\r\n")
					b.Close()
				}()
				return a, nil
			}
		}, nil, 502, netrule.CodeConnectionTerminated, "tls_protocol_error"},
		{"slow dial", func(w *world) {
			w.dial = func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		}, withLimits(Limits{Answer: 10 * time.Millisecond}), 504, netrule.CodeConnectionTimeout, "connection_timeout"},
		{"slow handshake", func(w *world) {
			w.dial = func(context.Context) (net.Conn, error) {
				a, b := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, b); b.Close() }()
				return a, nil
			}
		}, withLimits(Limits{Answer: 10 * time.Millisecond}), 504, netrule.CodeConnectionTimeout, "connection_timeout"},
		{
			"slow answer", nil, withLimits(Limits{ResponseHead: 10 * time.Millisecond}),
			504, netrule.CodeResponseTimeout, "http_response_timeout",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for version := 1; version <= 2; version++ {
				w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(o *Options, c *tls.Config) {
					if test.option != nil {
						test.option(o, c)
					}
				})
				if test.change != nil {
					test.change(w)
				}
				resp, body := w.get(w.client(version), "/p?q")
				if resp.StatusCode != test.status || resp.Header.Get("X-Dshproxy-Code") != test.code.String() {
					t.Errorf("got %d %v", resp.StatusCode, resp.Header)
				}
				if want := "dshproxy; error=" + test.error + `; details="` + test.code.String() + `"`; resp.Header.Get("Proxy-Status") != want {
					t.Errorf("Proxy-Status is %q, want %q", resp.Header.Get("Proxy-Status"), want)
				}
				inert(t, body, "# [network: error] the target")
				want := proxy.InnerRequest{Method: "GET", Host: host, Path: "/p", Status: test.status, Code: test.code}
				if got := w.one(); got != want {
					t.Errorf("told of %v, want %v", got, want)
				}
			}
		})
	}
}

func TestPanic(t *testing.T) {
	for version := 1; version <= 2; version++ {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
		allow := w.judge
		w.judge = func(string, uint16) (netrule.Code, bool) { panic("judge") }
		resp, body := w.get(w.client(version), "/")
		if resp.StatusCode != 500 || resp.Header.Get("X-Dshproxy-Code") != "internal_error" {
			t.Errorf("got %d %v", resp.StatusCode, resp.Header)
		}
		inert(t, body, "# [network: error] internal error\n")
		if got := w.one(); got.Status != 500 || got.Code != netrule.CodeInternalError {
			t.Errorf("told of %v", got)
		}
		w.mu.Lock()
		w.judge, w.told = allow, func(proxy.InnerRequest) { panic("told") }
		w.mu.Unlock()
		if resp, _ := w.get(w.client(version), "/"); resp.StatusCode != 500 {
			t.Errorf("got %d", resp.StatusCode)
		}
		w.mu.Lock()
		w.told = nil
		w.mu.Unlock()
		if resp, _ := w.get(w.client(version), "/"); resp.StatusCode != 200 {
			t.Errorf("afterwards: %d", resp.StatusCode)
		}
		if !strings.Contains(w.log.String(), `msg="internal error" panic=judge`) {
			t.Errorf("the log has no panic: %s", w.log)
		}
	}
}

func TestHandshakeStops(t *testing.T) {
	w := newWorld(t, nil, withLimits(Limits{HeadTimeout: 20 * time.Millisecond}))
	for name, bytes := range map[string]string{
		"silence": "", "half a record": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "no TLS": "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"huge record": "\x16\x03\x01\xff\xff" + strings.Repeat("\x00", 100),
	} {
		t.Run(name, func(t *testing.T) {
			c, over := w.tunnelWith(t.Context())
			_, _ = io.WriteString(c, bytes)
			<-over
			_, _ = io.Copy(io.Discard, c) // ends, for the other side is closed
		})
	}
	t.Run("distrust", func(t *testing.T) {
		w := newWorld(t, nil)
		c, over := w.tunnelWith(t.Context())
		tc := tls.Client(c, &tls.Config{ServerName: host, RootCAs: x509.NewCertPool()})
		if err := tc.Handshake(); err == nil {
			t.Error("the client trusts a CA that it does not know")
		}
		tc.Close()
		<-over
		if !strings.Contains(w.log.String(), "a client does not trust the inspection CA") {
			t.Errorf("the log says %s", w.log)
		}
	})
}

func TestSlowHead(t *testing.T) {
	w := newWorld(t, nil, withLimits(Limits{HeadTimeout: 50 * time.Millisecond}))
	c, over := w.tunnelWith(t.Context())
	tc := tls.Client(c, w.trust("http/1.1"))
	_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHo")
	<-over
}

func TestIdle(t *testing.T) {
	for version := 1; version <= 2; version++ {
		entered := make(chan struct{}, 1)
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-r.Context().Done() }, withLimits(Limits{Idle: 700 * time.Millisecond}))
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := w.client(version).Do(r); err == nil {
			resp.Body.Close()
			t.Errorf("got %d, want the end", resp.StatusCode)
		}
		select {
		case <-entered:
		default:
			t.Error("the request never reached the origin")
		}
	}
}

func TestEnd(t *testing.T) {
	for _, state := range []string{"handshake", "quiet", "request", "stream", "websocket", "dial"} {
		t.Run(state+", context", func(t *testing.T) { endIn(t, state, false) })
		t.Run(state+", client", func(t *testing.T) { endIn(t, state, true) })
	}
}

func endIn(t *testing.T, state string, byClient bool) {
	t.Helper()
	entered := make(chan struct{}, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch state {
		case "stream":
			rw.(http.Flusher).Flush()
		case "websocket":
			entered <- struct{}{}
			webSocket(rw, r)
			return
		}
		entered <- struct{}{}
		<-r.Context().Done()
	}, onlyHTTP1, withLimits(Limits{Answer: time.Hour}))
	if state == "dial" {
		w.dial = func(ctx context.Context) (net.Conn, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, over := w.tunnelWith(ctx)
	tc := tls.Client(c, w.trust("http/1.1"))
	switch state {
	case "handshake":
	case "quiet":
		if err := tc.Handshake(); err != nil {
			t.Fatal(err)
		}
	default:
		_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-entered
		if state == "websocket" {
			if resp, err := http.ReadResponse(bufio.NewReader(tc), nil); err != nil || resp.StatusCode != 101 {
				t.Fatal(err)
			}
		}
	}
	defer cancel()
	if byClient {
		c.Close()
		<-over
		return
	}
	cancel()
	<-over
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func TestReturnsLast(t *testing.T) {
	for _, version := range []string{"http/1.1", "h2"} {
		w := newWorld(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		c, over := w.tunnelWith(ctx)
		returned := make(chan struct{})
		w.judge = func(string, uint16) (netrule.Code, bool) {
			cancel()
			_, _ = io.Copy(io.Discard, c) // until the tunnel has closed its side
			for range 1000 {
				runtime.Gosched()
				select {
				case <-over:
					t.Errorf("%s: Inspect has returned before the request", version)
					close(returned)
					return netrule.CodeDeniedByRule, false
				default:
				}
			}
			close(returned)
			return netrule.CodeDeniedByRule, false
		}
		tc := tls.Client(c, w.trust(version))
		if version == "h2" {
			_, _ = io.WriteString(tc, http2.ClientPreface)
			f := http2.NewFramer(tc, nil)
			_ = f.WriteSettings()
			// The static table's :method GET, :path /, :scheme https, and :authority as a literal.
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x84\x87\x41\x08api.test"), EndStream: true, EndHeaders: true})
		} else {
			_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
		}
		<-returned
		<-over
	}
}
