package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard decides who may speak to the API: callers that name the listener by a name of its own, that are no page of
// somebody else, and that have the token.
type guard struct {
	hosts hosts
	// token is the digest of the token, so that a comparison takes the same time for every text; nil refuses all.
	token *[sha256.Size]byte
}

func newGuard(addr net.Addr, extra []string, token string) guard {
	g := guard{hosts: newHosts(addr, extra)}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		g.token = &sum
	}
	return g
}

// admit gives the reason to refuse a request, or nil. The Host comes first: a page whose name was bound to our address
// learns nothing, not even that a token is wanted.
func (g *guard) admit(r *http.Request) *Error {
	if !g.hosts.own(r.Host) {
		return &Error{http.StatusMisdirectedRequest, "misdirected", "the Host is not this listener's own", "name it by its address, or add the name to admin.hosts"}
	}
	if !g.sameSite(r.Header) {
		return &Error{http.StatusForbidden, "foreign_origin", "the request comes from a page of another origin", ""}
	}
	if !g.authorized(r.Header) {
		return &Error{http.StatusUnauthorized, "unauthorized", "the token is missing or wrong", "send Authorization: Bearer TOKEN; the token is in a file in the state folder"}
	}
	return nil
}

// sameSite tests what browsers say about the page that makes a request; other programs say nothing.
func (g *guard) sameSite(h http.Header) bool {
	for _, site := range h.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	for _, origin := range h.Values("Origin") {
		if !g.hosts.ownOrigin(origin) {
			return false
		}
	}
	return true
}

// authorized tests the one Authorization field (RFC 6750 section 2.1).
func (g *guard) authorized(h http.Header) bool {
	fields := h.Values("Authorization")
	if g.token == nil || len(fields) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// hosts are the values of Host that name a listener. The zero value knows none.
type hosts struct {
	unix  bool
	port  string     // of a TCP listener
	addr  netip.Addr // of a TCP listener that is bound to one
	extra map[string]bool
}

func newHosts(addr net.Addr, extra []string) hosts {
	h := hosts{extra: map[string]bool{}}
	for _, name := range extra {
		if name != "" {
			h.extra[strings.ToLower(name)] = true
		}
	}
	switch a := addr.(type) {
	case *net.UnixAddr:
		h.unix = true
	case *net.TCPAddr:
		_, h.port, _ = net.SplitHostPort(a.String()) // always splits
		if ip := a.AddrPort().Addr().Unmap().WithZone(""); !ip.IsUnspecified() {
			h.addr = ip
		}
	}
	return h
}

// own reports whether a Host names the listener. For a TCP listener that is a loopback literal, localhost or its own
// address, with its port; for a unix socket what clients send that have no host to name. No page of a browser reaches a
// unix socket.
func (h *hosts) own(host string) bool {
	host = strings.ToLower(host)
	name, port, ok := cutPort(host)
	switch {
	case !ok:
		return false
	case h.isExtra(host, port):
		return true
	case h.unix:
		return name == "" || name == "unix" || name == "localhost" || isLoopback(name)
	case port == "":
		port = "80"
	}
	if h.port == "" || port != h.port {
		return false
	}
	if name == "localhost" || isLoopback(name) {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && h.addr.IsValid() && addr.Unmap() == h.addr
}

// isExtra tests the names that the settings add: with a port they stand for themselves, without one also with the
// listener's.
func (h *hosts) isExtra(host, port string) bool {
	bare, cut := strings.CutSuffix(host, ":"+port)
	return h.extra[host] || cut && port != "" && port == h.port && h.extra[bare]
}

// ownOrigin tests an Origin (RFC 6454 section 7). We speak plain HTTP; only a name that the settings add may stand
// before us with TLS. Unix sockets have no origin.
func (h *hosts) ownOrigin(origin string) bool {
	scheme, host, ok := strings.Cut(strings.ToLower(origin), "://")
	if !ok {
		return false
	}
	_, port, ok := cutPort(host)
	if ok && h.isExtra(host, port) {
		return scheme == "http" || scheme == "https"
	}
	return scheme == "http" && !h.unix && h.own(host)
}

// cutPort splits host[:port]. Brackets must hold an IPv6 address.
func cutPort(s string) (name, port string, ok bool) {
	inner, bracket := strings.CutPrefix(s, "[")
	if !bracket {
		name, port, _ = strings.Cut(s, ":")
		return name, port, !strings.ContainsAny(port, ":]")
	}
	name, rest, ok := strings.Cut(inner, "]")
	if addr, err := netip.ParseAddr(name); !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", "", false
	}
	port, colon := strings.CutPrefix(rest, ":")
	return name, port, colon && !strings.Contains(port, ":") || rest == ""
}

func isLoopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}
