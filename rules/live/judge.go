package live

import (
	"errors"
	"slices"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/surface"
	"dshproxy/rules/toolspec"
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
	own   int   // rules behind these are the baseline's
	at    []int // the places of the rules in the merged chain; nil where they are the same
	last  bool  // asked only when no other layer but the managed one has a rule for the call
}

// NameOf gives the layer that the rule of an index belongs to: "managed", "workspace" or "builtin".
func (l CallLayer) NameOf(index int) string {
	if index >= l.own {
		return "builtin"
	}
	return l.name
}

// IndexOf gives the place of a rule in the merged chain.
func (l CallLayer) IndexOf(index int) int {
	if l.at == nil {
		return index
	}
	return l.at[index]
}

// CallLayers gives the chains that judge tool calls; the baseline stands at the end of the workspace's. Files that are
// not accepted are layers of their own, and the baseline then stands behind them all.
func (s *Snapshot) CallLayers() []CallLayer {
	out := []CallLayer{{Rules: s.Managed, name: "managed", own: len(s.Managed)}}
	if s.layers == nil {
		return append(out, CallLayer{Rules: slices.Concat(s.Chain, s.Baseline), name: "workspace", own: len(s.Chain)})
	}
	for _, layer := range s.layers {
		l := CallLayer{name: "workspace", own: len(layer), at: layer}
		for _, at := range layer {
			l.Rules = append(l.Rules, s.Chain[at])
		}
		out = append(out, l)
	}
	baseline := CallLayer{Rules: s.Baseline, name: "builtin", last: true}
	for i := range s.Baseline {
		baseline.at = append(baseline.at, len(s.Chain)+i)
	}
	return append(out, baseline)
}

// Judge decides a tool call: the floor, then every layer and dialect in its own order, deny before ask before allow. A
// call of a web tool to one URL that no rule of its own decides is judged as the connection that it makes, with the same
// verdict, code and rule as at the proxy. An error means that the arguments are no JSON; the caller must refuse the call.
func (s *Snapshot) Judge(c rules.Call, selfProtect bool) (Verdict, error) {
	p, err := rules.Prepare(c)
	var v Verdict
	if err == nil {
		v, err = s.judge(c, p, selfProtect)
	}
	if s.Pending != nil && err == nil {
		var now Verdict
		if now, err = s.Pending.judge(c, p, selfProtect); now.strictness() < v.strictness() {
			v = now
		}
	}
	if errors.Is(err, rules.ErrTooMuch) {
		return Verdict{Code: netrule.CodeBadRequest, Reason: err.Error()}, nil // denied, as any call that slips out of sight
	}
	return v, err
}

// strictness orders verdicts, the strictest first: deny, ask, nothing said, allow.
func (v *Verdict) strictness() int {
	action := v.Action
	if v.Code == netrule.CodeDryRun {
		action = v.Would
	}
	switch {
	case v.Passthrough && v.Code != netrule.CodeDryRun:
		return 2
	case action == netrule.Deny:
		return 0
	case action == netrule.Ask:
		return 1
	default:
		return 3
	}
}

func (s *Snapshot) judge(c rules.Call, p *rules.Prepared, selfProtect bool) (Verdict, error) {
	if selfProtect {
		reason, err := p.Floor()
		if err != nil {
			return Verdict{}, err
		}
		if reason != "" {
			// A rule that denies the call too says more.
			if v, err := s.judgeByRules(c, p); err == nil && v.Rule.Valid() && v.Action == netrule.Deny && v.Code == netrule.CodeDeniedByRule {
				return v, nil
			}
			return Verdict{Code: netrule.CodeDeniedByRule, Reason: reason}, nil
		}
	}
	return s.judgeByRules(c, p)
}

