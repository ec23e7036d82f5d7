package inspect

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	host = "api.test"
	port = 443
)

// world is an engine, an origin for api.test, and tunnels between, all on loopback.
type world struct {
	t      testing.TB
	engine *Engine
	ca     *CA
	origin *httptest.Server
	log    *lockedBuffer
	opened atomic.Int64 // tunnels
	dials  atomic.Int64
	judged atomic.Int64

	mu       sync.Mutex
	judge    func(host string, port uint16) (netrule.Code, bool)
	dial     func(context.Context) (net.Conn, error)
	requests []proxy.InnerRequest
	told     func(proxy.InnerRequest)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type worldOption func(*Options, *tls.Config)

// newWorld starts an origin that serves both versions of HTTP with a certificate for api.test.
func newWorld(t testing.TB, handler http.HandlerFunc, options ...worldOption) *world {
	t.Helper()
	w := &world{t: t, log: &lockedBuffer{}}
	w.judge = func(string, uint16) (netrule.Code, bool) { return netrule.CodeAllowedByRule, true }
	cert, roots := originCert(t, host)
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	var err error
	if w.ca, err = NewCA([]string{host}, time.Now()); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Domains: []string{host}, CACert: w.ca.Cert, CAKey: w.ca.Key, Roots: roots, Pseudonym: "dshproxy-0badcafe",
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range options {
		f(&o, config)
	}
	w.origin = httptest.NewUnstartedServer(handler)
	w.origin.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	w.origin.EnableHTTP2 = config.NextProtos[0] == "h2"
	w.origin.TLS = config
	w.origin.StartTLS()
	t.Cleanup(w.origin.Close)
	w.dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", w.origin.Listener.Addr().String())
	}
	if w.engine, err = New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

// onlyHTTP1 is an origin without HTTP/2.
func onlyHTTP1(_ *Options, c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

func withLimits(l Limits) worldOption { return func(o *Options, _ *tls.Config) { o.Limits = l } }

// originCert makes a certificate for a name, by a root of its own.
func originCert(t testing.TB, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "origin"}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

// tunnel opens a tunnel to api.test:443 and gives the client's side of it. The test waits for its end.
func (w *world) tunnel() net.Conn {
	client, _ := w.tunnelWith(context.Background())
	return client
}

func (w *world) tunnelWith(ctx context.Context) (client net.Conn, over <-chan struct{}) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	if client, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		w.t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.opened.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.engine.Inspect(ctx, &proxy.InspectedTunnel{
			Client: server, Host: host, Port: port, Requested: w.requested,
			Dial: func(ctx context.Context) (net.Conn, error) {
				w.dials.Add(1)
				w.mu.Lock()
				dial := w.dial
				w.mu.Unlock()
				return dial(ctx)
			},
			Judge: func(host string, port uint16) (netrule.Code, bool) {
				w.judged.Add(1)
				w.mu.Lock()
				judge := w.judge
				w.mu.Unlock()
				return judge(host, port)
			},
		})
	}()
	w.t.Cleanup(func() {
		client.Close()
		<-done
	})
	return client, done
}

func (w *world) requested(r proxy.InnerRequest) {
	w.mu.Lock()
	w.requests = append(w.requests, r)
	told := w.told
	w.mu.Unlock()
	if told != nil {
		told(r)
	}
}

// one gives the only request that was told of.
func (w *world) one() proxy.InnerRequest {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.requests) != 1 {
		w.t.Fatalf("told of %d requests, want 1: %v", len(w.requests), w.requests)
	}
	return w.requests[0]
}

// trust is a client's configuration that trusts the inspection CA.
func (w *world) trust(protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(w.ca.Cert) {
		w.t.Fatal("no CA")
	}
	return &tls.Config{RootCAs: roots, ServerName: host, NextProtos: protocols}
}

// secure opens a tunnel and speaks TLS in it.
func (w *world) secure(protocols ...string) *tls.Conn {
	w.t.Helper()
	c := tls.Client(w.tunnel(), w.trust(protocols...))
	if err := c.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// client is an HTTP client of one version whose connections are tunnels.
func (w *world) client(version int) *http.Client {
	var protocols http.Protocols
	if version == 2 {
		protocols.SetHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
	}
	tr := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return w.tunnel(), nil },
		TLSClientConfig:    w.trust(),
		Protocols:          &protocols,
		DisableCompression: true,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get sends GET and reads the whole answer.
func (w *world) get(c *http.Client, path string, fields ...string) (*http.Response, string) {
	w.t.Helper()
	return w.do(c, "GET", path, nil, fields...)
}

func (w *world) do(c *http.Client, method, path string, body io.Reader, fields ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "https://"+host+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	resp, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// raw sends bytes through HTTP/1.1 inside a tunnel and reads one answer.
func (w *world) raw(text string) (*http.Response, string, *tls.Conn) {
	w.t.Helper()
	c := w.secure("http/1.1")
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body), c
}

// versions runs a test for each version of HTTP towards the client and towards the origin.
func versions(t *testing.T, f func(t *testing.T, version int, origin worldOption)) {
	for _, v := range []struct {
		name   string
		client int
		origin worldOption
	}{
		{"1 to 1", 1, onlyHTTP1},
		{"1 to 2", 1, func(*Options, *tls.Config) {}},
		{"2 to 1", 2, onlyHTTP1},
		{"2 to 2", 2, func(*Options, *tls.Config) {}},
	} {
		t.Run(v.name, func(t *testing.T) { f(t, v.client, v.origin) })
	}
}
