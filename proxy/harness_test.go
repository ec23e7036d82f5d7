package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/proxy/identity"
	"dshproxy/resolve"
	"dshproxy/rules"
	"dshproxy/upstream"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy with a name service and a record of what happened, all on loopback.
type world struct {
	t    testing.TB
	srv  *Server
	gate *Gate
	own  *Own
	addr string

	mu      sync.Mutex
	policy  *netrule.Policy
	names   map[string][]string // answers by name; a missing name does not exist
	lookups []string
	records []decisionlog.Decision
	closes  []decisionlog.Close
	changed chan struct{} // closed and renewed at every record
}

type worldOption func(*world, *netrule.Options)

func withLimits(l Limits) worldOption { return func(w *world, _ *netrule.Options) { w.srv.Limits = l } }

func withOptions(f func(*netrule.Options)) worldOption {
	return func(_ *world, o *netrule.Options) { f(o) }
}

// newWorld starts a proxy over rules in the dsh language.
func newWorld(t testing.TB, ruleText string, options ...worldOption) *world {
	t.Helper()
	w := &world{t: t, own: &Own{}, names: map[string][]string{}, changed: make(chan struct{})}
	w.gate = &Gate{Own: w.own, Lookup: w.lookup, Policies: func(string) (*netrule.Policy, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.policy, nil
	}}
	book, err := identity.NewBook(identity.Config{Local: []string{"test", "socket"}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv = &Server{Gate: w.gate, Dialer: &upstream.Dialer{Check: w.gate.Check}, Observers: []Observer{w}, Book: func() *identity.Book { return book }}
	opts := netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}}
	for _, o := range options {
		o(w, &opts)
	}
	w.setPolicy(ruleText, opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.own.AddListener(l.Addr())
	w.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- w.srv.Serve(Listener{Listener: l, Name: "test", Explain: true}) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.srv.Shutdown(ctx)
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

func (w *world) setPolicy(text string, opts netrule.Options) {
	w.t.Helper()
	doc, err := rules.Parse("/work/.dsh/rules.yaml", []byte(text), rules.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	p := netrule.NewPolicy(opts, netrule.Layer{Name: "workspace", Rules: rules.Connections(doc.Rules, rules.Host{Platform: "linux"})})
	w.mu.Lock()
	w.policy = p
	w.mu.Unlock()
}

func (w *world) lookup(_ context.Context, name string, _ bool) (resolve.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return resolve.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}}, nil
	}
	w.lookups = append(w.lookups, name)
	texts, ok := w.names[name]
	if !ok {
		return resolve.Answer{}, &resolve.Error{Name: name, Rcode: "NXDOMAIN"}
	}
	if len(texts) == 1 && texts[0] == "timeout" {
		return resolve.Answer{}, &resolve.Error{Name: name, Timeout: true}
	}
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return resolve.Answer{Addrs: out}, nil
}

func (w *world) name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = addrs
}

func (w *world) lookedUp() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lookups...)
}

// The world observes its own proxy.

func (w *world) Connected(string) {}

func (w *world) Decided(d *decisionlog.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, *d)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) Closed(c *decisionlog.Close) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closes = append(w.closes, *c)
	close(w.changed)
	w.changed = make(chan struct{})
}

// await blocks until what f looks for has been recorded.
func (w *world) await(what string, f func() bool) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		w.mu.Lock()
		ok, changed := f(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%s: never recorded; records %+v, closes %+v", what, w.records, w.closes)
		}
	}
}

func (w *world) lastRecord() decisionlog.Decision {
	w.t.Helper()
	w.await("a record", func() bool { return len(w.records) > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.records[len(w.records)-1]
}

// client is a raw connection to the proxy.
type testConn struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
	// order is taken once for each response: what the proxy recorded before it has happened before what follows, which
	// the race detector cannot see through a system call of our own.
	order sync.Locker
}

func (w *world) dial() *testConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	w.t.Cleanup(func() { c.Close() })
	return &testConn{c.(*net.TCPConn), w.t, bufio.NewReader(c), &w.mu}
}

func (c *testConn) send(s string) *testConn {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// response reads one response to a request of the given method.
func (c *testConn) response(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	defer func() {
		c.order.Lock()
		defer c.order.Unlock()
	}()
	if method == "CONNECT" && resp.StatusCode == 200 {
		return resp
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("body after %q: %v", body, err)
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// status sends a head and gives the status of the answer.
func (w *world) status(request string) int {
	w.t.Helper()
	method, _, _ := strings.Cut(request, " ")
	return w.dial().send(request).response(method).StatusCode
}

func bodyOf(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// rest reads to the end of the stream.
func (c *testConn) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.r)
	if err != nil {
		c.t.Fatalf("read: %v after %q", err, b)
	}
	return string(b)
}

// origin is a scripted server: each connection is given to serve in a goroutine of its own.
type origin struct {
	addr  string
	port  int
	mu    sync.Mutex
	count int
}

func newOrigin(t testing.TB, serve func(c *net.TCPConn, r *bufio.Reader)) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{addr: l.Addr().String(), port: l.Addr().(*net.TCPAddr).Port}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.count++
			o.mu.Unlock()
			conns.Store(c, nil)
			wg.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn), bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return o
}

func (o *origin) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

// closedPort gives a port of 127.0.0.1 that nobody listens on, and that nobody else gets during the test.
func closedPort(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*syscall.SockaddrInet4).Port
}

// httpOrigin answers every request of every connection with what reply gives.
func httpOrigin(t testing.TB, reply func(r *http.Request, head string) string) *origin {
	return newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			head, req, err := readRequest(r)
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, reply(req, head)); err != nil {
				return
			}
			if req.Close {
				return
			}
		}
	})
}

// readRequest gives the head as it came and the request with its whole body.
func readRequest(r *bufio.Reader) (string, *http.Request, error) {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		head.WriteString(line)
		if line == "\r\n" {
			break
		}
	}
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), r)))
	if err != nil {
		return head.String(), nil, err
	}
	// The body must not be read ahead of, so it is read from r itself.
	var body string
	switch {
	case len(req.TransferEncoding) > 0:
		req2, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), r)))
		if err != nil {
			return "", nil, err
		}
		b, err := io.ReadAll(req2.Body)
		if err != nil {
			return "", nil, err
		}
		body = string(b)
		req.Trailer = req2.Trailer
	case req.ContentLength > 0:
		b := make([]byte, req.ContentLength)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", nil, err
		}
		body = string(b)
	}
	req.Body = io.NopCloser(strings.NewReader(body))
	return head.String(), req, nil
}

func okReply(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// allowLoopback admits everything that resolves to the loopback address.
const allowLoopback = `rules:
  - match: { network: { domains: ["*"], ips: ["127.0.0.1"] } }
    action: allow
    reason: the test origin
`

type (
	ctxType    = context.Context
	answerType = resolve.Answer
)

func contextWithCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
