package rules

import (
	"errors"
	"slices"

	"dshproxy/netrule"
	"dshproxy/rules/shellword"
	"dshproxy/rules/toolspec"
	"dshproxy/rules/work"
)

// Call is one tool call to be judged.
type Call struct {
	Tool string
	// Alias is another name of the tool that tools patterns may match, if it has one.
	Alias string
	// Args is the JSON text of the arguments. Rules that look into arguments match only a JSON object.
	Args []byte
	// Workspace is the root that paths are relative to.
	Workspace string
	// Cwd is the absolute folder that relative paths of the call start from, where that is not the workspace.
	Cwd string
	// Agents are the names that the caller goes by; empty means unknown, which no agents dimension matches.
	Agents []string
	// Host is the machine that the call runs on.
	Host Host
	// Protected are absolute paths of files and folders that the floor lets no call change, besides those that it knows by
	// their names: what is equal to one or lies below it, and moving or removing a folder above one.
	Protected []string
}

// IsWeb reports a call of a tool that does nothing but fetch: it falls back to the network mode when no rule decides.
func (c *Call) IsWeb() bool { return c.Tool == "web_fetch" || c.Tool == "web_search" }

// Targets gives what the call would connect to, as far as it says.
func (p *Prepared) Targets() []netrule.Target {
	if p.facts.args.kind != argObject {
		return nil
	}
	targets := p.facts.callTargets()
	if p.facts.call.IsWeb() && len(targets) == 1 {
		p.facts.shellTargets()
		if p.facts.unknown {
			// Programs do not agree on where it goes.
			targets = append(slices.Clip(targets), p.facts.loose...)
		}
	}
	return targets
}

// Work is what is left of the work that judging the call may cost. Who else judges the call takes it from there.
func (p *Prepared) Work() *work.Budget { return p.facts.work }

// Err gives ErrTooMuch when the call could not be looked at as a whole.
func (p *Prepared) Err() error { return p.facts.err() }

// Script gives the command of the call as it has been read, or nil when it has none.
func (p *Prepared) Script() *toolspec.Script {
	a := p.facts.args.get("command")
	if a == nil || a.kind != argString || p.facts.shellViews().tooMuch {
		return nil
	}
	if p.script != nil {
		return p.script
	}
	if stmts, ok := p.facts.views.trees[a.text]; ok && shellword.EndComments(a.text) == a.text {
		p.script = toolspec.ReadStatements(a.text, stmts)
		return p.script
	}
	if !p.facts.work.Spend(3*parseCost(a.text)) || nesting(a.text) > maxShellDepth {
		p.facts.work.Empty()
		return nil
	}
	p.script = toolspec.ReadScript(a.text)
	return p.script
}

// Input gives the arguments as encoding/json decodes an object, or nil when they are none.
func (p *Prepared) Input() map[string]any {
	if p.facts.args.kind != argObject {
		return nil
	}
	if p.input == nil {
		p.input, _ = p.facts.args.value().(map[string]any)
	}
	return p.input
}

// DecidesConnections reports whether a rule judges connections too, and not tool calls alone.
func (r *Rule) DecidesConnections(h Host) bool { return r.inert(h) == "" }

// Verdict is what a rule set says about a call.
type Verdict struct {
	// Matched is false for passthrough: no rule says anything.
	Matched bool
	Action  netrule.Action
	Index   int
	Rule    *Rule
	// Unparsed says that a command was no shell text that parses as a whole; the rest was split by words alone.
	Unparsed bool
}

// Ruleset is a merged chain, ready to judge calls. It is safe for concurrent use.
type Ruleset struct{ rules []Rule }

// NewRuleset takes a chain over.
func NewRuleset(chain []Rule) *Ruleset { return &Ruleset{chain} }

// Rules gives the chain; the caller must not change it.
func (s *Ruleset) Rules() []Rule { return s.rules }

// Match judges a call: rules in order, the first whose every dimension holds decides. An error means that the arguments
// are no JSON or too much to be looked at as a whole, and the caller must refuse the call.
func (s *Ruleset) Match(c Call) (Verdict, error) {
	p, err := Prepare(c)
	if err != nil {
		return Verdict{}, err
	}
	return s.MatchPrepared(p)
}

// Prepared is a call that is read once and judged by several rule sets. It is not safe for concurrent use.
type Prepared struct {
	facts *facts
	// What other judges ask for, once they have.
	input  map[string]any
	script *toolspec.Script
}

// Prepare reads the arguments of a call. An error means that they are no JSON, and the caller must refuse the call.
func Prepare(c Call) (*Prepared, error) {
	f, err := newFacts(&c)
	if err != nil {
		return nil, err
	}
	return &Prepared{facts: f}, nil
}

// MatchPrepared is Match for a call that has been read.
func (s *Ruleset) MatchPrepared(p *Prepared) (Verdict, error) {
	f := p.facts
	for i := range s.rules {
		r := &s.rules[i]
		if f.work.Over() {
			return Verdict{}, ErrTooMuch
		}
		if r.Enabled && r.failsCall(f) == "" {
			return Verdict{Matched: true, Action: r.Action, Index: i, Rule: r, Unparsed: f.unparsed()}, f.err()
		}
	}
	return Verdict{Unparsed: f.unparsed()}, f.err()
}

// CallLine is one rule of the explanation of a call.
type CallLine struct {
	Rule    *Rule
	Index   int
	Outcome netrule.Outcome
	Failed  string // dimension
}

