package toolspec

import (
	"path"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/work"
)

// Scope is where the settings that hold a rule stand, for its paths. Relative ones are seen from Cwd.
type Scope struct {
	Cwd  string // the working folder of the call, absolute
	Dir  string // the folder that "/" at the start of a pattern means
	Home string // the folder that "~/" means; empty matches nothing
}

// Matches reports whether a rule that stands in the list of an action matches a call. Deny and ask rules match if any
// part of the call does, allow rules only if every part does. The zero action is deny.
func (r Rule) Matches(list netrule.Action, c Call, s Scope) bool {
	return r.matches(list, newSubject(c), s)
}

// subject is a call under judgement; its command is read once, for all rules.
type subject struct {
	Call
	parsed  bool
	script  *Script
	trimmed string // the text of the command

	host   string
	isURL  bool
	hosted bool

	files map[string][]string // by the tool of the rule, what a command plainly reads or writes
}

func newSubject(c Call) *subject {
	if c.Work == nil {
		c.Work = work.New(work.PerCall)
	}
	return &subject{Call: c, files: map[string][]string{}}
}

// shell reads the command of a call that has one.
func (c *subject) shell() bool {
	if !c.parsed {
		c.parsed, c.script = true, &Script{}
		if text, ok := c.text("command"); ok {
			if c.script = c.Script; !c.script.Reads(text) {
				c.script = ReadScript(text)
			}
			c.trimmed = strings.TrimSpace(text)
			// Each command is written out in several spellings.
			c.Work.Spend(10*len(text) + 1000*len(c.script.commands))
		}
	}
	return c.script.commands != nil || c.script.text != ""
}

// webHost is hostOf, read once.
func (c *subject) webHost() (string, bool) {
	if !c.hosted {
		c.hosted = true
		if text, ok := c.text("url"); ok && c.Work.Spend(10_000+100*min(len(text), 4096)+2*len(text)) {
			c.host, c.isURL = hostOf(c.Call)
		}
	}
	return c.host, c.isURL
}

func (r Rule) matches(list netrule.Action, c *subject, s Scope) bool {
	allow := list == netrule.Allow
	if !r.Bare && strings.HasPrefix(r.Tool, "mcp__") {
		return false
	}
	if r.Bare || r.Spec == "*" && !isFileTool(r.Tool) && (!allow || !slices.Contains(pathless, r.Tool)) {
		return r.coversTool(allow, c.Tool, c.Work)
	}
	if !allow && r.Tool == c.Tool && r.paramHolds(c) {
		return true
	}
	switch r.Tool {
	case "Bash":
		return c.Tool == "Bash" && c.shell() && (allow && allowsCommand([]Rule{r}, c) || !allow && r.firesOn(c))
	case "Read", "Edit":
		return r.pathMatches(allow, c, s)
	case "WebFetch":
		return c.Tool == "WebFetch" && r.domainMatches(c)
	case "Agent":
		name, ok := c.text("subagent_type")
		return c.Tool == "Agent" && ok && name == r.Spec
	default:
		return false
	}
}

// pathless are tools whose path rules are never asked: Read and Edit rules speak for them.
var pathless = []string{"Write", "NotebookEdit", "MultiEdit", "Glob"}

func isFileTool(tool string) bool { return tool == "Read" || tool == "Edit" }

// coversTool matches a rule without a specifier. Allow rules may have a star only behind the name of a server.
func (r Rule) coversTool(allow bool, tool string, left *work.Budget) bool {
	if r.Tool == tool {
		return true
	}
	if server, ok := strings.CutPrefix(r.Tool, "mcp__"); ok && !strings.Contains(server, "*") {
		return !strings.Contains(server, "__") && strings.HasPrefix(tool, r.Tool+"__")
	}
	if allow {
		server, rest, ok := strings.Cut(strings.TrimPrefix(r.Tool, "mcp__"), "__")
		if !ok || !strings.HasPrefix(r.Tool, "mcp__") || strings.Contains(server, "*") || rest == "" {
			return false
		}
	}
	return strings.Contains(r.Tool, "*") && within(r.Tool, tool, never, left)
}

// contentFields are what a tool acts on; they have rules of their own and none by parameter.
var contentFields = []string{"command", "file_path", "notebook_path", "url", "domain"}

// paramHolds matches Tool(param:value) against a scalar argument.
func (r Rule) paramHolds(c *subject) bool {
	name, value, ok := strings.Cut(r.Spec, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || slices.Contains(contentFields, name) || name == "path" && (c.Tool == "Grep" || c.Tool == "Glob") {
		return false
	}
	given, ok := scalar(c.Input[name])
	return ok && within(value, given, never, c.Work)
}

var (
	writers = []string{"Edit", "Write", "MultiEdit", "NotebookEdit"}
	readers = []string{"Read", "Grep", "Glob"}
)

// pathMatches: an Edit rule covers every tool that edits; a Read rule covers what reads, and a denied read also keeps
// from editing, notebooks apart.
func (r Rule) pathMatches(allow bool, c *subject, s Scope) bool {
	covered := writers
	if r.Tool == "Read" {
		covered = readers
		if !allow {
			covered = append(slices.Clip(readers), "Edit", "Write", "MultiEdit")
		}
	}
	if c.Tool == "Bash" && !allow {
		return slices.ContainsFunc(r.shellFiles(c), func(name string) bool { return r.coversPath(allow, name, s, c.Work) })
	}
	name, ok := c.text("file_path", "path", "notebook_path")
	return ok && name != "" && slices.Contains(covered, c.Tool) && r.coversPath(allow, name, s, c.Work)
}

// fileCommands are commands whose operands are files that they read; of those that sed -i changes, too.
var fileCommands = []string{"cat", "head", "tail", "sed", "less", "more", "tac", "nl"}

// shellFiles are the files that a command plainly reads, or writes.
func (r Rule) shellFiles(c *subject) []string {
	if !c.shell() {
		return nil
	}
	if known, ok := c.files[r.Tool]; ok {
		return known
	}
	var out []string
	for _, cmd := range c.script.commands {
		out = append(out, cmd.writes...)
		words := strip(cmd.plain)
		if len(words) == 0 || !slices.Contains(fileCommands, words[0]) {
			continue
		}
		inPlace := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-i") || strings.HasPrefix(w, "--in-place") })
		if r.Tool == "Edit" && (words[0] != "sed" || !inPlace) {
			continue
		}
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") {
				out = append(out, w)
			}
		}
	}
	// A file that is named often is looked at once.
	slices.Sort(out)
	c.files[r.Tool] = slices.Compact(out)
	return c.files[r.Tool]
}

