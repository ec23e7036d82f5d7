package rules

import (
	"fmt"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/netrule/glob"
)

// Severity of a finding.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// The codes of findings. They are stable.
const (
	LintError         = "error"          // the file does not load
	LintShadowed      = "shadowed"       // an earlier rule matches everything this one does
	LintInert         = "inert"          // the rule never decides a connection although it has a network block
	LintForcesLookup  = "forces-lookup"  // every name has to be looked up before the rule can be passed
	LintAnyPort       = "any-port"       // an allow rule that names no ports
	LintSharedHosting = "shared-hosting" // an allow rule for a suffix under which anybody can have a host
	LintHostBits      = "host-bits"      // a prefix with bits set below its length
	LintRangeFromZero = "range-from-0"   // a port range that starts at 0
	LintOverBroad     = "over-broad"     // an allow rule for every host
	LintUnopened      = "unopened"       // an allow rule for a special-use address that no ips opens
	LintPooledArgv    = "pooled-argv"    // an allow rule with argv, which sees all words of a call together
	LintDoubleStar    = "double-star"    // "**/" that also matches in the middle of a name
)

// Finding is one thing that lint has to say.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Col      int      `json:"column"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// ErrorFinding makes a finding of a file that does not load.
func ErrorFinding(file string, err *ParseError) Finding {
	return Finding{LintError, SeverityError, file, err.Line, err.Col, err.What, err.Hint}
}

// Lint looks at the rules of one chain, in order. publicSuffix reports whether a name is a public suffix, such as com or
// github.io; nil skips the test.
func Lint(chain []Rule, h Host, publicSuffix func(name string) bool) []Finding {
	l := linter{host: h, publicSuffix: publicSuffix}
	for i := range chain {
		r := &chain[i]
		if !r.Enabled {
			continue
		}
		l.rule(r)
		if r.Match.Network != nil && r.inert(h) == "" {
			l.shadowed(chain[:i], r)
		}
	}
	slices.SortStableFunc(l.out, func(a, b Finding) int { return strings.Compare(a.File, b.File)*1_000_000 + a.Line - b.Line })
	return l.out
}

type linter struct {
	host         Host
	publicSuffix func(string) bool
	out          []Finding
}

func (l *linter) warn(code string, r *Rule, line, col int, hint, format string, args ...any) {
	l.out = append(l.out, Finding{code, SeverityWarning, r.File, line, col, fmt.Sprintf(format, args...), hint})
}

// LintCodes lists the codes of findings.
func LintCodes() []string {
	return []string{LintError, LintShadowed, LintInert, LintForcesLookup, LintAnyPort, LintSharedHosting, LintHostBits, LintRangeFromZero, LintOverBroad, LintUnopened, LintPooledArgv, LintDoubleStar}
}

func (l *linter) rule(r *Rule) {
	if r.Action == netrule.Allow && r.Match.Argv != nil {
		l.warn(LintPooledArgv, r, r.Line, r.Col, "deny what must not run instead; deny and ask rules see each command", "an allow rule with argv sees all words of a call together: a second command in the same call passes too")
	}
	for i := range r.Match.Paths {
		l.doubleStar(r, &r.Match.Paths[i])
	}
	n := r.Match.Network
	if n == nil {
		return
	}
	if why := r.inert(l.host); why != "" && !strings.HasPrefix(why, "when") {
		l.warn(LintInert, r, r.Line, r.Col, "split it: one rule for tool calls, one with network alone for connections", "the rule never decides a connection: %s", why)
	}
	if r.Action != netrule.Allow && len(n.Addrs) > 0 && len(n.Hosts) == 0 {
		l.warn(LintForcesLookup, r, r.Line, r.Col, "put it behind the rules that decide by name, or add domains", "a %s rule with ips and no domains: names that pass it are looked up first", r.Action)
	}
	if r.Action == netrule.Allow && anyHost(n) {
		l.warn(LintOverBroad, r, r.Line, r.Col, "name the hosts; mode allow-all says the same for a whole policy", "an allow rule for every host")
	}
	if r.Action == netrule.Allow && len(n.Ports) == 0 {
		l.warn(LintAnyPort, r, r.Line, r.Col, "add ports: [443]", "an allow rule without ports admits every port of network.defaultPorts")
	}
	for _, p := range n.Positions {
		l.pattern(r, p)
	}
}

// anyHost reports a network block that no host fails.
func anyHost(n *Network) bool {
	if len(n.Hosts) == 0 {
		return len(n.Addrs) == 0 || slices.Contains(texts(n, "ips"), "0.0.0.0/0") || slices.Contains(texts(n, "ips"), "::/0")
	}
	return len(n.Addrs) == 0 && slices.ContainsFunc(n.Hosts, netrule.HostPattern.Any)
}

