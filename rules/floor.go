package rules

import (
	"path"
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
	f, c := p.facts, p.facts.call
	if !onlyReads(c.Tool) && f.args.anyString(f.namesPolicy) {
		return floorPolicy, nil
	}
	v := f.shellViews()
	for i := range v.commands {
		cmd := &v.commands[i]
		if !f.work.Spend(perCommand/10 + f.pathCost(cmd.args) + f.pathCost(cmd.writes)) {
			return "", f.err()
		}
		switch {
		case cmd.doc:
		case slices.ContainsFunc(cmd.writes, func(s string) bool { return isPolicyFile(s, c.Cwd) }), changesPolicy(cmd, c.Cwd):
			return floorPolicy, nil
		case cmd.word == "dshproxy" && changesAsOperator(cmd.args):
			return floorOperator, nil
		}
	}
	return "", f.err()
}

// onlyReads tells from a tool's name that its arguments change no file; what a shell does is seen in its commands.
func onlyReads(tool string) bool {
	tool = strings.ToLower(tool)
	return tool == "bash" || tool == "pwsh" || slices.ContainsFunc([]string{"read", "glob", "grep", "ls", "list", "view", "search", "fetch", "get", "find", "task", "agent", "todo", "think"},
		func(part string) bool { return strings.HasPrefix(tool, part) || strings.HasSuffix(tool, "_"+part) })
}

// anyString reports whether some string of a value, at any depth, is a hit.
func (a *arg) anyString(hit func(string) bool) bool {
	return a.kind == argString && hit(a.text) || slices.ContainsFunc(a.items, func(item arg) bool { return item.anyString(hit) })
}

// pathCost is what it takes to tell whether words are policy files.
func (f *facts) pathCost(words []string) int {
	cost := 0
	for _, w := range words {
		cost += 300 + 15*(len(w)+len(f.call.Cwd))
	}
	return cost
}

// namesPolicy reports an argument that is the path of a policy file, or a patch of one.
func (f *facts) namesPolicy(s string) bool {
	const longestPath = 4096
	cwd := f.call.Cwd
	if !f.work.Spend(3 * len(s)) {
		return false
	}
	if len(s) <= longestPath && !strings.Contains(s, "\n") {
		return f.work.Spend(f.pathCost([]string{s})) && isPolicyFile(s, cwd)
	}
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		for _, mark := range []string{"*** Update File:", "*** Add File:", "*** Delete File:", "*** Move to:", "+++ ", "--- "} {
			if rest, ok := strings.CutPrefix(line, mark); ok && f.work.Spend(f.pathCost([]string{rest})) && isPolicyFile(strings.TrimSpace(rest), cwd) {
				return true
			}
		}
	}
	return false
}

// readers leave the files alone that they are given.
const readers = " cat less more head tail tac nl grep egrep fgrep rg ag ls ll tree stat file wc diff cmp md5sum sha256sum sha1sum cksum od xxd hexdump bat jq test [ [[ realpath readlink basename dirname " +
	"echo printf true : source . export open code pytest go npm node make dshproxy "

// changesPolicy reports a command that names a policy file and is not known to leave it alone.
func changesPolicy(c *simpleCommand, cwd string) bool {
	named := func(args []string) bool {
		return slices.ContainsFunc(args, func(s string) bool { return isPolicyFile(s, cwd) })
	}
	has := func(options ...string) bool {
		return slices.ContainsFunc(c.args, func(a string) bool {
			return slices.ContainsFunc(options, func(o string) bool {
				return a == o || len(o) > 2 && strings.HasPrefix(a, o) || len(o) == 2 && len(a) > 2 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, o[1]) > 0
			})
		})
	}
	switch {
	case !named(c.args) || isOneOf(c.word, readers):
		return false
	case isOneOf(c.word, " sed gsed perl yq "):
		return has("-i", "--in-place")
	case c.word == "awk" || c.word == "gawk":
		return has("-i")
	case c.word == "find":
		return has("-delete", "-exec", "-ok", "-fprint", "-fls")
	case c.word == "sort":
		return has("-o", "--output")
	case c.word == "git":
		return !slices.ContainsFunc(c.args, func(a string) bool {
			return isOneOf(a, " diff log show status grep blame add commit check-ignore ls-files cat-file rev-parse ")
		})
	case isOneOf(c.word, " cp rsync scp install ln "):
		// The last one is written; so is what -t names.
		return len(c.args) == 0 || isPolicyFile(c.args[len(c.args)-1], cwd) || has("-t", "--target-directory", "--delete", "--remove-source-files")
	case c.word == "tar":
		return !slices.ContainsFunc(c.args[:1], func(a string) bool {
			return strings.Contains(strings.TrimLeft(a, "-"), "c") || strings.Contains(a, "t")
		})
	default:
		return true
	}
}

// changesAsOperator reports the subcommands that change what is allowed.
func changesAsOperator(args []string) bool {
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "-"):
		case a == "hook":
			return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--install") || strings.HasPrefix(a, "--uninstall") })
		case isOneOf(a, " explain check help rules lint test version vectors config healthcheck completion evaluate match-rules env connect diff learn schema "):
			return false
		case isOneOf(a, " allow trust approvals serve stop resume ca "):
			return !slices.Contains(args, "--help") && !slices.Contains(args, "-h")
		}
	}
	return false
}

// isPolicyFile reports a path that names rules, settings of dshproxy or settings of the client, wherever it lies. Case
// does not count: some file systems fold it. A pattern that may name them counts too.
func isPolicyFile(name, cwd string) bool {
	name = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), `\`, "/"))
	if _, value, ok := strings.Cut(name, "="); ok && !strings.Contains(value, "=") {
		name = value // of=FILE, --output=FILE
	}
	if len(name) > 2 && name[0] == '-' && name[1] != '-' {
		name = name[2:] // -oFILE
	}
	name = strings.TrimPrefix(name, "@")
	if cwd != "" && name != "" && !path.IsAbs(name) {
		name = path.Join(strings.ToLower(cwd), name)
	}
	segments := strings.Split(path.Clean(name), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == ".dsh" || strings.HasPrefix(s, ".d") && strings.ContainsAny(s, "*?[{") && mayBe(s, ".dsh"):
			return true
		case s == ".claude" && last:
			return true
		case s == ".claude" && strings.HasPrefix(segments[i+1], "settings") && strings.HasSuffix(segments[i+1], ".json"):
			return true
		case s == "dshproxy" && !last && strings.HasSuffix(segments[len(segments)-1], ".yaml") && (i == 0 || segments[i-1] == "etc" || segments[i-1] == ".config"):
			return true
		case s == "dshproxy" && i > 0 && segments[i-1] == "state": // what is accepted, and tokens
			return true
		case last && (s == "pi-permissions.jsonc" || s == "managed-settings.json" || s == "config.json" && i > 0 && segments[i-1] == "pi-permission-system"):
			return true
		}
	}
	return false
}

// mayBe reports whether a shell pattern can stand for a name.
func mayBe(pattern, name string) bool {
	if strings.ContainsAny(pattern, "{") {
		return true
	}
	ok, err := path.Match(pattern, name)
	return err != nil || ok
}
