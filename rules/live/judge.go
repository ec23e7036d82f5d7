package live

import (
	"errors"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// Verdict is what a rule set says about a tool call.
type Verdict struct {
	// Passthrough says that nothing is decided: the caller goes on as without rules. Action then means nothing.
	Passthrough bool
	Action      netrule.Action
	Code        netrule.Code
	// Rule is the rule that decided, if one did.
	Rule   netrule.RuleRef
	Reason string
	// Would and WouldCode are the verdict that a dry run left out; Code is then CodeDryRun.
	Would     netrule.Action
	WouldCode netrule.Code
	// Unparsed says that a command did not parse as shell text.
	Unparsed bool
	// Network says that a network rule or the mode decided.
	Network bool
}

// CallLayer is a chain that judges tool calls.
type CallLayer struct {
	Rules []rules.Rule
	name  string
	own   int // rules behind these are the baseline's
}

// NameOf gives the layer that the rule of an index belongs to: "managed", "workspace" or "builtin".
func (l CallLayer) NameOf(index int) string {
	if index >= l.own {
		return "builtin"
	}
	return l.name
}

// CallLayers gives the chains that judge tool calls; the baseline stands at the end of the workspace's.
func (s *Snapshot) CallLayers() []CallLayer {
	return []CallLayer{{s.Managed, "managed", len(s.Managed)}, {s.calls, "workspace", len(s.Chain)}}
}

// Judge decides a tool call: the floor, then every layer in its own order, deny before ask before allow. A call of a web
// tool to one URL that no rule of its own decides is judged as the connection that it makes, with the same verdict, code
// and rule as at the proxy. An error means that the arguments are no JSON; the caller must refuse the call.
func (s *Snapshot) Judge(c rules.Call, selfProtect bool) (Verdict, error) {
	v, err := s.judge(c, selfProtect)
	if errors.Is(err, rules.ErrTooMuch) {
		return Verdict{Code: netrule.CodeBadRequest, Reason: err.Error()}, nil // denied, as any call that slips out of sight
	}
	return v, err
}

func (s *Snapshot) judge(c rules.Call, selfProtect bool) (Verdict, error) {
	p, err := rules.Prepare(c)
	if err != nil {
		return Verdict{}, err
	}
	if selfProtect {
		reason, err := p.Floor()
		if err != nil {
			return Verdict{}, err
		}
		if reason != "" {
			return Verdict{Code: netrule.CodeDeniedByRule, Reason: reason}, nil
		}
	}
	v := Verdict{Passthrough: true}
	connects := true // no rule that judges tool calls alone has decided
	for _, l := range s.CallLayers() {
		m, err := rules.NewRuleset(l.Rules).MatchPrepared(p)
		if err != nil {
			return Verdict{}, err
		}
		v.Unparsed = v.Unparsed || m.Unparsed
		if !m.Matched || !v.Passthrough && v.Action <= m.Action {
			continue
		}
		v.Passthrough, v.Action, v.Code = false, m.Action, codeOf(m.Action)
		v.Rule = netrule.RuleRef{File: m.Rule.File, Line: m.Rule.Line, Index: m.Index, Reason: m.Rule.Reason, Layer: l.NameOf(m.Index)}
		v.Reason, v.Network = m.Rule.Reason, m.Rule.Match.Network != nil
		connects = m.Rule.DecidesConnections(c.Host)
	}
	if c.IsWeb() && (connects || v.Passthrough) {
		if d, decided := s.judgeWeb(p.Targets(), c.Agents, v.Passthrough); decided {
			return Verdict{Passthrough: d.DryRun, Action: d.Action, Code: d.Code, Rule: d.Rule, Reason: d.Rule.Reason, Would: d.Would, WouldCode: d.WouldCode, Unparsed: v.Unparsed, Network: true}, nil
		}
	}
	if s.Policy.Options().DryRun && !v.Passthrough && v.Action != netrule.Allow {
		v.Would, v.WouldCode, v.Code, v.Passthrough = v.Action, v.Code, netrule.CodeDryRun, true
	}
	return v, nil
}

// judgeWeb gives the decision about the connection of a web tool's call, or that of the mode when no rule has decided and
// the call names no target or several.
func (s *Snapshot) judgeWeb(targets []netrule.Target, agents []string, open bool) (d netrule.Decision, decided bool) {
	switch {
	case len(targets) == 1:
		return s.Policy.DecideOffline(netrule.Query{Target: targets[0], Agents: agents}), true
	case open:
		d = s.Policy.DecideMode()
		return d, d.Action != netrule.Allow || d.DryRun
	default:
		return d, false
	}
}

func codeOf(a netrule.Action) netrule.Code {
	switch a {
	case netrule.Allow:
		return netrule.CodeAllowedByRule
	case netrule.Ask:
		return netrule.CodeNeedsApproval
	default:
		return netrule.CodeDeniedByRule
	}
}
