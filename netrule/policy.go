package netrule

import "net/netip"

// GuardMode says what becomes of an answer that mixes addresses that may be dialled and special-use ones that may not.
type GuardMode uint8

const (
	// GuardFilter dials only the addresses that may be dialled.
	GuardFilter GuardMode = iota
	// GuardRefuse refuses the whole answer.
	GuardRefuse
	// GuardOff admits every address. It serves test vectors; no setting gives it.
	GuardOff
)

// Options are the parts of a policy that are not rules. The zero value denies everything.
type Options struct {
	Mode Mode
	// Unlisted is the verdict of Whitelist on a target that no rule decides: Deny or Ask.
	Unlisted Action
	// DryRun turns deny and ask of rules and mode into an allow that is marked.
	DryRun bool
	// Loopback makes a last allow rule for localhost, names under it and loopback literals.
	Loopback bool
	// DefaultPorts are what an allow rule without ports, and AllowAll, admit.
	DefaultPorts []PortRange
	Guard        GuardMode
	Space        Space
	// PrivateAllowed exempts prefixes from the guard. It never opens metadata addresses or own interfaces.
	PrivateAllowed []netip.Prefix
}

// Layer is one list of rules, walked in its own order. Layers are combined: deny, then ask, then allow.
type Layer struct {
	Name  string
	Rules []Rule
}

type layer struct {
	name  string
	rules []Rule
	index *index
}

// Policy is an immutable set of layers, safe for concurrent use. A nil Policy refuses everything with CodeNoPolicy.
type Policy struct {
	opts   Options
	layers []layer
	also   *Policy // must agree, see And

	schemes bool // some rule has them
}

// NewPolicy indexes the rules. It takes the layers over: the caller must not change them afterwards.
func NewPolicy(opts Options, layers ...Layer) *Policy {
	p := &Policy{opts: opts}
	for _, l := range layers {
		for i := range l.Rules {
			l.Rules[i].Ref.Layer = l.Name
			p.schemes = p.schemes || len(l.Rules[i].Match.Schemes) > 0
		}
		p.layers = append(p.layers, layer{l.Name, l.Rules, buildIndex(l.Rules)})
	}
	return p
}

// Options returns what the policy was made with.
func (p *Policy) Options() Options {
	if p == nil {
		return Options{}
	}
	return p.opts
}

// Layers returns the layers; the caller must not change them.
func (p *Policy) Layers() []Layer {
	if p == nil {
		return nil
	}
	out := make([]Layer, len(p.layers))
	for i, l := range p.layers {
		out[i] = Layer{l.name, l.rules}
	}
	return out
}

func (p *Policy) defaultPort(port uint16) bool {
	if needsExactPort(port) {
		return false
	}
	for _, r := range p.opts.DefaultPorts {
		if r.Contains(port) {
			return true
		}
	}
	return false
}

// Decide judges a target by name. Deny and ask are final and no lookup may be made; an allow goes on to the lookup and
// DecideAddrs. For a literal the address is known, and the decision is that of DecideAddrs without own addresses.
func (p *Policy) Decide(q Query) Decision {
	if p == nil {
		return Decision{Code: CodeNoPolicy}
	}
	if q.Target.IsLiteral() {
		return p.DecideAddrs(q, []netip.Addr{q.Target.Addr}, nil)
	}
	d := p.decide(q)
	if p.also != nil {
		d = strictest(d, p.also.Decide(q))
	}
	return d
}

// decide walks the layers by name.
func (p *Policy) decide(q Query) Decision {
	v := verdict{}
	for i := range p.layers {
		w := walk{layer: &p.layers[i], query: &q, pol: p}
		rule, possible, remembered := w.run()
		v.needsAddrs = v.needsAddrs || possible || remembered
		v.needsAll = v.needsAll || remembered || possible && p.layers[i].index.deniesByAddr
		switch {
		case possible:
			v.addPossible(rule)
		case rule != nil:
			v.add(rule)
		}
	}
	d := p.conclude(&q, &v)
	if d.Action == Allow && metadataNames[q.Target.Host] && !v.namesExactly(q.Target.Host) {
		return Decision{Code: CodeMetadataAddress, Mode: p.opts.Mode, Rule: d.Rule}
	}
	return d
}

// TurnsOnAddrs reports whether a rule with ips stands on the way of a target, whose other dimensions hold, be its
// addresses among those ips or not: such a target must be dialled at addresses that were judged.
func (p *Policy) TurnsOnAddrs(q Query) bool {
	if p == nil {
		return true
	}
	for i := range p.layers {
		w := walk{layer: &p.layers[i], query: &q, pol: p}
		if _, possible, remembered := w.run(); possible || remembered {
			return true
		}
	}
	return p.also != nil && p.also.TurnsOnAddrs(q)
}

