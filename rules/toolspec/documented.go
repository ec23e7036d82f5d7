package toolspec

import (
	"path"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/work"
)

// Scope is where a call is made and where the settings that hold a rule stand, for their paths. A relative pattern of a
// deny or ask rule is seen from the workspace and from the working folder, one of an allow rule from the working folder
// if that lies in the workspace, else from the workspace.
type Scope struct {
	Cwd       string // the working folder of the call, absolute
	Workspace string // absolute; empty means Cwd
	Dir       string // the folder that "/" at the start of a pattern means
	Home      string // the folder that "~/" means; empty matches nothing
}

// Matches reports whether a rule that stands in the list of an action matches a call. Deny and ask rules match if any
// part of the call does, or when there is not the work to tell; allow rules only if every part does. The zero action is
// deny.
func (r Rule) Matches(list netrule.Action, c Call, s Scope) bool {
	sub := newSubject(c)
	matched := r.matches(list, sub, s)
	if sub.Work.Over() {
		return list != netrule.Allow
	}
	return matched
}

// subject is a call under judgement; its command is read once, for all rules.
type subject struct {
	Call
	parsed  bool
	script  *Script
	trimmed string // the text of the command
	files   *files

	host   string
	isURL  bool
	hosted bool
}

func newSubject(c Call) *subject {
	if c.Work == nil {
		c.Work = work.New(work.PerCall)
	}
	return &subject{Call: c}
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
		return c.shell() && r.shellPathMatches(c, s)
	}
	name, ok := c.text("file_path", "path", "notebook_path")
	if !ok || name == "" || !slices.Contains(covered, c.Tool) {
		return false
	}
	if tooLong(name) {
		if !allow {
			c.Work.Empty()
		}
		return false
	}
	if allow {
		return r.allowsPath(c, name, s)
	}
	return r.deniesPath(c, filePath{name: name}, s, false)
}

// shellPathMatches looks at the files that a command reads or writes: a denied read also keeps from writing.
func (r Rule) shellPathMatches(c *subject, s Scope) bool {
	f := c.shellFiles(s)
	denied := func(p filePath) bool {
		if tooLong(p.name) {
			c.Work.Empty()
		}
		return r.deniesPath(c, p, s, f.hidden)
	}
	return slices.ContainsFunc(f.writes, denied) || r.Tool == "Read" && slices.ContainsFunc(f.reads, denied)
}

// pathCost is what it takes to see a path from where a rule does.
func (r Rule) pathCost(name string, s Scope) int {
	return 500 + 30*(len(name)+len(s.Cwd)+len(s.Workspace)+len(r.Spec))
}

// absolute gives the clean path of a name.
func absolute(name string, s Scope) string {
	name = strings.ReplaceAll(name, `\`, "/")
	if len(name) > 2 && name[1] == ':' && name[2] == '/' {
		name = "/" + strings.ToLower(name[:1]) + name[2:] // C:\x is /c/x
	}
	if strings.HasPrefix(name, "~/") && s.Home != "" {
		name = path.Join(s.Home, name[2:])
	}
	if !path.IsAbs(name) {
		name = path.Join("/", s.Cwd, name)
	}
	return path.Clean(name)
}

// allowsPath matches one path against an allow rule.
func (r Rule) allowsPath(c *subject, name string, s Scope) bool {
	if !c.Work.Spend(r.pathCost(name, s)) {
		return false
	}
	from := path.Join("/", s.Cwd)
	if ws := path.Join("/", s.Workspace); s.Workspace != "" && from != ws {
		if _, ok := below(ws, from); !ok {
			from = ws
		}
	}
	anchor, pattern := r.anchored(s, from)
	if anchor == "" {
		return false
	}
	relative, ok := below(anchor, absolute(name, s))
	return ok && (matchPath(pattern, relative, c.Work) || strings.IndexByte(pattern, '/') < 0 && matchPath("**/"+pattern, relative, c.Work))
}

// deniesPath matches one path against a deny or ask rule: a bare name or a relative folder at any depth, a folder itself,
// and all that is in a folder.
func (r Rule) deniesPath(c *subject, p filePath, s Scope, hidden bool) bool {
	if !c.Work.Spend(r.pathCost(p.name, s)) {
		return false
	}
	name := absolute(p.name, s)
	roots := []string{path.Join("/", s.Cwd)}
	if ws := path.Join("/", s.Workspace); s.Workspace != "" && ws != roots[0] {
		roots = append(roots, ws)
	}
	for _, from := range roots {
		anchor, pattern := r.anchored(s, from)
		if anchor == "" {
			continue
		}
		var patterns []string
		first, rest, _ := strings.Cut(pattern, "/")
		switch {
		case rest == "" || rest == "**" && !r.rooted():
			patterns = append(patterns, "**/"+pattern)
		default:
			patterns = append(patterns, pattern)
		}
		if folder, ok := strings.CutSuffix(pattern, "/**"); ok && !p.glob {
			if folder == first && !r.rooted() {
				folder = "**/" + folder
			}
			patterns = append(patterns, folder)
		}
		relative, inside := below(anchor, name)
		if p.glob { // which may stand before the folder's end
			relative, inside = name[1:], true
			for i := range patterns {
				patterns[i] = strings.TrimLeft(literal(anchor)+"/"+patterns[i], "/")
			}
		}
		if !inside {
			continue
		}
		for _, pattern := range patterns {
			if self, above := matchFolders(pattern, relative, p.glob, hidden || p.hidden, c.Work); self || above {
				return true
			}
		}
	}
	return false
}

// literal is the pattern of a path.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// rooted reports whether the pattern names its anchor.
func (r Rule) rooted() bool {
	return strings.HasPrefix(r.Spec, "/") || strings.HasPrefix(r.Spec, "~/") || strings.HasPrefix(r.Spec, "./")
}

// anchored gives the folder that a pattern is relative to, and the rest of it.
func (r Rule) anchored(s Scope, from string) (anchor, pattern string) {
	switch {
	case strings.HasPrefix(r.Spec, "//"):
		anchor, pattern = "/", r.Spec[2:]
	case strings.HasPrefix(r.Spec, "~/"):
		anchor, pattern = s.Home, r.Spec[2:]
	case strings.HasPrefix(r.Spec, "/"):
		anchor, pattern = path.Join("/", s.Dir), r.Spec[1:]
	default:
		anchor, pattern = from, r.Spec
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
