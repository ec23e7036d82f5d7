package rules

import (
	"dshproxy/netrule"
	"dshproxy/netrule/glob"
	"dshproxy/rules/tree"
)

// ParseError is a rule file that does not load.
type ParseError = tree.Error

// nodesPerRule bounds the size of a file by the number of rules that it may hold.
const nodesPerRule = 1000

// Defaults of the format.
const (
	DefaultMaxRules     = 256
	DefaultMaxRuleBytes = 16 << 20
)

// Options change how a rule file is read. The zero value is the format's default.
type Options struct {
	// Regex reads params, paths, when.env, argv.args and argv.anyArg as JavaScript regular expressions (patternMode).
	Regex bool
	// MaxGlobStars caps the stars of a glob; 0 means 2.
	MaxGlobStars int
	// MaxRules caps the rules of a whole chain; 0 means 256. Parse uses it to bound the size of the tree.
	MaxRules int
	// CaseInsensitivePaths folds the case of paths globs.
	CaseInsensitivePaths bool
}

func (o Options) maxRules() int {
	if o.MaxRules == 0 {
		return DefaultMaxRules
	}
	return o.MaxRules
}

// Document is one parsed rule file.
type Document struct {
	File  string
	Rules []Rule
	// HasRules is false for an empty file or one without the key: no rules were written, not even an empty list.
	HasRules bool
}

// Rule is one rule as written, with every pattern compiled.
type Rule struct {
	File        string
	Line, Col   int
	Action      netrule.Action
	Reason      string
	Enabled     bool
	Description string
	Tags        []string
	Match       Match
}

// Match has every dimension of a rule. All must hold; an empty one does not restrict.
type Match struct {
	Tools, Agents []*glob.Glob
	Params        []Keyed
	Paths         []Pattern
	Absent        []string
	When          When
	Argv          *Argv
	Network       *Network
}

// Keyed is a key with its patterns.
type Keyed struct {
	Key      string
	Patterns []Pattern
}

// Pattern is a glob or a regular expression, negated by a leading "!" where the format has that.
type Pattern struct {
	Text   string
	Negate bool
	glob   *glob.Glob
	regex  *regex
}

// Match reports whether the text matches, before negation.
func (p *Pattern) Match(text string) bool {
	if p.regex != nil {
		return p.regex.MatchString(text)
	}
	return p.glob != nil && p.glob.Match(text)
}

// When restricts a rule to hosts.
type When struct {
	Env       []Keyed
	Platforms []string
}

// Argv restricts a rule by the words of a shell command.
type Argv struct {
	Command, Pipeline []*glob.Glob
	Args, AnyArg      []Pattern
	eachCommand       bool // the pooled view of all commands together does not count
}

// Network is the network block: the neutral match and, for lint, where each pattern stands.
type Network struct {
	netrule.Match
	Positions []Position
}

// Position is one pattern of a network block.
type Position struct {
	Field string // domains, ips, ports, schemes
	Text  string
	Line  int
	Col   int
}

// Host is the machine that rules are evaluated for: when, and which tools a connection counts as.
type Host struct {
	Platform string // as in when.platform
	Env      func(name string) (string, bool)
	// FoldPaths ignores the case of the workspace's own path, as Windows does.
	FoldPaths bool
}

// Platforms is the closed list of when.platform.
func Platforms() []string {
	return []string{"aix", "android", "darwin", "freebsd", "linux", "openbsd", "sunos", "win32"}
}

// Platform gives the name that rule files use for a GOOS.
func Platform(goos string) string {
	switch goos {
	case "windows":
		return "win32"
	case "solaris", "illumos":
		return "sunos"
	default:
		return goos
	}
}

// Holds reports whether the conditions hold on a host.
func (w *When) Holds(h Host) bool {
	if len(w.Platforms) > 0 {
		found := false
		for _, p := range w.Platforms {
			found = found || p == h.Platform
		}
		if !found {
			return false
		}
	}
	for i := range w.Env {
		value, set := "", false
		if h.Env != nil {
			value, set = h.Env(w.Env[i].Key)
		}
		if !set || !anyMatches(w.Env[i].Patterns, value) {
			return false
		}
	}
	return true
}

func anyMatches(patterns []Pattern, text string) bool {
	for i := range patterns {
		if patterns[i].Match(text) {
			return true
		}
	}
	return false
}

// Connections gives the rules as a connection sees them: same number, same order, those that never decide one marked
// inert with the reason.
func Connections(rules []Rule, h Host) []netrule.Rule {
	out := make([]netrule.Rule, len(rules))
	for i := range rules {
		out[i] = rules[i].connection(i, h)
	}
	return out
}

func (r *Rule) connection(index int, h Host) netrule.Rule {
	out := netrule.Rule{
		Ref:    netrule.RuleRef{File: r.File, Line: r.Line, Index: index, Reason: r.Reason},
		Action: r.Action,
		Agents: r.Match.Agents,
		Inert:  r.inert(h),
	}
	if r.Match.Network != nil {
		out.Match = r.Match.Network.Match
	}
	return out
}

// inert says why a rule never decides a connection, or is empty. A connection counts as the tools bash and pwsh.
func (r *Rule) inert(h Host) string {
	m := &r.Match
	switch {
	case !r.Enabled:
		return "disabled"
	case m.Network == nil:
		return "no network block: it judges tool calls only"
	case len(m.Params) > 0:
		return "params stands beside network: it judges tool calls only"
	case len(m.Paths) > 0:
		return "paths stands beside network: it judges tool calls only"
	case len(m.Absent) > 0:
		return "absent stands beside network: it judges tool calls only"
	case m.Argv != nil:
		return "argv stands beside network: it judges tool calls only"
	case !coversShell(m.Tools):
		return "tools covers neither bash nor pwsh, which connections count as"
	case !m.When.Holds(h):
		return "when does not hold on this host"
	default:
		return ""
	}
}

func coversShell(tools []*glob.Glob) bool {
	for _, g := range tools {
		if g.Match("bash") || g.Match("pwsh") {
			return true
		}
	}
	return len(tools) == 0
}