// UsesSchemes reports whether any rule has schemes: only then does it matter what a tunnel turns out to carry.
func (p *Policy) UsesSchemes() bool {
	return p != nil && (p.schemes || p.also.UsesSchemes())
}

// DecideOffline is Decide for who makes no lookup: the addresses of localhost are known without one.
func (p *Policy) DecideOffline(q Query) Decision {
	d := p.Decide(q)
	if d.Action == Allow && q.Target.IsLocalhost() {
		return p.DecideAddrs(q, LocalhostAddrs(), nil)
	}
	return d
}

// LocalhostAddrs are what localhost and the names below it mean (RFC 6761 §6.3).
func LocalhostAddrs() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// verdict collects what the layers say.
type verdict struct {
	decided    bool
	action     Action
	rule       *Rule
	possible   *Rule    // an allow that waits for addresses
	allowing   [8]*Rule // the allow rule of each layer that has one
	allows     int
	loopback   bool
	needsAddrs bool
	needsAll   bool
}

func (v *verdict) add(r *Rule) {
	if !v.decided || stricter(r.Action, v.action) != v.action {
		v.decided, v.action, v.rule = true, r.Action, r
	}
	v.addAllow(r)
}

func (v *verdict) addPossible(r *Rule) {
	if v.possible == nil {
		v.possible = r
	}
	v.addAllow(r)
}

// IsDryRun reports whether the policy only marks what it would refuse.
func (p *Policy) IsDryRun() bool {
	return p != nil && p.opts.DryRun && (p.also == nil || p.also.IsDryRun())
}

// addAllow notes an allow rule. Only a chain of many rule files that nobody has accepted has more layers than the array
// holds; a rule that found no room would leave its addresses unopened and unintersected, so refuse instead.
func (v *verdict) addAllow(r *Rule) {
	if r.Action != Allow {
		return
	}
	if v.allows == len(v.allowing) {
		v.decided, v.action, v.rule = true, Deny, nil
		return
	}
	v.allowing[v.allows] = r
	v.allows++
}

func (v *verdict) allowRules() []*Rule { return v.allowing[:v.allows] }

func (v *verdict) namesExactly(name string) bool {
	for _, r := range v.allowRules() {
		if r.namesExactly(name) {
			return true
		}
	}
	return false
}

// conclude turns what the layers say, or else the mode, into a decision.
func (p *Policy) conclude(q *Query, v *verdict) Decision {
	d := Decision{Mode: p.opts.Mode, NeedsAddrs: v.needsAddrs, NeedsAll: v.needsAll}
	switch {
	case v.decided && v.action != Allow:
		d.Action, d.Code = v.action, codeOf(v.action)
		d.setRule(v.rule)
	case v.decided:
		d.Action, d.Code = Allow, CodeAllowedByRule
		d.setRule(v.rule)
	case v.possible != nil:
		d.Action, d.Code = Allow, CodeAllowedByRule
		d.setRule(v.possible)
	case p.opts.Loopback && isLoopbackTarget(q.Target) && (q.Target.Port == 0 || p.defaultPort(q.Target.Port)):
		v.loopback = true
		d.Action, d.Code = Allow, CodeAllowedByMode
	default:
		d.Action, d.Code = p.modeVerdict(q.Target.Port)
	}
	for _, r := range v.allowRules() {
		d.NamesHost = d.NamesHost || r.namesExactly(q.Target.Host)
		d.ByIPs = d.ByIPs || len(r.Match.Addrs) > 0
	}
	if d.Action != Allow {
		d.NeedsAddrs, d.NeedsAll, d.NamesHost, d.ByIPs = false, false, false, false
		if p.opts.DryRun {
			d.DryRun, d.Would, d.WouldCode = true, d.Action, d.Code
			d.Action, d.Code = Allow, CodeDryRun
		}
	}
	return d
}

func (d *Decision) setRule(r *Rule) {
	if r != nil {
		d.Rule = r.Ref
	}
}

func codeOf(a Action) Code {
	if a == Ask {
		return CodeNeedsApproval
	}
	return CodeDeniedByRule
}

// DecideMode is the decision about a target of which nothing is known, when no rule decides it.
func (p *Policy) DecideMode() Decision {
	if p == nil {
		return Decision{Code: CodeNoPolicy}
	}
	return p.conclude(&Query{}, &verdict{})
}

func (p *Policy) modeVerdict(port uint16) (Action, Code) {
	switch p.opts.Mode {
	case AllowAll:
		if port == 0 || p.defaultPort(port) {
			return Allow, CodeAllowedByMode
		}
	case Whitelist:
		if p.opts.Unlisted == Ask {
			return Ask, CodeNeedsApproval
		}
	case DenyAll:
	}
	return Deny, CodeNotAllowed
}

