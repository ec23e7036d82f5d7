package netrule

import (
	"net/netip"
	"slices"
)

// Outcome is what became of one rule in a walk.
type Outcome string

// The outcomes.
const (
	OutcomeMatched    Outcome = "matched"
	OutcomeFailed     Outcome = "failed"          // Line.Failed names the dimension
	OutcomeNeedsAddrs Outcome = "needs addresses" // its other dimensions hold; ips waits for a lookup
	OutcomeInert      Outcome = "inert"           // Line.Note says why it never decides a connection
	OutcomeNotReached Outcome = "not reached"     // an earlier rule of its layer ended the walk
)

// Line is one rule of an explanation.
type Line struct {
	Rule    RuleRef
	Action  Action
	Outcome Outcome
	Failed  string
	Note    string
}

// Explanation is a decision with a line for every rule of every layer.
type Explanation struct {
	Decision Decision
	Lines    []Line
}

// Explain decides as Decide (addrs nil) or DecideAddrs do, and tells what each rule had to do with it.
func (p *Policy) Explain(q Query, addrs []netip.Addr, self func(netip.Addr) bool) Explanation {
	if q.Target.IsLiteral() {
		addrs = []netip.Addr{q.Target.Addr}
	}
	e := Explanation{}
	if addrs == nil {
		e.Decision = p.Decide(q)
	} else {
		e.Decision = p.DecideAddrs(q, addrs, self)
	}
	if p == nil {
		return e
	}
	var judged []address
	for _, a := range addrs {
		judged = append(judged, p.classify(a, self))
	}
	for i := range p.layers {
		e.Lines = append(e.Lines, p.explainLayer(&p.layers[i], &q, judged)...)
	}
	if p.also != nil {
		e.Lines = append(e.Lines, p.explainOther(&q, judged)...)
	}
	return e
}

// explainOther explains the layers that only the other policy of And has.
func (p *Policy) explainOther(q *Query, judged []address) []Line {
	var lines []Line
	for i := range p.also.layers {
		l := &p.also.layers[i]
		if !slices.ContainsFunc(p.layers, func(own layer) bool { return own.name == l.name }) {
			lines = append(lines, p.also.explainLayer(l, q, judged)...)
		}
	}
	return lines
}

// explainLayer is the definition of a walk: rule by rule, in order. The index must agree with it, and a fuzz test holds
// it to that.
func (p *Policy) explainLayer(l *layer, q *Query, judged []address) []Line {
	lines := make([]Line, len(l.rules))
	ended := false
	for i := range l.rules {
		r := &l.rules[i]
		line := Line{Rule: r.Ref, Action: r.Action}
		failed := r.failsByName(q, p)
		switch {
		case failed == dimInert:
			line.Outcome, line.Note = OutcomeInert, r.Inert
		case ended:
			line.Outcome = OutcomeNotReached
		case failed != dimNone:
			line.Outcome, line.Failed = OutcomeFailed, string(failed)
		case len(r.Match.Addrs) > 0 && judged == nil:
			line.Outcome = OutcomeNeedsAddrs
			ended = r.Action == Allow
		case !r.anyAddrHolds(judged):
			line.Outcome, line.Failed = OutcomeFailed, string(dimIPs)
		default:
			line.Outcome = OutcomeMatched
			ended = true
		}
		lines[i] = line
	}
	return lines
}
