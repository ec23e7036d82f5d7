package netrule

import (
	"net/netip"

	"dshproxy/netrule/glob"
)

// Match is the network part of a rule: all dimensions must hold, an empty one does not restrict.
type Match struct {
	Hosts   []HostPattern
	Addrs   []AddrPattern
	Ports   []PortRange
	Schemes []Scheme
}

// Rule is one rule about connections, free of the language it was written in. The zero Rule denies everything.
type Rule struct {
	Ref    RuleRef
	Action Action
	Match  Match
	// Agents restricts the rule to identities. An unknown identity satisfies it in deny and ask rules (else leaving out
	// a token would evade them), never in an allow rule.
	Agents []*glob.Glob
	// Inert, when not empty, says why the rule never decides a connection.
	Inert string
}

// Query is one connection to be judged.
type Query struct {
	Target Target
	// Agents are the names that the proved identity goes by; empty means unknown.
	Agents []string
}

// dimension names what a rule failed on, for Explain.
type dimension string

const (
	dimNone    dimension = ""
	dimInert   dimension = "inert"
	dimDomains dimension = "domains"
	dimIPs     dimension = "ips"
	dimPorts   dimension = "ports"
	dimSchemes dimension = "schemes"
	dimAgents  dimension = "agents"
)

// failsByName tests every dimension but ips, in the order in which people read them, and names the first that fails.
func (r *Rule) failsByName(q *Query, p *Policy) dimension {
	switch {
	case r.Inert != "":
		return dimInert
	case !r.hostHolds(q.Target):
		return dimDomains
	default:
		return r.failsBesideHost(q, p)
	}
}

// failsBesideHost tests what is left when the index has already found the host.
func (r *Rule) failsBesideHost(q *Query, p *Policy) dimension {
	switch {
	case !r.portHolds(q.Target.Port, p):
		return dimPorts
	case !r.schemeHolds(q.Target.Scheme):
		return dimSchemes
	case !r.agentHolds(q.Agents):
		return dimAgents
	default:
		return dimNone
	}
}

func (r *Rule) hostHolds(t Target) bool {
	if len(r.Match.Hosts) == 0 {
		return true
	}
	allowsLiterals := r.Action != Allow || len(r.Match.Addrs) > 0
	for i := range r.Match.Hosts {
		if r.Match.Hosts[i].matches(t, allowsLiterals) {
			return true
		}
	}
	return false
}

// portHolds tests ports. An allow rule without ports admits the policy's default ports; mail and DNS ports need a rule
// that names exactly that port. A target whose port is not known satisfies no list.
func (r *Rule) portHolds(port uint16, p *Policy) bool {
	if len(r.Match.Ports) == 0 {
		return r.Action != Allow || port == 0 || p.defaultPort(port)
	}
	exact := r.Action == Allow && needsExactPort(port)
	for _, pr := range r.Match.Ports {
		if exact && pr.exactly(port) || !exact && pr.Contains(port) {
			return true
		}
	}
	return false
}

func (r *Rule) schemeHolds(s Scheme) bool {
	if len(r.Match.Schemes) == 0 {
		return true
	}
	for _, want := range r.Match.Schemes {
		switch {
		case s == SchemeUnknown || s == SchemeOther:
			return false
		case want == s:
			return true
		case s == SchemeTunnel && (want == SchemeHTTPS || r.Action == Allow):
			return true
		}
	}
	return false
}

func (r *Rule) agentHolds(candidates []string) bool {
	if len(r.Agents) == 0 {
		return true
	}
	if len(candidates) == 0 {
		return r.Action != Allow
	}
	for _, g := range r.Agents {
		for _, c := range candidates {
			if g.Match(c) {
				return true
			}
		}
	}
	return false
}

// addrHolds tests one address in its own form and in the IPv4 form embedded in it.
func (r *Rule) addrHolds(forms *[2]Form) bool {
	if len(r.Match.Addrs) == 0 {
		return true
	}
	for i := range r.Match.Addrs {
		for _, f := range forms {
			if f.Addr.IsValid() && r.Match.Addrs[i].matches(f.Addr) {
				return true
			}
		}
	}
	return false
}

func (r *Rule) anyAddrHolds(addrs []address) bool {
	if len(r.Match.Addrs) == 0 {
		return true
	}
	for i := range addrs {
		if r.addrHolds(&addrs[i].forms) {
			return true
		}
	}
	return false
}

// opens reports whether the rule gives permission for a special-use form, whose inner form only a pattern of its own
// family opens (patterns of the other family cannot match it).
func (r *Rule) opens(f Form, space Space) bool {
	for i := range r.Match.Addrs {
		if r.Match.Addrs[i].opens(f, space) {
			return true
		}
	}
	return false
}

// namesExactly reports whether the rule spells out this name.
func (r *Rule) namesExactly(name string) bool {
	for i := range r.Match.Hosts {
		if r.Match.Hosts[i].names(name) {
			return true
		}
	}
	return false
}

// address is an address under judgement.
type address struct {
	addr  netip.Addr
	class Class
	forms [2]Form
}

// Holds tests a target that a tool call names, for which no lookup is made: addresses are known for literals only.
func (m *Match) Holds(t Target, action Action) bool {
	r := Rule{Action: action, Match: *m}
	p := Policy{opts: Options{DefaultPorts: []PortRange{{1, 65535}}}}
	q := Query{Target: t}
	if r.failsByName(&q, &p) != dimNone {
		return false
	}
	if len(m.Addrs) == 0 {
		return true
	}
	if !t.IsLiteral() {
		return false
	}
	_, forms := Space{}.Classify(t.Addr)
	return r.addrHolds(&forms)
}