func isLoopbackTarget(t Target) bool {
	return t.IsLocalhost() || t.IsLiteral() && ClassifyAddr(t.Addr) == ClassLoopback
}

// DecideAddrs judges a target whose addresses are known, and guards them. self tells own interface addresses; it may be
// nil where they cannot be known. The addresses keep their order. An empty answer denies.
func (p *Policy) DecideAddrs(q Query, addrs []netip.Addr, self func(netip.Addr) bool) Decision {
	if p == nil {
		return Decision{Code: CodeNoPolicy}
	}
	d := p.decideAddrs(q, addrs, self)
	if p.also != nil {
		d = strictest(d, p.also.DecideAddrs(q, addrs, self))
	}
	return d
}

// decideAddrs walks the layers with addresses, and guards them.
func (p *Policy) decideAddrs(q Query, addrs []netip.Addr, self func(netip.Addr) bool) Decision {
	judged := make([]address, len(addrs))
	for i, a := range addrs {
		judged[i] = p.classify(a, self)
	}
	v := verdict{}
	for i := range p.layers {
		w := walk{layer: &p.layers[i], query: &q, pol: p, addrs: judged}
		if rule, _, _ := w.run(); rule != nil {
			v.add(rule)
		}
	}
	d := p.conclude(&q, &v)
	if d.Action == Allow && metadataNames[q.Target.Host] && !v.namesExactly(q.Target.Host) {
		d = Decision{Code: CodeMetadataAddress, Mode: p.opts.Mode, Rule: d.Rule}
	}
	d.Addrs = make([]AddrVerdict, len(judged))
	for i := range judged {
		d.Addrs[i] = AddrVerdict{Addr: judged[i].addr, Class: judged[i].class, Why: whyRule}
	}
	if d.Action == Allow {
		p.guard(&d, &v, judged)
	}
	return d
}

func (p *Policy) classify(a netip.Addr, self func(netip.Addr) bool) address {
	class, forms := p.opts.Space.Classify(a)
	if self != nil {
		for i := range forms {
			f := &forms[i]
			if f.Addr.IsValid() && f.Class < ClassSelf && self(f.Addr) {
				f.Class = ClassSelf
				class = max(class, ClassSelf)
			}
		}
	}
	return address{forms[0].Addr, class, forms}
}

// guard marks the addresses that may be dialled: admitted by every allow rule, and public or opened by one. With none
// left, or with some removed under GuardRefuse, the decision becomes a denial.
func (p *Policy) guard(d *Decision, v *verdict, judged []address) {
	admitting := v.allowRules()
	if d.DryRun {
		admitting = nil // a deny or ask decided: its allow rules neither narrow nor open anything
	}
	kept, removed, worst := 0, 0, ClassUnknown
	for i := range judged {
		a, out := &judged[i], &d.Addrs[i]
		if !admittedByAll(admitting, a) {
			continue
		}
		if !p.mayDial(a, v, admitting) {
			out.Why = whyGuard
			removed++
			worst = max(worst, a.class)
			continue
		}
		out.Kept, out.Why = true, ""
		kept++
	}
	if kept > 0 && (removed == 0 || p.opts.Guard != GuardRefuse) {
		return
	}
	for i := range d.Addrs {
		d.Addrs[i].Kept = false
	}
	d.Action, d.DryRun, d.NeedsAddrs = Deny, false, false
	switch {
	case removed == 0:
		d.Code = CodeNotAllowed
	case worst == ClassMetadata:
		d.Code = CodeMetadataAddress
	default:
		d.Code = CodeSpecialUseAddress
	}
}

func admittedByAll(rules []*Rule, a *address) bool {
	for _, r := range rules {
		if !r.addrHolds(&a.forms) {
			return false
		}
	}
	return true
}

func (p *Policy) mayDial(a *address, v *verdict, admitting []*Rule) bool {
	if a.class == ClassPublic || p.opts.Guard == GuardOff && a.class != ClassUnknown {
		return true
	}
	for _, f := range a.forms {
		if f.Addr.IsValid() && f.Class != ClassPublic && !p.opened(f, v, admitting) {
			return false
		}
	}
	return a.class != ClassUnknown
}

func (p *Policy) opened(f Form, v *verdict, admitting []*Rule) bool {
	if f.Class != ClassMetadata && f.Class != ClassSelf && inAny(p.opts.PrivateAllowed, f.Addr) {
		return true
	}
	if v.loopback && f.Class == ClassLoopback {
		return true
	}
	for _, r := range admitting {
		if r.opens(f, p.opts.Space) {
			return true
		}
	}
	return false
}
