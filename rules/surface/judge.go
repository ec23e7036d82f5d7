package surface

import (
	"path"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/toolspec"
	"dshproxy/rules/work"
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
	// Script is the command, if it has been read; nil reads it when it is needed.
	Script *toolspec.Script
	// Work bounds what the verdict may cost; nil is a budget of its own.
	Work *work.Budget
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
// its commands. The reference is empty when the default, ask, decided. When the work is used up before all is looked at,
// the call is denied.
func (s *Set) Decide(c Call) (netrule.Action, netrule.RuleRef) {
	if c.Work == nil {
		c.Work = work.New(work.PerCall)
	}
	w := worst{set: s, home: c.Home, work: c.Work, about: map[string]relevant{}, asked: map[string]bool{}}
	w.call(&c)
	if w.work.Over() {
		return netrule.Deny, netrule.RuleRef{Reason: "the call is too long to be judged"}
	}
	return w.action, w.ref
}

func (w *worst) call(c *Call) {
	for _, p := range c.paths() {
		w.path(p, c.Cwd)
	}
	switch c.Tool {
	case "bash":
		w.command(c)
	case "mcp":
		w.ask("mcp", mcpNames(c))
	case "skill":
		w.ask("skill", []string{c.text("name", "skill")})
	default:
		if p := c.text("path", "file_path"); p != "" {
			w.ask(c.Tool, aliases(p, c.Cwd, c.Home))
			break
		}
		w.ask(c.Tool, []string{"*"})
	}
}

// worst keeps the strictest verdict so far.
type worst struct {
	set    *Set
	home   string
	action netrule.Action
	ref    netrule.RuleRef
	any    bool

	work  *work.Budget
	about map[string]relevant // by surface

	counted, paths bool            // whether it is known that there are rules for all paths, and whether there are
	asked          map[string]bool // by surface and names: a question that is asked again has the same answer
}

// relevant are the rules about one surface.
type relevant struct{ rules, trusted []placedRule }

func (w *worst) take(action netrule.Action, ref netrule.RuleRef) {
	if !w.any || action < w.action {
		w.action, w.ref, w.any = action, ref, true
	}
}

// first reports whether a question, of whatever kind, is new, and whether there is work left to answer it.
func (w *worst) first(kind string, names []string) bool {
	question := kind + "\x00" + strings.Join(names, "\x00")
	if !w.work.Spend(200+3*len(question)) || w.asked[question] {
		return false
	}
	w.asked[question] = true
	return true
}

// ask evaluates one surface for a value that goes by several names. What the trusted files alone deny stays denied.
func (w *worst) ask(surface string, names []string) {
	if !w.first("ask\x00"+surface, names) {
		return
	}
	about := w.rulesAbout(surface)
	action, ref := netrule.Ask, netrule.RuleRef{}
	if r := w.winner(about.rules, names); r != nil {
		action, ref = r.Action, r.ref
	}
	w.take(action, ref)
	if r := w.winner(about.trusted, names); r != nil && r.Action == netrule.Deny {
		w.take(r.Action, r.ref)
	}
}

// askAbout evaluates another reading of what was evaluated already: only a deny or ask rule that is about it counts, and
// no rule for everything.
func (w *worst) askAbout(surface string, names []string) {
	if !w.first("about\x00"+surface, names) {
		return
	}
	about := w.rulesAbout(surface)
	for _, rules := range [][]placedRule{about.rules, about.trusted} {
		if r := w.winner(rules, names); r != nil && r.Action != netrule.Allow && r.Surface != "*" && r.Pattern != "*" {
			w.take(r.Action, r.ref)
		}
	}
}

// rulesAbout picks the rules whose surface matches.
func (w *worst) rulesAbout(surface string) relevant {
	r, known := w.about[surface]
	if known {
		return r
	}
	o := Options{Home: w.home, work: w.work}
	pick := func(rules []placedRule) (out []placedRule) {
		for _, r := range rules {
			if w.work.Spend(20) && o.match(r.Surface, surface) {
				out = append(out, r)
			}
		}
		return out
	}
	r = relevant{pick(w.set.rules), pick(w.set.trusted)}
	w.about[surface] = r
	return r
}

// winner gives the last rule that matches any of the names, or nil.
func (w *worst) winner(rules []placedRule, names []string) *placedRule {
	o := Options{Home: w.home, work: w.work}
	for i := len(rules) - 1; i >= 0 && w.work.Spend(10); i-- {
		r := &rules[i]
		if slices.ContainsFunc(names, func(n string) bool { return o.match(r.Pattern, n) }) {
			return r
		}
	}
	return nil
}

// hasPaths reports whether any rule is about all paths.
func (w *worst) hasPaths() bool {
	if !w.counted {
		w.counted = true
		w.paths = slices.ContainsFunc(w.set.rules, func(r placedRule) bool { return r.Surface == "path" })
	}
	return w.paths
}

// path evaluates a path on the surface for all of them, when there are rules for it, and the one for leaving the folder.
func (w *worst) path(p, cwd string) {
	if !w.work.Spend(500 + 20*(len(p)+len(cwd))) {
		return
	}
	names := aliases(p, cwd, w.home)
	if w.hasPaths() {
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
func (w *worst) command(call *Call) {
	text, cwd := call.text("command"), call.Cwd
	if len(text) > maxCommand {
		w.work.Empty()
		return
	}
	script := call.Script
	if !script.Reads(text) {
		script = toolspec.ReadScript(text)
	}
	commands, whole := script.Commands()
	w.work.Spend(10*len(text) + 300*len(commands))
	for i := range commands {
		if w.work.Over() {
			return
		}
		c := &commands[i]
		for _, f := range c.Files {
			w.word(f, cwd)
		}
		if c.Timed {
			w.take(netrule.Ask, netrule.RuleRef{})
		}
		if len(c.Words) == 0 || !w.first("command", append([]string{c.Text}, c.Words...)) {
			continue
		}
		w.work.Spend(700 + 10*len(c.Text)) // for its readings
		w.ask("bash", []string{c.Text})
		for _, reading := range c.Readings() {
			w.askAbout("bash", []string{reading})
		}
		if runsArguments(c.Words) {
			w.take(netrule.Ask, netrule.RuleRef{})
		}
		for _, word := range c.Words[1:] {
			w.word(word, cwd)
		}
	}
	if !whole || len(commands) == 0 {
		w.ask("bash", []string{strings.TrimSpace(text)})
		w.take(netrule.Ask, netrule.RuleRef{})
	}
}

// word evaluates what may be a path: what looks like one as such, anything else for the rules that are about it.
func (w *worst) word(word, cwd string) {
	if !w.first("word", []string{word}) {
		return
	}
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
	if w.work.Spend(500 + 20*(len(word)+len(cwd))) {
		w.askAbout("path", aliases(word, cwd, w.home))
	}
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