// coversPath matches one path.
func (r Rule) coversPath(allow bool, name string, s Scope, left *work.Budget) bool {
	if !left.Spend(500 + 30*(len(name)+len(s.Cwd)+len(r.Spec))) {
		return false
	}
	cwd := path.Join("/", s.Cwd)
	name = strings.ReplaceAll(name, `\`, "/")
	if len(name) > 2 && name[1] == ':' && name[2] == '/' {
		name = "/" + strings.ToLower(name[:1]) + name[2:] // C:\x is /c/x
	}
	if strings.HasPrefix(name, "~/") && s.Home != "" {
		name = path.Join(s.Home, name[2:])
	}
	if !path.IsAbs(name) {
		name = path.Join(cwd, name)
	}
	anchor, pattern := r.anchored(s, cwd)
	if anchor == "" {
		return false
	}
	relative, ok := below(anchor, path.Clean(name))
	if !ok {
		return false
	}
	if matchPath(pattern, relative, left) || strings.IndexByte(pattern, '/') < 0 && matchPath("**/"+pattern, relative, left) {
		return true
	}
	return !allow && r.coversFolder(pattern, relative, left)
}

// coversFolder is what only deny and ask rules do: a folder at any depth, a folder itself, and all that is in a folder.
func (r Rule) coversFolder(pattern, relative string, left *work.Budget) bool {
	if first, rest, ok := strings.Cut(pattern, "/"); ok && rest == "**" && !r.rooted() && matchPath("**/"+first+"/**", relative, left) {
		return true
	}
	if folder, ok := strings.CutSuffix(pattern, "/**"); ok && matchPath(folder, relative, left) {
		return true
	}
	for dir := path.Dir(relative); dir != "." && !left.Over(); dir = path.Dir(dir) {
		if matchPath(pattern, dir, left) || strings.IndexByte(pattern, '/') < 0 && matchPath("**/"+pattern, dir, left) {
			return true
		}
	}
	return false
}

// rooted reports whether the pattern names its anchor.
func (r Rule) rooted() bool {
	return strings.HasPrefix(r.Spec, "/") || strings.HasPrefix(r.Spec, "~/") || strings.HasPrefix(r.Spec, "./")
}

// anchored gives the folder that a pattern is relative to, and the rest of it.
func (r Rule) anchored(s Scope, cwd string) (anchor, pattern string) {
	switch {
	case strings.HasPrefix(r.Spec, "//"):
		anchor, pattern = "/", r.Spec[2:]
	case strings.HasPrefix(r.Spec, "~/"):
		anchor, pattern = s.Home, r.Spec[2:]
	case strings.HasPrefix(r.Spec, "/"):
		anchor, pattern = path.Join("/", s.Dir), r.Spec[1:]
	default:
		anchor, pattern = cwd, r.Spec
	}
	pattern = path.Clean(pattern)
	for anchor != "" && strings.HasPrefix(pattern, "../") {
		anchor, pattern = path.Dir(anchor), pattern[3:]
	}
	return anchor, pattern
}

// below gives a path relative to a folder that it lies in.
func below(dir, name string) (string, bool) {
	if dir == "/" {
		return strings.TrimPrefix(name, "/"), name != "/"
	}
	return strings.CutPrefix(name, dir+"/")
}

// domainMatches: a leading "*." is any depth of subdomains, a lone star everything, another star stays in its label.
func (r Rule) domainMatches(c *subject) bool {
	pattern, ok := strings.CutPrefix(r.Spec, "domain:")
	host, isURL := c.webHost()
	pattern = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(pattern), "."))
	if !ok || !isURL || pattern == "" {
		return false
	}
	if pattern == "*" {
		return true
	}
	if suffix, ok := strings.CutPrefix(pattern, "*."); ok && !strings.Contains(suffix, "*") {
		return strings.HasSuffix(host, "."+canonicalHost(suffix)) && canonicalHost(suffix) != ""
	}
	isDot := func(r rune) bool { return r == '.' }
	if suffix, ok := strings.CutPrefix(pattern, "*."); ok {
		for rest := host; ; {
			_, tail, more := strings.Cut(rest, ".")
			if !more {
				return false
			}
			if wildcard(suffix, tail, isDot) {
				return true
			}
			rest = tail
		}
	}
	if !strings.Contains(pattern, "*") {
		return host == canonicalHost(pattern)
	}
	return wildcard(pattern, host, isDot)
}