// judgeByRules asks the layers of dsh rules, and after them the network mode.
func (s *Snapshot) judgeByRules(c rules.Call, p *rules.Prepared) (Verdict, error) {
	v := Verdict{Passthrough: true}
	connects := true // no rule that judges tool calls alone has decided
	decided := false // by the workspace's rules, before which the baseline gives way
	for _, l := range s.calls {
		if l.last && decided {
			continue
		}
		m, err := rules.NewRuleset(l.Rules).MatchPrepared(p)
		if err != nil {
			return Verdict{}, err
		}
		v.Unparsed = v.Unparsed || m.Unparsed
		if !m.Matched {
			continue
		}
		decided = decided || l.name != "managed"
		ref := netrule.RuleRef{File: m.Rule.File, Line: m.Rule.Line, Index: l.IndexOf(m.Index), Reason: m.Rule.Reason, Layer: l.NameOf(m.Index)}
		if v.take(m.Action, ref) {
			v.Network, connects = m.Rule.Match.Network != nil, m.Rule.DecidesConnections(c.Host)
		}
	}
	if m := s.claudeVerdict(&c, p); m.Matched {
		m.Ref = s.mark(m.Ref)
		m.Ref.Layer = string(ClaudeSettings)
		if v.take(m.Action, m.Ref) {
			v.Network, connects = m.Connects, m.Connects
		}
	}
	if err := s.takeHosts(&v, &c, p); err != nil {
		return Verdict{}, err
	}
	enforced := false // by the policy of connections, which has taken a dry run into account
	if c.IsWeb() && (connects || v.Passthrough) {
		if d, decided := s.judgeWeb(p.Targets(), c.Agents, v.Passthrough); decided {
			v = Verdict{Passthrough: d.DryRun, Action: d.Action, Code: d.Code, Rule: d.Rule, Reason: d.Rule.Reason, Would: d.Would, WouldCode: d.WouldCode, Unparsed: v.Unparsed, Network: true}
			enforced = true
		}
	}
	if s.takePi(&v, &c, p) {
		enforced = false
	}
	if err := p.Err(); err != nil {
		return Verdict{}, err
	}
	if s.Policy.Options().DryRun && !enforced && !v.Passthrough && v.Action != netrule.Allow {
		v.Would, v.WouldCode, v.Code, v.Passthrough = v.Action, v.Code, netrule.CodeDryRun, true
	}
	return v, nil
}

// take lets a rule decide, if none has that is as strict.
func (v *Verdict) take(action netrule.Action, ref netrule.RuleRef) bool {
	if !v.Passthrough && v.Action <= action {
		return false
	}
	v.Passthrough, v.Action, v.Code, v.Rule, v.Reason, v.Network = false, action, codeOf(action), ref, ref.Reason, false
	return true
}

// claudeVerdict asks the settings of the client about a call.
func (s *Snapshot) claudeVerdict(c *rules.Call, p *rules.Prepared) toolspec.Verdict {
	if s.Claude == nil {
		return toolspec.Verdict{}
	}
	return s.Claude.Decide(toolspec.Call{Tool: c.ClientTool(), Input: p.Input(), Script: p.Script(), Work: p.Work()}, toolspec.Scope{Cwd: cwdOf(c), Workspace: c.Workspace, Home: s.home})
}

// takeHosts combines what the settings refuse of the hosts that a shell command names, as they do at the proxy. What they
// allow there is the proxy's to say.
func (s *Snapshot) takeHosts(v *Verdict, c *rules.Call, p *rules.Prepared) error {
	if s.hosts == nil || c.Tool != "bash" && c.Tool != "pwsh" {
		return nil
	}
	m, err := rules.NewRuleset(s.refusals).MatchPrepared(p)
	if err != nil {
		return err
	}
	if m.Matched && v.take(m.Action, s.refusalRefs[m.Index]) {
		v.Network = true
	}
	if !s.Claude.Strict() {
		return nil
	}
	for _, t := range p.Targets() {
		if !p.Work().Spend((50 + 3*len(t.Host)) * s.hostRules) {
			return rules.ErrTooMuch
		}
		d := s.hosts.Decide(netrule.Query{Target: t, Agents: c.Agents})
		if d.Matched() && d.Action != netrule.Allow && v.take(d.Action, d.Rule) {
			v.Network = true
		}
	}
	return nil
}

// takePi combines what the permission files say, which always say something.
func (s *Snapshot) takePi(v *Verdict, c *rules.Call, p *rules.Prepared) bool {
	if s.Pi == nil || v.Code == netrule.CodeDryRun {
		return false
	}
	call := surface.Call{Tool: c.Tool, Args: p.Input(), Cwd: cwdOf(c), Home: s.home, Script: p.Script(), Work: p.Work()}
	action, ref := s.Pi.Decide(call)
	for _, one := range s.piApart {
		if a, other := one.Decide(call); a < action {
			action, ref = a, other
		}
	}
	if ref.File == "" {
		ref.Reason = "no permission rule allows this call"
	} else {
		ref = s.mark(ref)
		ref.Layer = string(PiPermission)
	}
	return v.take(action, ref)
}

// cwdOf is the folder that relative paths of a call start from.
func cwdOf(c *rules.Call) string {
	if c.Cwd != "" {
		return c.Cwd
	}
	return c.Workspace
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
