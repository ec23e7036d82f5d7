package proxy

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"dshproxy/netrule"
	"dshproxy/resolve"
	"dshproxy/upstream"
)

// Policies gives the policy of a workspace; "" is the proxy's own. Nil or an error refuses. The pointer changes with
// every reload, and one pointer serves a whole admission.
type Policies func(workspace string) (*netrule.Policy, error)

// Lookup resolves a canonical name, as resolve.Resolver does.
type Lookup func(ctx context.Context, name string, bothFamilies bool) (resolve.Answer, error)

// Gate decides whether and where a connection may go. It is the only place that pins addresses for clients.
type Gate struct {
	// Policies is asked once an admission; nil refuses everything.
	Policies Policies
	// Lookup is called at most once an admission, and only after an allow by name; nil fails every lookup.
	Lookup Lookup
	// Own is what belongs to the proxy itself; nil knows nothing.
	Own *Own
}

// Admission is the answer of the Gate. Refused or failed ones have no destination.
type Admission struct {
	Decision netrule.Decision
	Policy   *netrule.Policy
	// Judged is false when no policy was asked.
	Judged bool
	// Code is the outcome so far: that of the decision, or loop, no_policy, dns_error, dns_timeout, client_limit.
	Code  netrule.Code
	OK    bool
	Dest  upstream.Destination
	Rcode string // of a failed lookup
	Cause error  // of a failure, for the log only

	LookedUp     bool
	Decided, DNS time.Duration
}

var errNoLookup = errors.New("no resolver")

// Admit walks steps 1 to 8 of the decision: own listeners, the walk by name, one lookup, the walk with addresses, the
// guard, and the pin. limit bounds the lookups of the client.
func (g *Gate) Admit(ctx context.Context, q netrule.Query, workspace string, limit *client) Admission {
	start := time.Now()
	a := Admission{}
	if g.reachesSelf(q.Target) {
		a.Code = netrule.CodeLoop
		return a
	}
	if g.Policies == nil {
		a.Code = netrule.CodeNoPolicy
		return a
	}
	policy, err := g.Policies(workspace)
	if err != nil || policy == nil {
		a.Code, a.Cause = netrule.CodeNoPolicy, err
		return a
	}
	a.Policy, a.Judged = policy, true
	var addrs []netip.Addr
	if q.Target.IsLiteral() {
		addrs = []netip.Addr{q.Target.Addr}
	} else {
		a.Decision = policy.Decide(q)
		a.Decided = time.Since(start)
		a.Code = a.Decision.Code
		if a.Decision.Action != netrule.Allow {
			return a
		}
		if addrs = g.lookup(ctx, q.Target.Host, &a, limit); addrs == nil {
			return a
		}
	}
	walk := time.Now()
	a.Decision = policy.DecideAddrs(q, addrs, g.isInterface)
	a.Code = a.Decision.Code
	g.pin(&a, q.Target.Port)
	a.Decided += time.Since(walk)
	return a
}

// reachesSelf tests what is known without a lookup: literals, and localhost names at both loopback addresses.
func (g *Gate) reachesSelf(t netrule.Target) bool {
	switch {
	case g.Own == nil:
		return false
	case t.IsLiteral():
		return g.Own.IsListener(netip.AddrPortFrom(t.Addr, t.Port))
	case t.IsLocalhost():
		return g.Own.IsListener(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), t.Port)) ||
			g.Own.IsListener(netip.AddrPortFrom(netip.IPv6Loopback(), t.Port))
	default:
		return false
	}
}

func (g *Gate) isInterface(addr netip.Addr) bool { return g.Own != nil && g.Own.IsInterface(addr) }

// lookup asks once. Both families are waited for when a rule turns on addresses.
func (g *Gate) lookup(ctx context.Context, name string, a *Admission, limit *client) []netip.Addr {
	if g.Lookup == nil {
		a.Code, a.Cause = netrule.CodeDNSError, errNoLookup
		return nil
	}
	if !limit.enterLookup(ctx) {
		a.Code = netrule.CodeClientLimit
		return nil
	}
	defer limit.leaveLookup()
	start := time.Now()
	answer, err := g.Lookup(ctx, name, a.Decision.NeedsAll)
	a.LookedUp, a.DNS = true, time.Since(start)
	if err == nil && len(answer.Addrs) > 0 {
		return answer.Addrs
	}
	a.Code, a.Cause = netrule.CodeDNSError, err
	var e *resolve.Error
	if errors.As(err, &e) {
		a.Rcode = e.Rcode
		if e.Timeout {
			a.Code = netrule.CodeDNSTimeout
		}
	}
	return nil
}

// maxPinned is how many addresses of an answer are dialled; all are judged.
const maxPinned = 32

// pin takes own listeners out of what may be dialled and fixes the rest. An answer of which nothing is left but a
// listener of our own is a loop, whatever the guard has called it.
func (g *Gate) pin(a *Admission, port uint16) {
	own := false
	for i := range a.Decision.Addrs {
		v := &a.Decision.Addrs[i]
		if (v.Kept || v.Why == "guard") && g.Own != nil && g.Own.IsListener(netip.AddrPortFrom(v.Addr, port)) {
			v.Kept, v.Why, own = false, "listener", true
		}
	}
	kept := a.Decision.Kept()
	if own && len(kept) == 0 {
		a.Decision.Action, a.Code = netrule.Deny, netrule.CodeLoop
		a.Decision.Code = netrule.CodeLoop
	}
	if a.Decision.Action != netrule.Allow || len(kept) == 0 {
		return
	}
	a.OK = true
	a.Dest = upstream.Direct(resolve.Pin(kept[:min(len(kept), maxPinned)], port))
}

// Check is what the dialer asks right before each connect.
func (g *Gate) Check(addr netip.AddrPort) error {
	if g.Own != nil && g.Own.IsListener(addr) {
		return errOwnListener
	}
	return nil
}

var errOwnListener = errors.New("the address is a listener of the proxy itself")

// isCurrent reports whether a policy is still the one in force.
func (g *Gate) isCurrent(p *netrule.Policy, workspace string) bool {
	if g.Policies == nil {
		return false
	}
	now, err := g.Policies(workspace)
	return err == nil && now == p
}

// StillAllowed judges a connection in flight again: its target at the one address that was dialled.
func (g *Gate) StillAllowed(q netrule.Query, dialed netip.Addr, workspace string) bool {
	if g.Policies == nil {
		return false
	}
	policy, err := g.Policies(workspace)
	if err != nil {
		return false
	}
	d := policy.DecideAddrs(q, []netip.Addr{dialed}, g.isInterface)
	return d.Action == netrule.Allow
}
