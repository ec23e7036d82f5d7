package inspect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// dialError is a failure before there was a connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

var (
	errForeign = errors.New("a dial to another place than the tunnel's target")
	errOver    = errors.New("the tunnel is over")
)

// newTransport makes the way to the tunnel's origin: no proxy, no other address, the certificate verified for the
// tunnel's host, and bodies as they are.
func (t *tunnel) newTransport() *http.Transport {
	l := &t.engine.limits
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialContext: t.dial,
		TLSClientConfig: &tls.Config{
			ServerName: t.target.Host,
			RootCAs:    t.engine.roots,
			MinVersion: tls.VersionTLS12,
		},
		TLSHandshakeTimeout:    l.Answer,
		ResponseHeaderTimeout:  l.ResponseHead,
		ExpectContinueTimeout:  time.Second, // then the body is sent unasked
		IdleConnTimeout:        l.KeepAliveIdle,
		MaxResponseHeaderBytes: int64(l.HeadBytes),
		MaxConnsPerHost:        l.Streams,
		MaxIdleConnsPerHost:    l.Streams,
		DisableCompression:     true, // else it asks for gzip where the client did not
		Protocols:              &protocols,
	}
}

// dial connects through the tunnel's Dial. The address is known before: another one is a mistake of ours.
func (t *tunnel) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if addr != net.JoinHostPort(t.target.Host, portOf(t.target)) || t.given.Dial == nil {
		return nil, &dialError{errForeign}
	}
	if !t.enter() {
		return nil, &dialError{errOver}
	}
	defer t.leave()
	// The transport dials on for the next request when the one that asked is gone, so the tunnel's end must end it.
	ctx, cancel := context.WithTimeout(ctx, t.engine.limits.Answer)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	c, err := t.given.Dial(ctx)
	if err != nil {
		return nil, &dialError{err}
	}
	o := &originConn{Conn: c, tunnel: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		c.Close()
		return nil, &dialError{errOver}
	}
	t.origins[o] = struct{}{}
	return o, nil
}

// originConn is a connection to the origin, which the tunnel closes if the transport has not.
type originConn struct {
	net.Conn
	tunnel *tunnel
}

func (o *originConn) Close() error {
	o.tunnel.mu.Lock()
	delete(o.tunnel.origins, o)
	o.tunnel.mu.Unlock()
	return o.Conn.Close()
}