// Explain is Match with a line a rule.
func (s *Ruleset) Explain(c Call) (Verdict, []CallLine, error) {
	f, err := newFacts(&c)
	if err != nil {
		return Verdict{}, nil, err
	}
	v := Verdict{}
	lines := make([]CallLine, len(s.rules))
	for i := range s.rules {
		r := &s.rules[i]
		l := CallLine{Rule: r, Index: i}
		switch {
		case !r.Enabled:
			l.Outcome = netrule.OutcomeInert
		case v.Matched:
			l.Outcome = netrule.OutcomeNotReached
		default:
			if l.Failed = r.failsCall(f); l.Failed != "" {
				l.Outcome = netrule.OutcomeFailed
				break
			}
			l.Outcome = netrule.OutcomeMatched
			v = Verdict{Matched: true, Action: r.Action, Index: i, Rule: r}
		}
		lines[i] = l
	}
	v.Unparsed = f.unparsed()
	return v, lines, f.err()
}

// facts are what rules ask about a call, each found out once and only when a rule asks.
type facts struct {
	call    *Call
	args    arg
	tooMuch bool
	work    *work.Budget // what is left of it for the call

	pathsDone bool
	paths     []string
	// otherPaths are relative paths as if the working folder were the workspace: it is what the caller says it is, so deny
	// and ask rules look at both.
	otherPaths []string

	commandsDone bool
	commands     []commandText
	lexical      pooled

	viewsDone bool
	views     shellViews

	targetsDone bool
	targets     []netrule.Target // as the format has them
	moreDone    bool
	loose       []netrule.Target // what may as well be something else, for deny and ask rules alone
	unknown     bool             // the call goes to what it does not show
	more        []netrule.Target // what only deny and ask rules look at, or must be covered by an allow
}

func newFacts(c *Call) (*facts, error) {
	left := work.New(work.PerCall)
	args, err := parseArgs(c.Args, left)
	if err != nil {
		return nil, err
	}
	return &facts{call: c, args: args, work: left}, nil
}

// ErrTooMuch is a call that cannot be judged whole. What is not looked at would pass.
var ErrTooMuch = errors.New("the call is too long or too deeply nested to be judged")

// get gives the value of a top-level key.
func (f *facts) get(key string) *arg {
	f.work.Spend(3 * len(f.args.keys))
	return f.args.get(key)
}

func (f *facts) err() error {
	if f.views.tooMuch || f.tooMuch || f.work.Over() {
		return ErrTooMuch
	}
	return nil
}

func (f *facts) unparsed() bool { return f.viewsDone && f.views.unparsed }

// failsCall names the first dimension that does not hold, or is empty.
func (r *Rule) failsCall(f *facts) string {
	m := &r.Match
	switch {
	case len(m.Tools) > 0 && !anyGlob(m.Tools, f.call.Tool, f.work) && (f.call.Alias == "" || !anyGlob(m.Tools, f.call.Alias, f.work)):
		return "tools"
	case len(m.Agents) > 0 && !m.agentsHold(f.call.Agents, f.work):
		return "agents"
	case len(m.Params) > 0 && !m.paramsHold(f):
		return "params"
	case !m.absentHolds(f):
		return "absent"
	case !m.When.Holds(f.call.Host):
		return "when"
	case len(m.Paths) > 0 && !r.pathsHold(f):
		return "paths"
	case m.Argv != nil && !m.Argv.holds(f, r.Action):
		return "argv"
	case m.Network != nil && !r.networkHolds(f):
		return "network"
	default:
		return ""
	}
}

// agentsHold: some selector matches some candidate; an unknown caller matches none.
func (m *Match) agentsHold(candidates []string, left *work.Budget) bool {
	for _, c := range candidates {
		if anyGlob(m.Agents, c, left) {
			return true
		}
	}
	return false
}

// paramsHold: every key is there with a scalar that its patterns accept.
func (m *Match) paramsHold(f *facts) bool {
	if f.args.kind != argObject {
		return false
	}
	for i := range m.Params {
		v := f.get(m.Params[i].Key)
		if v == nil || !acceptAny(m.Params[i].Patterns, v.scalars(nil, 0), f.work) {
			return false
		}
	}
	return true
}

// acceptAny: some value matches some positive pattern, if there are any, and no value matches a negative one. Without a
// value nothing holds.
func acceptAny(patterns []Pattern, values []string, left *work.Budget) bool {
	if len(values) == 0 {
		return false
	}
	positive, hit := false, false
	for i := range patterns {
		p := &patterns[i]
		matched := false
		for _, v := range values {
			if p.within(v, left) {
				matched = true
				break
			}
		}
		if p.Negate && matched {
			return false
		}
		positive = positive || !p.Negate
		hit = hit || !p.Negate && matched
	}
	return hit || !positive
}

func (m *Match) absentHolds(f *facts) bool {
	if f.args.kind != argObject {
		return true
	}
	for _, key := range m.Absent {
		if f.get(key) != nil {
			return false
		}
	}
	return true
}

func (r *Rule) pathsHold(f *facts) bool {
	matches := func(candidate string) bool { return anyWithin(r.Match.Paths, candidate, f.work) }
	return slices.ContainsFunc(f.pathCandidates(), matches) || r.Action != netrule.Allow && slices.ContainsFunc(f.otherPaths, matches)
}
