package proxy

import (
	"context"
	"net"

	"dshproxy/netrule"
)

// Inspector terminates the TLS of tunnels to hosts that it covers.
type Inspector interface {
	// Covers reports whether tunnels to a host are inspected.
	Covers(host string) bool
	// Inspect serves one tunnel. It returns when the tunnel is over or the context is, and has closed both sides then.
	Inspect(ctx context.Context, t *InspectedTunnel)
}

// InspectedTunnel is one tunnel whose TLS is terminated.
type InspectedTunnel struct {
	// Client is the client's side, from the first byte of the ClientHello on.
	Client net.Conn
	// Host and Port are the canonical target of the tunnel.
	Host string
	Port uint16
	// ID is that of the tunnel's records, which denials show.
	ID string
	// Dial connects to the adjudicated address of the tunnel and to nothing else. Nil fails every request.
	Dial func(ctx context.Context) (net.Conn, error)
	// Judge is asked about the authority of each inner request; ok false refuses it with the code. Requests of one
	// tunnel are judged concurrently. Nil refuses everything.
	Judge func(host string, port uint16) (code netrule.Code, ok bool)
	// Requested is told of each inner request, once its outcome is known; concurrently. Nil is not told.
	Requested func(InnerRequest)
}

// InnerRequest is a request inside of an inspected tunnel, and what became of it. The texts are the client's: escape
// them before printing.
type InnerRequest struct {
	Method string
	// Host is the canonical host that the request names, or what it names raw if that is no host.
	Host string
	// Path is as the client sent it, without the query.
	Path string
	// Status is that of the answer.
	Status int
	// Code is that of the judgement, or why the request was refused or failed.
	Code netrule.Code
}
