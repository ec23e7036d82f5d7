package surface

import (
	"path"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/toolspec"
)

// Set are the permission files that hold for a workspace, merged.
type Set struct {
	rules   []placedRule
	trusted []placedRule // of the files that no workspace can write
	files   []*Permissions
}

// NewSet merges files, the weaker first. Workspace files may not open what the trusted ones deny.
func NewSet(trusted, workspace []*Permissions) *Set {
	all := slices.Concat(trusted, workspace)
	return &Set{rules: merge(all), trusted: merge(trusted), files: all}
}

// Files gives the files, the weaker first.
func (s *Set) Files() []*Permissions { return s.files }

// Listing is one rule of a set, for listings.
type Listing struct {
	Rule
	Ref netrule.RuleRef
}

// List gives the rules in their order; the last that matches wins.
func (s *Set) List() []Listing {
	out := make([]Listing, len(s.rules))
	for i, r := range s.rules {
		out[i] = Listing{r.Rule, r.ref}
	}
	return out
}

// Call is a tool call as the surfaces see it.
type Call struct {
	Tool string
	Args map[string]any
	// Cwd is the folder that relative paths start from, absolute; Home is that of "~".
	Cwd, Home string
}

func (c *Call) text(keys ...string) string {
	for _, k := range keys {
		if s, ok := c.Args[k].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// Decide gives the strictest verdict over the surfaces that a call touches: its paths, the folder it leaves, its tool or
// its commands. The reference is empty when the default, ask, decided.
func (s *Set) Decide(c Call) (netrule.Action, netrule.RuleRef) {
	w := worst{set: s, home: c.Home}
	for _, p := range c.paths() {
		w.path(p, c.Cwd)
	}
	switch c.Tool {
	case "bash":
		w.command(c.text("command"), c.Cwd)
	case "mcp":
		w.ask("mcp", mcpNames(&c))
	case "skill":
		w.ask("skill", []string{c.text("name", "skill")})
	default:
		if p := c.text("path", "file_path"); p != "" {
			w.ask(c.Tool, aliases(p, c.Cwd, c.Home))
			break
		}
		w.ask(c.Tool, []string{"*"})
	}
	return w.action, w.ref
}

// worst keeps the strictest verdict so far.
type worst struct {
	set    *Set
	home   string
	action netrule.Action
	ref    netrule.RuleRef
	any    bool
	work   int
}

// maxWork bounds what one call may cost, in comparisons of a rule with a byte. A call beyond it is denied.
const maxWork = 1 << 27

func (w *worst) take(action netrule.Action, ref netrule.RuleRef) {
	if !w.any || action < w.action {
		w.action, w.ref, w.any = action, ref, true
	}
}

// spend counts work, and denies what is too much.
func (w *worst) spend(names []string) bool {
	bytes := 50
	for _, n := range names {
		bytes += len(n)
	}
	w.work += bytes * (len(w.set.rules) + len(w.set.trusted))
	if w.work > maxWork {
		w.take(netrule.Deny, netrule.RuleRef{})
	}
	return w.work <= maxWork
}

// ask evaluates one surface for a value that goes by several names. What the trusted files alone deny stays denied.
func (w *worst) ask(surface string, names []string) {
	if !w.spend(names) {
		return
	}
	r := winner(w.set.rules, surface, names, w.home)
	if r == nil {
		r = &placedRule{Rule: Rule{Action: netrule.Ask}}
	}
	w.take(r.Action, r.ref)
	if r := winner(w.set.trusted, surface, names, w.home); r != nil && r.Action == netrule.Deny {
		w.take(r.Action, r.ref)
	}
}

// askAbout evaluates another reading of what was evaluated already: only a deny or ask rule that is about it counts, and
// no rule for everything.
func (w *worst) askAbout(surface string, names []string) {
	if !w.spend(names) {
		return
	}
	for _, rules := range [][]placedRule{w.set.rules, w.set.trusted} {
		if r := winner(rules, surface, names, w.home); r != nil && r.Action != netrule.Allow && r.Surface != "*" && r.Pattern != "*" {
			w.take(r.Action, r.ref)
		}
	}
}

// winner gives the last rule that matches the surface and any of the names, or nil.
func winner(rules []placedRule, surface string, names []string, home string) *placedRule {
	o := Options{Home: home}
	for i := len(rules) - 1; i >= 0; i-- {
		r := &rules[i]
		if o.match(r.Surface, surface) && slices.ContainsFunc(names, func(n string) bool { return o.match(r.Pattern, n) }) {
			return r
		}
	}
	return nil
}

// path evaluates a path on the surface for all of them, when there are rules for it, and the one for leaving the folder.
func (w *worst) path(p, cwd string) {
	names := aliases(p, cwd, w.home)
	if slices.ContainsFunc(w.set.rules, func(r placedRule) bool { return r.Surface == "path" }) {
		w.ask("path", names)
	}
	if full := names[len(names)-1]; full != cwd && !strings.HasPrefix(full, strings.TrimSuffix(cwd, "/")+"/") {
		w.ask("external_directory", names)
	}
}

// indirect commands run what their arguments say: no rule about their text approves that. "--" is what is left of a
// wrapper that the shell itself reads.
var indirect = []string{
	"sh", "bash", "zsh", "dash", "ksh", "eval", "sudo", "doas", "su", "runuser", "env", "xargs", "parallel", "time", "nohup", "timeout", "nice", "ionice", "setsid", "stdbuf", "watch", "flock", "chroot",
	"exec", "command", "builtin", "source", ".", "busybox", "toybox", "--", "find", "fd",
}

// maxCommand is the longest command, in bytes, that is looked at; a longer one is denied.
const maxCommand = 256 << 10

// command evaluates every simple command, and the paths among their words.
func (w *worst) command(text, cwd string) {
	if len(text) > maxCommand {
		w.take(netrule.Deny, netrule.RuleRef{})
		return
	}
	commands, whole := toolspec.Commands(text)
	for i := range commands {
		c := &commands[i]
		for _, f := range c.Files {
			w.word(f, cwd)
		}
		if len(c.Words) == 0 {
			continue
		}
		w.ask("bash", []string{c.Text})
		for _, reading := range c.Readings() {
			w.askAbout("bash", []string{reading})
		}
		if c.Timed || runsArguments(c.Words) {
			w.take(netrule.Ask, netrule.RuleRef{})
		}
		for _, word := range c.Words[1:] {
			w.word(word, cwd)
		}
		if w.work > maxWork {
			return
		}
	}
	if !whole || len(commands) == 0 {
		w.ask("bash", []string{strings.TrimSpace(text)})
		w.take(netrule.Ask, netrule.RuleRef{})
	}
}

// word evaluates what may be a path: what looks like one as such, anything else for the rules that are about it.
func (w *worst) word(word, cwd string) {
	if looksLikePath(word) {
		w.path(word, cwd)
		return
	}
	if strings.Contains(word, "://") {
		return
	}
	if strings.HasPrefix(word, "-") {
		_, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return
		}
		word = value
	}
	w.askAbout("path", aliases(word, cwd, w.home))
}

func runsArguments(words []string) bool {
	name := path.Base(words[0])
	if !slices.Contains(indirect, name) {
		return false
	}
	if name == "find" || name == "fd" {
		return slices.ContainsFunc(words, func(w string) bool {
			return strings.HasPrefix(w, "-exec") || strings.HasPrefix(w, "--exec") || strings.HasPrefix(w, "-ok") || w == "-x" || w == "-X"
		})
	}
	return true
}

func looksLikePath(word string) bool {
	return !strings.HasPrefix(word, "-") && !strings.Contains(word, "://") && (strings.ContainsAny(word, "/\\") || strings.HasPrefix(word, ".") || strings.HasPrefix(word, "~"))
}

// paths are the paths that a call of a tool for files names.
func (c *Call) paths() []string {
	var out []string
	for _, key := range []string{"path", "file_path", "paths", "target", "output"} {
		switch v := c.Args[key].(type) {
		case string:
			if v != "" {
				out = append(out, v)
			}
		case []any:
			for _, item := range v {
				if s, ok := item.(string); ok && s != "" {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// aliases are the names that one path goes by; the last is absolute and clean.
func aliases(p, cwd, home string) []string {
	names := []string{p}
	full := strings.ReplaceAll(p, `\`, "/")
	for _, prefix := range []string{"~", "$HOME", "${HOME}"} {
		if rest, ok := strings.CutPrefix(full, prefix); ok && home != "" && (rest == "" || rest[0] == '/') {
			full = home + rest
		}
	}
	if !path.IsAbs(full) {
		full = path.Join("/", cwd, full)
	}
	full = path.Clean(full)
	if relative, ok := strings.CutPrefix(full, strings.TrimSuffix(cwd, "/")+"/"); ok {
		names = append(names, relative)
	}
	return append(names, full)
}

// mcpNames are the names that rules may give to a call through the mcp tool, from the closest to the widest.
func mcpNames(c *Call) []string {
	server, tool := c.text("server"), c.text("tool", "name")
	var out []string
	if server != "" && tool != "" {
		out = append(out, server+"_"+tool, server+":"+tool)
	}
	for _, n := range []string{server, tool} {
		if n != "" {
			out = append(out, n)
		}
	}
	for _, op := range []string{"status", "list", "search", "describe", "connect"} {
		if _, ok := c.Args[op]; ok || c.text("op", "operation", "action") == op {
			out = append(out, "mcp_"+op)
		}
	}
	return append(out, "mcp_call")
}
