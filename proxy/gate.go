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
	// Chaining sends connections through parent proxies; nil dials all of them directly.
	Chaining *Chaining
}

// Admission is the answer of the Gate. Refused or failed ones have no destination.
type Admission struct {
	Decision netrule.Decision
	Policy   *netrule.Policy
	// Workspace is the one whose policy was asked.
	Workspace string
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

var (
	errNoLookup     = errors.New("no resolver")
	errOnlyUpstream = errors.New("a rule with ips stands on the way, or the address is special, and upstreamOnly forbids a direct connection")
)

// Admit walks steps 1 to 8 of the decision: own listeners and parents, the walk by name, one lookup, the walk with
// addresses, the guard, and the pin. What goes through a parent by name ends after the walk by name. limit bounds the
// lookups of the client.
func (g *Gate) Admit(ctx context.Context, q netrule.Query, workspace string, limit *client) Admission {
	start := time.Now()
	a := Admission{Workspace: workspace}
	switch {
	case g.reachesSelf(q.Target):
		a.Code = netrule.CodeLoop
		return a
	case g.Chaining.isParent(q.Target):
		a.Code = netrule.CodeUpstreamTarget
		return a
	case !g.ask(&a):
		return a
	}
	parent := g.Chaining.parent(q.Target)
	var addrs []netip.Addr
	if q.Target.IsLiteral() {
		addrs = []netip.Addr{q.Target.Addr}
	} else {
		a.Decision = a.Policy.Decide(q)
		a.Decided = time.Since(start)
		a.Code = a.Decision.Code
		if a.Decision.Action != netrule.Allow {
			return a
		}
		if parent != nil && !g.Chaining.Local && !a.Decision.NeedsAddrs {
			g.delegate(&a, q.Target, parent)
			return a
		}
		if addrs = g.lookup(ctx, q.Target.Host, &a, limit); addrs == nil {
			return a
		}
	}
	walk := time.Now()
	g.judge(ctx, &a, q, addrs, parent)
	a.Decided += time.Since(walk)
	return a
}

// ask gets the policy; false means that there is none.
func (g *Gate) ask(a *Admission) bool {
	a.Code = netrule.CodeNoPolicy
	if g.Policies == nil {
		return false
	}
	policy, err := g.Policies(a.Workspace)
	if err != nil || policy == nil {
		a.Cause = err
		return false
	}
	a.Policy, a.Judged = policy, true
	return true
}

// judge walks with addresses and fixes where the connection may go.
func (g *Gate) judge(ctx context.Context, a *Admission, q netrule.Query, addrs []netip.Addr, parent *upstream.Parent) {
	a.Decision = a.Policy.DecideAddrs(q, addrs, g.isInterface)
	a.Code = a.Decision.Code
	g.pin(ctx, a, q.Target.Port)
	if !a.OK || parent == nil || a.anyLoopback() {
		return
	}
	switch {
	case g.Chaining.Local:
		a.Dest = upstream.Through(parent, a.Dest.Pinned())
	case q.Target.IsLiteral() && a.Decision.Addrs[0].Class == netrule.ClassPublic && !a.Policy.TurnsOnAddrs(q):
		a.Dest = upstream.Named(parent, q.Target.Host, q.Target.Port)
	case g.Chaining.Only:
		a.OK, a.Dest, a.Code, a.Cause = false, upstream.Destination{}, netrule.CodeUpstreamProxyError, errOnlyUpstream
	}
}

// anyLoopback reports an admitted loopback address: the parent's loopback is another one.
func (a *Admission) anyLoopback() bool {
	for _, v := range a.Decision.Addrs {
		if v.Kept && v.Class == netrule.ClassLoopback {
			return true
		}
	}
	return false
}

// delegate admits a name that a parent resolves. A name of an internal network needs a rule that spells it out.
func (g *Gate) delegate(a *Admission, t netrule.Target, parent *upstream.Parent) {
	if isInternalName(t.Host) && !a.Decision.NamesHost {
		a.Decision.Action, a.Decision.Code, a.Code = netrule.Deny, netrule.CodeInternalName, netrule.CodeInternalName
		return
	}
	a.OK, a.Dest = true, upstream.Named(parent, t.Host, t.Port)
}

// AdmitAt judges a target at the one address that its tunnel has been connected to, for what the tunnel turns out to
// carry. dest is the tunnel's; nothing is looked up.
func (g *Gate) AdmitAt(q netrule.Query, workspace string, dest upstream.Destination, dialed netip.AddrPort) Admission {
	start := time.Now()
	a := Admission{Workspace: workspace}
	if !g.ask(&a) {
		return a
	}
	if dest.IsNamed() {
		a.Decision = a.Policy.Decide(q)
		a.Code = a.Decision.Code
		switch {
		case a.Decision.Action != netrule.Allow:
		case a.Decision.NeedsAddrs && !q.Target.IsLiteral():
			a.Decision.Action, a.Code = netrule.Deny, netrule.CodeNotAllowed
			a.Decision.Code = netrule.CodeNotAllowed
		case isInternalName(q.Target.Host) && !q.Target.IsLiteral() && !a.Decision.NamesHost:
			a.Decision.Action, a.Code = netrule.Deny, netrule.CodeInternalName
			a.Decision.Code = netrule.CodeInternalName
		default:
			a.OK, a.Dest = true, dest
		}
	} else {
		a.Decision = a.Policy.DecideAddrs(q, []netip.Addr{dialed.Addr()}, g.isInterface)
		a.Code = a.Decision.Code
		if a.OK = a.Decision.Action == netrule.Allow; a.OK {
			a.Dest = dest.At(dialed)
		}
	}
	a.Decided = time.Since(start)
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

// pin takes own listeners and parents out of what may be dialled and fixes the rest. An answer of which nothing is left
// but a listener of our own is a loop, whatever the guard has called it.
func (g *Gate) pin(ctx context.Context, a *Admission, port uint16) {
	var taken netrule.Code
	for i := range a.Decision.Addrs {
		v := &a.Decision.Addrs[i]
		if !v.Kept && v.Why != "guard" {
			continue
		}
		switch at := netip.AddrPortFrom(v.Addr, port); {
		case g.Own != nil && g.Own.IsListener(at):
			v.Kept, v.Why, taken = false, "listener", netrule.CodeLoop
		case g.Chaining.isParentAddr(ctx, at):
			v.Kept, v.Why = false, "upstream"
			if taken == netrule.CodeInternalError {
				taken = netrule.CodeUpstreamTarget
			}
		}
	}
	kept := a.Decision.Kept()
	if taken != netrule.CodeInternalError && len(kept) == 0 {
		a.Decision.Action, a.Decision.Code, a.Code = netrule.Deny, taken, taken
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

// StillAllowed judges a connection in flight again: its target at the one address that was dialled, or by name where a
// parent resolved it. A rule that needs addresses which such a connection lacks ends it.
func (g *Gate) StillAllowed(q netrule.Query, dest upstream.Destination, dialed netip.AddrPort, workspace string) bool {
	a := g.AdmitAt(q, workspace, dest, dialed)
	return a.OK
}
