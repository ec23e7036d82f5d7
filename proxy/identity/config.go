// Package identity tells who a client is, from what it has proved: a client certificate, a token, the user at the other
// end of a unix socket, the listener it came to, or the network it came from. It also parses the bytes in which clients
// and load balancers say so: Proxy-Authorization and the PROXY protocol. It does no IO but for PeerUID, logs nothing, and
// keeps no secret: tokens are held as hashes.
package identity

import (
	"net/netip"
	"time"
)

// Config is what a Book is made of. In each list the order counts only where it says so.
type Config struct {
	Tokens       []Token
	Peers        []Peer
	Certificates []Certificate
	Sources      []Source // the first that holds the address decides
	Listeners    []Listener
	// Local names the listeners that only this machine reaches. There, and nowhere else, clients may be nobody while no
	// tokens are configured.
	Local []string
	// AllowAnonymous serves clients that prove nothing on every listener, tokens or not. What they present must still
	// be right where tokens are configured.
	AllowAnonymous bool
}

// Grant is what an entry says about its client.
type Grant struct {
	// Name stands in records. Where an entry needs none, it is made from what the entry matches.
	Name string
	// Agents are the candidates for the agents of a rule; none means the name.
	Agents []string
	// Workspace is the folder whose rules judge the client; empty means the server's own.
	Workspace string
}

// Token is a secret that a client presents, with its name (Basic, SOCKS) or alone (Bearer). The name is needed.
type Token struct {
	Grant
	Token    string    // 16 to 4096 bytes of printable ASCII without spaces
	Expires  time.Time // from then on it is wrong; zero means never
	Listener string    // the only listener on which it is right; empty means all
}

// Peer is the user of the process at the other end of a unix socket.
type Peer struct {
	Grant
	UID int
}

// Certificate is a client certificate that TLS has verified, known by one subject alternative name (DNS, URI, email or
// address) or, without one, by its common name.
type Certificate struct {
	Grant
	SAN string
	CN  string
}

// Source is a network that clients come from.
type Source struct {
	Grant
	Prefix netip.Prefix
}

// Listener is one listener's clients, all of them.
type Listener struct {
	Grant
	Listener string
}
