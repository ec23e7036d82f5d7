package inspect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy"
)

// tunnel is one inspected tunnel: a client's TLS connection, the requests in it, and the connections to its one origin.
type tunnel struct {
	engine *Engine
	given  *proxy.InspectedTunnel
	target netrule.Target
	// authority is how requests name the origin: without the port where it is 443.
	authority string
	ctx       context.Context
	cancel    context.CancelFunc
	client    *watchedConn
	listener  *oneConn
	transport *http.Transport

	mu      sync.Mutex
	over    bool
	running sync.WaitGroup // requests and dials
	origins map[*originConn]struct{}
}

func newTunnel(ctx context.Context, e *Engine, it *proxy.InspectedTunnel, target netrule.Target) *tunnel {
	t := &tunnel{
		engine: e, given: it, target: target, authority: strings.TrimSuffix(target.Authority(), ":443"),
		client: &watchedConn{Conn: it.Client}, origins: map[*originConn]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.transport = t.newTransport()
	return t
}

// handshake is the server's side of TLS, with a certificate for the tunnel's host whatever name the client asks for: the
// requests are held against that host one by one.
func (t *tunnel) handshake() (*tls.Conn, error) {
	e := t.engine
	ctx, cancel := context.WithTimeout(t.ctx, e.limits.HeadTimeout)
	defer cancel()
	conn := tls.Server(t.client, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return e.leaves.get(t.target.Host, e.now())
		},
		NextProtos: []string{"h2", "http/1.1"},
		MinVersion: tls.VersionTLS12,
		// A ticket would be good for this configuration alone, which lives as long as the tunnel.
		SessionTicketsDisabled: true,
	})
	return conn, conn.HandshakeContext(ctx)
}

// serve serves HTTP on the decrypted connection until it ends.
func (t *tunnel) serve(conn *tls.Conn) {
	l := &t.engine.limits
	t.listener = &oneConn{conn: conn, done: make(chan struct{})}
	defer context.AfterFunc(t.ctx, t.hangUp)()
	defer t.watchIdle(l.Idle)()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	server := &http.Server{
		Handler:           t,
		ReadHeaderTimeout: l.HeadTimeout,
		IdleTimeout:       l.KeepAliveIdle,
		MaxHeaderBytes:    l.HeadBytes,
		ErrorLog:          t.engine.errors,
		BaseContext:       func(net.Listener) context.Context { return t.ctx },
		ConnState:         t.listener.state,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: l.Streams},
		// OPTIONS * is a question to the origin (RFC 9110 §9.3.7).
		DisableGeneralOptionsHandler: true,
	}
	if err := server.Serve(t.listener); !errors.Is(err, net.ErrClosed) {
		t.engine.log.Error("internal error", "error", err)
	}
}

// hangUp ends the tunnel from our side.
func (t *tunnel) hangUp() {
	t.client.Close()
	t.listener.finish()
}

// watchIdle hangs up once the client's connection has been silent for too long, either direction counting. The function
// that it gives ends the watch.
func (t *tunnel) watchIdle(limit time.Duration) (stop func()) {
	t.client.touch()
	var mu sync.Mutex // orders the timer's start and its stop
	var timer *time.Timer
	stopped := false
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		left := limit - t.client.silence()
		switch {
		case stopped:
		case left <= 0:
			t.hangUp()
		default:
			timer.Reset(left)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit, check)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// enter counts a request or a dial in; false when the tunnel is over.
func (t *tunnel) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Add(1)
	return true
}

func (t *tunnel) leave() { t.running.Done() }

// close ends everything that belongs to the tunnel and waits for it.
func (t *tunnel) close() {
	t.mu.Lock()
	t.over = true
	origins := make([]*originConn, 0, len(t.origins))
	for o := range t.origins {
		origins = append(origins, o)
	}
	t.mu.Unlock()
	t.cancel()
	t.client.Close()
	for _, o := range origins {
		_ = o.Close()
	}
	t.running.Wait()
	t.transport.CloseIdleConnections()
}

// watchedConn notes when bytes last passed. It lies beneath TLS, which needs no other method of a connection.
type watchedConn struct {
	net.Conn
	last atomic.Int64 // unix nanoseconds
}

func (c *watchedConn) touch() { c.last.Store(time.Now().UnixNano()) }

func (c *watchedConn) silence() time.Duration {
	return time.Duration(time.Now().UnixNano() - c.last.Load())
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// oneConn is a listener with one connection to give. It ends when that does.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
	gone bool // only Serve's own goroutine accepts
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.gone {
		l.gone = true
		return l.conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

// state notes the end. A connection that is taken over ends with the request that took it.
func (l *oneConn) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		l.finish()
	}
}

func (l *oneConn) finish() { l.once.Do(func() { close(l.done) }) }

// Close is called by Serve on its way out.
func (l *oneConn) Close() error { return nil }

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }
