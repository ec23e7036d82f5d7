package upstream

import (
	"fmt"
	"net/netip"
	"slices"
)

// Chain says which parent a target takes. Nil and the zero value use none. It does not change once made.
type Chain struct {
	bypass      *Bypass
	routes      []route
	http, https *Parent
}

// Route sends domains through a parent of their own.
type Route struct {
	// Domains are patterns: a name with its subdomains, *.name for the subdomains only, =name for the name only, an
	// address, a CIDR, or *; each may have :port behind it.
	Domains []string
	// Parent is nil for a direct connection.
	Parent *Parent
}

type route struct {
	patterns []pattern
	parent   *Parent
}

// NewChain makes a chain of one parent for everything; nil is for none.
func NewChain(def *Parent) *Chain { return &Chain{http: def, https: def} }

// WithRoutes gives a copy with routes, of which the first that matches decides. They are behind those it has and before
// its default parent. A route without domains, or with a malformed one, is an error.
func (c *Chain) WithRoutes(routes ...Route) (*Chain, error) {
	out := c.clone()
	for i, r := range routes {
		if len(r.Domains) == 0 {
			return nil, fmt.Errorf("route %d: no domains", i+1)
		}
		compiled := route{parent: r.Parent}
		for _, text := range r.Domains {
			p, err := parsePattern(text)
			if err != nil {
				return nil, fmt.Errorf("route %d: domain %.80q: %w", i+1, text, err)
			}
			compiled.patterns = append(compiled.patterns, p)
		}
		out.routes = append(out.routes, compiled)
	}
	return out, nil
}

// WithBypass gives a copy whose bypass has the entries of b too.
func (c *Chain) WithBypass(b *Bypass) *Chain {
	out := c.clone()
	joined := &Bypass{}
	for _, list := range []*Bypass{out.bypass, b} {
		if list != nil {
			joined.patterns = append(joined.patterns, list.patterns...)
		}
	}
	out.bypass = joined
	return out
}

func (c *Chain) clone() *Chain {
	if c == nil {
		return &Chain{}
	}
	out := *c
	out.routes = slices.Clone(c.routes)
	return &out
}

// Select gives the parent for a canonical target, or nil for a direct connection. addr is valid for a literal target.
// Scheme "http" is a request in absolute-form, everything else a tunnel. Loopback is always direct, for the parent's
// loopback is another one; then the bypass is asked, then the routes in order, then the default.
func (c *Chain) Select(host string, addr netip.Addr, port uint16, scheme string) *Parent {
	if c == nil {
		return nil
	}
	if s, ok := newSubject(host, addr, port); ok {
		if s.isLoopback() || c.bypass.matches(s) {
			return nil
		}
		for i := range c.routes {
			if c.routes[i].matches(s) {
				return c.routes[i].parent
			}
		}
	}
	if scheme == schemeHTTP {
		return c.http
	}
	return c.https
}

func (r *route) matches(s subject) bool {
	for i := range r.patterns {
		if r.patterns[i].matches(s) {
			return true
		}
	}
	return false
}

// Parents gives every parent that may be selected, once, so that they can be refused as targets.
func (c *Chain) Parents() []*Parent {
	if c == nil {
		return nil
	}
	var out []*Parent
	add := func(p *Parent) {
		if p != nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for i := range c.routes {
		add(c.routes[i].parent)
	}
	add(c.https)
	add(c.http)
	return out
}
