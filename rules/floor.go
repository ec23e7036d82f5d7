package rules

import (
	"slices"
	"strings"
)

// The floor is below every rule file: a governed program may not change the rules that govern it. It sees only what a
// call says; a program of its own that runs as the same user needs an isolation that the file system enforces.

const (
	floorPolicy   = "the policy protects itself: rules and client settings are changed by the operator"
	floorOperator = "the policy protects itself: this command is for the operator"
)

// Floor gives the reason why a call is denied whatever the rules say, or an empty text. An error means that the call
// cannot be looked at, and the caller must refuse it.
func Floor(c Call) (reason string, err error) {
	p, err := Prepare(c)
	if err != nil {
		return "", err
	}
	return p.Floor()
}

// Floor is Floor for a call that has been read.
func (p *Prepared) Floor() (reason string, err error) {
	f := p.facts
	g := newGuard(f.call, f.work)
	if g.toolArgs(f) || g.powerShell(f) {
		return floorPolicy, f.err()
	}
	if reason := g.commands(f.shellViews()); reason != "" {
		return reason, f.err()
	}
	if extra := f.scriptArgs(); len(extra) > 0 {
		v := newViews(f.work)
		for _, text := range extra {
			v.addText(script{text: text})
		}
		if v.tooMuch {
			return "", ErrTooMuch
		}
		if reason := g.commands(v); reason != "" {
			return reason, f.err()
		}
	}
	return "", f.err()
}

// scriptArgs are strings of a shell's tool that stand under keys which usually mean something else.
func (f *facts) scriptArgs() []string {
	if !isShellTool(f.call.Tool) || f.args.kind != argObject {
		return nil
	}
	var out []string
	f.args.walkKeys(0, func(key string, v *arg) {
		if isOneOf(key, " input code text stdin ") && v.kind == argString && len(out) < 8 {
			out = append(out, v.text)
		}
	})
	return out
}

// powerShell looks at the words of a text that is not read as a POSIX shell does: there a backslash is no escape.
func (g *guard) powerShell(f *facts) bool {
	tool := strings.ToLower(f.call.Tool)
	if tool != "pwsh" && !strings.Contains(tool, "powershell") && !strings.Contains(tool, "cmd") {
		return false
	}
	for _, c := range f.commandTexts() {
		for _, part := range strings.FieldsFunc(c.text, func(r rune) bool { return strings.ContainsRune(";|&\n", r) }) {
			words := strings.FieldsFunc(part, func(r rune) bool { return strings.ContainsRune(" \t\r'\"`(){},", r) })
			if len(words) == 0 || isOneOf(strings.ToLower(words[0]), " get-content gc cat type get-childitem gci ls dir select-string sls test-path get-item write-output write-host echo ") && !strings.Contains(part, ">") {
				continue
			}
			if g.anyPolicy(words) {
				return true
			}
		}
	}
	return false
}

// commands looks at every command, in order: cd changes what the paths behind it mean.
func (g *guard) commands(v *shellViews) string {
	g.unsure = v.unsure
	lists, pipes := false, false // names of policy files; to something that may write
	for i := range v.commands {
		cmd := &v.commands[i]
		if !g.work.Spend(perCommand/10 + g.pathCost(cmd.args) + g.pathCost(cmd.writes)) {
			return ""
		}
		lists = lists || isOneOf(cmd.word, " ls find fd fdfind git rg grep printf echo tree ") && g.anyPolicy(cmd.args)
		pipes = pipes || cmd.word == "xargs" && isOneOf(lastName(append([]string{"xargs"}, cmd.args...), g.work), removers+" tee truncate touch chmod chown dd cp ln install sed perl sh bash zsh dash python python3 ")
		switch {
		case cmd.doc:
		case g.anyPolicy(cmd.writes), g.changes(cmd):
			return floorPolicy
		case cmd.word == "dshproxy" && changesAsOperator(cmd.args), stopsProxy(cmd):
			return floorOperator
		case isOneOf(cmd.word, " cd pushd chdir set-location ") && len(cmd.args) > 0:
			g.enter(cmd.args)
		}
	}
	if lists && pipes {
		return floorPolicy
	}
	return ""
}

// pathCost is what it takes to tell whether words are policy files.
func (g *guard) pathCost(words []string) int {
	cost := 0
	for _, w := range words {
		cost += (100 + 8*len(w)) * len(g.cwds)
	}
	return cost + 10*len(words)*len(g.protected)
}

// globalValues are the options of dshproxy that take a word of their own wherever they stand.
const globalValues = " --config --workspace --rules --managed "

// changesAsOperator reports the subcommands that change what is allowed. An option that is not known may take a word of
// its own, or may not: both are looked at.
func changesAsOperator(args []string) bool {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case isOneOf(a, globalValues):
			i++
		case a == "--" || strings.HasPrefix(a, "--") && strings.Contains(a, "="):
		case strings.HasPrefix(a, "-"):
			if i+2 < len(args) && changesAsOperator(args[i+2:]) {
				return true
			}
		default:
			return isOperators(a, args[i+1:])
		}
	}
	return false
}

// isOperators reports whether a subcommand with its arguments is for the operator alone.
func isOperators(name string, args []string) bool {
	switch {
	case name == "hook":
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--inst") || strings.HasPrefix(a, "--uninst") })
	case isOneOf(name, " explain check help rules lint test version vectors config healthcheck status completion evaluate match-rules env connect diff learn schema __complete "):
		return false
	case strings.ContainsAny(name, "$`"):
		return true // it may be any
	case isOneOf(name, " allow trust approvals serve stop resume ca run "):
		return len(args) == 0 || args[0] != "--help" && args[0] != "-h"
	default:
		return false
	}
}

// stopsProxy reports commands that end the proxy from outside.
func stopsProxy(c *simpleCommand) bool {
	names := func(a string) bool {
		return strings.TrimSuffix(strings.TrimLeft(baseName(a), "^"), ".service") == "dshproxy"
	}
	switch c.word {
	case "pkill", "killall", "pgrep":
		return c.word != "pgrep" && slices.ContainsFunc(c.args, names)
	case "systemctl", "service", "launchctl", "rc-service":
		return slices.ContainsFunc(c.args, names) && !slices.ContainsFunc(c.args, func(a string) bool { return isOneOf(a, " status show cat is-active is-enabled list-units ") })
	case "go":
		i := slices.IndexFunc(c.args, names)
		return i > 0 && c.args[0] == "run" && changesAsOperator(c.args[i+1:])
	case "kill":
		return slices.ContainsFunc(c.args, func(a string) bool { return strings.Contains(a, "dshproxy") })
	default:
		return false
	}
}
