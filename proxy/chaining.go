package proxy

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/upstream"
)

// Chaining says which connections go through a parent proxy. Nil sends none through one.
type Chaining struct {
	Chain *upstream.Chain
	// Local keeps resolution here: a parent gets adjudicated addresses, and never a name.
	Local bool
	// Only refuses what has to keep to adjudicated addresses and cannot be chained, instead of dialling it directly.
	Only bool
	// ParentAddrs gives the addresses of a parent now; nil knows none but literal ones.
	ParentAddrs func(context.Context, *upstream.Parent) ([]netip.AddrPort, error)

	addrs     atomic.Pointer[map[netip.AddrPort]bool]
	refreshed atomic.Int64 // unix nanoseconds
}

// parent gives the proxy that a target takes, nil for none.
func (c *Chaining) parent(t netrule.Target) *upstream.Parent {
	if c == nil {
		return nil
	}
	scheme := "https"
	if t.Scheme == netrule.SchemeHTTP {
		scheme = "http"
	}
	return c.Chain.Select(t.Host, t.Addr, t.Port, scheme)
}

// isParent reports a target that is itself a parent proxy: through it a client would get past the rules.
func (c *Chaining) isParent(t netrule.Target) bool {
	if c == nil {
		return false
	}
	for _, p := range c.Chain.Parents() {
		if p.Is(t.Host, t.Addr, t.Port) {
			return true
		}
	}
	return false
}

const (
	parentsEvery  = 30 * time.Second
	parentsWithin = 2 * time.Second
)

// isParentAddr reports an address that a parent is reached at. The list is made on first use and at most 30 s old from
// then on; a parent whose name does not resolve keeps its last addresses.
func (c *Chaining) isParentAddr(ctx context.Context, a netip.AddrPort) bool {
	if c == nil || c.ParentAddrs == nil {
		return false
	}
	now := time.Now().UnixNano()
	if last := c.refreshed.Load(); (last == 0 || now-last > int64(parentsEvery)) && c.refreshed.CompareAndSwap(last, now) {
		c.refresh(ctx)
	}
	set := c.addrs.Load()
	return set != nil && (*set)[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())]
}

func (c *Chaining) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, parentsWithin)
	defer cancel()
	set := map[netip.AddrPort]bool{}
	failed := false
	for _, p := range c.Chain.Parents() {
		addrs, err := c.ParentAddrs(ctx, p)
		failed = failed || err != nil
		for _, a := range addrs {
			set[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())] = true
		}
	}
	if old := c.addrs.Load(); failed && old != nil {
		for a := range *old {
			set[a] = true
		}
	}
	c.addrs.Store(&set)
}

// isInternalName reports a name that means something only inside a network: which one it would be, a parent decides.
func isInternalName(host string) bool {
	if !strings.Contains(host, ".") {
		return true
	}
	for _, zone := range []string{".local", ".internal", ".corp", ".lan", ".home.arpa"} {
		if strings.HasSuffix(host, zone) {
			return true
		}
	}
	return false
}