// doubleStar warns of a "**/" that the format also lets stand for the first part of a name.
func (l *linter) doubleStar(r *Rule, p *Pattern) {
	rest, ok := strings.CutPrefix(p.Text, "**/")
	if ok && !glob.HasMeta(rest) && p.Match("x"+rest) {
		l.warn(LintDoubleStar, r, r.Line, r.Col, "", "%q also matches %q", p.Text, "x"+rest)
	}
}

func (l *linter) pattern(r *Rule, p Position) {
	switch p.Field {
	case "domains":
		if t, err := netrule.ParseURL(strings.TrimPrefix(p.Text, "=")); err == nil && t.IsLiteral() && r.Action == netrule.Allow && len(r.Match.Network.Addrs) == 0 && netrule.ClassifyAddr(t.Addr) != netrule.ClassPublic {
			l.warn(LintUnopened, r, p.Line, p.Col, fmt.Sprintf("add ips: [%q]", t.Addr), "%q is a special-use address, which only ips opens: the rule allows nothing", p.Text)
		}
		h, err := netrule.ParseHostPattern(p.Text, -1)
		if err != nil || r.Action != netrule.Allow || l.publicSuffix == nil || h.Apex() == "" || h.Exact() {
			return
		}
		if l.publicSuffix(h.Apex()) {
			l.warn(LintSharedHosting, r, p.Line, p.Col, "name the hosts that are needed, each with =", "%q allows every host under a suffix that anybody can register below", p.Text)
		}
	case "ips":
		if a, err := netrule.ParseAddrPattern(p.Text, -1); err == nil && a.HostBits() {
			l.warn(LintHostBits, r, p.Line, p.Col, "", "%q has bits set below its length; they are masked away", p.Text)
		}
	case "ports":
		if pr, err := netrule.ParsePortPattern(p.Text); err == nil && pr.Lo == 0 {
			l.warn(LintRangeFromZero, r, p.Line, p.Col, "start at 1", "%q starts at port 0, which no target has", p.Text)
		}
	}
}

// shadowed finds the first earlier rule that takes every connection this one could.
func (l *linter) shadowed(earlier []Rule, r *Rule) {
	for i := range earlier {
		e := &earlier[i]
		if !e.Enabled || e.Match.Network == nil || e.inert(l.host) != "" || !covers(e, r) {
			continue
		}
		where := fmt.Sprintf("line %d", e.Line)
		if e.File != r.File {
			where += " of " + e.File
		}
		l.warn(LintShadowed, r, r.Line, r.Col, "move it up, or remove it", "the rule is never reached: the %s rule at %s matches first", e.Action, where)
		return
	}
}

// covers reports whether every connection that r matches is matched by e too. It may say no where the answer is yes.
func covers(e, r *Rule) bool {
	if len(e.Match.Agents) > 0 || len(e.Match.When.Env)+len(e.Match.When.Platforms) > 0 {
		return false
	}
	a, b := e.Match.Network, r.Match.Network
	if len(a.Addrs) > 0 && !subset(texts(b, "ips"), texts(a, "ips")) {
		return false
	}
	// An allow rule without ports admits the default ports only.
	if len(a.Ports) == 0 && e.Action == netrule.Allow && (len(b.Ports) > 0 || r.Action != netrule.Allow) {
		return false
	}
	if len(a.Ports) > 0 && !coversPorts(a.Ports, b.Ports, e.Action) {
		return false
	}
	if len(a.Schemes) > 0 && !subset(texts(b, "schemes"), texts(a, "schemes")) {
		return false
	}
	return coversHosts(a, b, e.Action)
}

func coversHosts(a, b *Network, action netrule.Action) bool {
	if len(a.Hosts) == 0 {
		return true
	}
	if len(b.Hosts) == 0 {
		return action != netrule.Allow && slices.ContainsFunc(a.Hosts, netrule.HostPattern.Any)
	}
	for _, h := range b.Hosts {
		if !slices.ContainsFunc(a.Hosts, func(wide netrule.HostPattern) bool { return wide.Covers(h, action != netrule.Allow) }) {
			return false
		}
	}
	return true
}

func coversPorts(a, b []netrule.PortRange, action netrule.Action) bool {
	if len(b) == 0 {
		return false
	}
	for _, r := range b {
		if !slices.ContainsFunc(a, func(wide netrule.PortRange) bool { return wide.Covers(r, action) }) {
			return false
		}
	}
	return true
}

func texts(n *Network, fieldName string) []string {
	var out []string
	for _, p := range n.Positions {
		if p.Field == fieldName {
			out = append(out, p.Text)
		}
	}
	return out
}

// subset reports whether a is not empty and all of it is in b.
func subset(a, b []string) bool {
	for _, s := range a {
		if !slices.Contains(b, s) {
			return false
		}
	}
	return len(a) > 0
}
