package rules

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"dshproxy/rules/work"
)

// guard knows which files a call may not change.
type guard struct {
	work      *work.Budget
	cwds      []string // lower case: the folder of the call, and those that it enters
	protected []string // lower case
	unsure    map[string]doubt
}

func newGuard(c *Call, left *work.Budget) *guard {
	g := &guard{work: left, cwds: []string{folded(c.Cwd)}}
	if c.Cwd == "" {
		g.cwds[0] = folded(c.Workspace)
	}
	for _, p := range c.Protected {
		if p = path.Clean(folded(p)); path.IsAbs(p) || driveOf(p+"/") != "" {
			g.protected = append(g.protected, p)
		}
	}
	return g
}

// folded is a path as it is compared: some programs take a backslash, and some file systems fold case, leave out characters
// without width, or dots and blanks at the end of a name.
func folded(p string) string {
	p = strings.ToLower(invisible.Replace(p))
	if strings.Contains(p, "./") || strings.Contains(p, " /") || strings.HasSuffix(p, ".") || strings.HasSuffix(p, " ") {
		segments := strings.Split(p, "/")
		for i, s := range segments {
			if name := strings.TrimRight(s, ". "); name != "" && name != s {
				segments[i] = name
			}
		}
		p = strings.Join(segments, "/")
	}
	return p
}

var invisible = strings.NewReplacer(`\`, "/", "\u200b", "", "\u200c", "", "\u200d", "", "\u200e", "", "\u200f", "", "\u2060", "", "\ufeff", "")

// maxFolders is how many folders a call may enter before the first ones are forgotten.
const maxFolders = 16

// enter notes that the commands behind this one may run in another folder.
func (g *guard) enter(args []string) {
	for _, a := range args {
		if a == "" || a[0] == '-' {
			continue
		}
		next := folded(a)
		if !isRooted(next) {
			next = path.Join(g.cwds[len(g.cwds)-1], next)
		}
		if slices.Contains(g.cwds, next) {
			continue
		}
		if len(g.cwds) >= maxFolders {
			// The first is the call's own; one that holds a policy is kept.
			i := 1 + slices.IndexFunc(g.cwds[1:], func(d string) bool { return !isPolicyPath(d + "/*") })
			g.cwds = slices.Delete(g.cwds, max(i, 1), max(i, 1)+1)
		}
		g.cwds = append(g.cwds, next)
		return
	}
}

func (g *guard) anyPolicy(words []string) bool { return slices.ContainsFunc(words, g.isPolicy) }

// spellings are the paths that an argument may hold: itself, the value of an option, what follows an option's letter.
func spellings(a string) []string {
	a = strings.TrimFunc(a, func(r rune) bool { return r <= ' ' })
	if i := strings.IndexByte(a, 0); i >= 0 {
		a = a[:i]
	}
	if uri, ok := strings.CutPrefix(a, "file://"); ok {
		if decoded, err := url.PathUnescape(uri); err == nil {
			uri = decoded
		}
		a = uri
	}
	out := []string{strings.TrimPrefix(a, "@")}
	if _, value, ok := strings.Cut(a, "="); ok {
		out = append(out, strings.TrimPrefix(value, "@"))
	}
	if len(a) > 2 && a[0] == '-' && a[1] != '-' {
		out = append(out, a[2:])
		// The option may be bundled with others: -sSoFILE.
		for i := 3; i < len(a) && i < 8 && isLetter(a[i-1]); i++ {
			if a[i] == '.' || a[i] == '/' || a[i] == '~' {
				out = append(out, a[i:])
			}
		}
	}
	return out
}

// isPolicy reports an argument that names a policy file, or a folder of one, in any folder that the call runs in. A
// pattern that may name one counts too.
func (g *guard) isPolicy(a string) bool {
	for _, name := range spellings(a) {
		if name == "" {
			continue
		}
		name = folded(name)
		for _, cwd := range g.cwds {
			full := name
			if !isRooted(name) {
				full = path.Join(cwd, name)
			}
			full = path.Clean(full)
			if isPolicyPath(full) || g.isProtected(full) {
				return true
			}
			if isRooted(name) {
				break
			}
		}
	}
	return false
}

// isRooted reports a path that does not start from the working folder.
func isRooted(p string) bool {
	return p != "" && (p[0] == '/' || p[0] == '~' || p[0] == '$') || driveOf(p+"/") != ""
}

// isProtected reports a path that is, or lies below, one that the caller named. What a variable or ~ stands for is not
// known: the rest decides.
func (g *guard) isProtected(full string) bool {
	rest := full
	loose := full != "" && (full[0] == '~' || full[0] == '$')
	if loose {
		if _, rest, loose = strings.Cut(full, "/"); rest == "" {
			return false
		}
	}
	for _, p := range g.protected {
		switch {
		case loose && (strings.HasSuffix(p, "/"+rest) || strings.Contains(p+"/", "/"+rest+"/") && strings.Contains(rest, "/")):
			return true
		case below(full, p):
			return true
		case strings.ContainsAny(full, "*?[{") && matchesPath(full, p, false):
			return true
		}
	}
	return false
}

// below reports whether a path is another one, or lies below it.
func below(p, folder string) bool {
	return p == folder || strings.HasPrefix(p, folder) && (strings.HasSuffix(folder, "/") || p[len(folder)] == '/')
}

// holdsPolicy reports a folder above a policy file: who moves or removes it moves or removes the file.
func (g *guard) holdsPolicy(a string) bool {
	for _, name := range spellings(a) {
		if name == "" || name[0] == '-' {
			continue
		}
		name = folded(name)
		if name[0] == '~' || name[0] == '$' {
			_, rest, ok := strings.Cut(path.Clean(name), "/")
			if !ok || rest == "" || strings.ContainsAny(rest, "*?[") {
				continue
			}
			for _, p := range g.protected {
				if strings.Contains(p, "/"+rest+"/") {
					return true
				}
			}
			continue
		}
		if !isRooted(name) {
			name = path.Join(g.cwds[len(g.cwds)-1], name)
		}
		name = path.Clean(name)
		for _, p := range g.protected {
			if below(p, name) || strings.ContainsAny(name, "*?[{") && matchesPath(name, p, true) {
				return true
			}
		}
	}
	return false
}

// matchesPath reports whether a shell pattern may name a path or what lies below it, or a folder above it.
func matchesPath(pattern, name string, above bool) bool {
	patterns, names := strings.Split(pattern, "/"), strings.Split(name, "/")
	if len(patterns) < len(names) && !above {
		return false
	}
	for i := range min(len(patterns), len(names)) {
		if !mayBe(patterns[i], names[i]) {
			return false
		}
	}
	return true
}

// isPolicyPath reports a path, in lower case and clean, that names rules, settings of dshproxy or settings of the client,
// wherever it lies.
func isPolicyPath(name string) bool {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		before, behind := "", segments[i+1:]
		if i > 0 {
			before = segments[i-1]
		}
		switch {
		case s == "" || s == "*" || s == "**":
		case mayBe(s, ".dsh"):
			return true
		case mayBe(s, ".claude"):
			if len(behind) == 0 || len(behind) == 1 && isSettings(behind[0]) {
				return true
			}
		case mayBe(s, "dshproxy") && (isOneOf(before, " etc .config $xdg_config_home ${xdg_config_home} $xdg_state_home ${xdg_state_home} ") || before == "state" && i > 1 && segments[i-2] == ".local"):
			return true
		case before == "etc" && mayBe(s, "claude-code"):
			return true
		case mayBe(s, ".pi") && isPiPath(behind):
			return true
		case len(behind) == 0 && (s == "pi-permissions.jsonc" || s == "managed-settings.json" || s == "config.json" && before == "pi-permission-system"):
			return true
		}
	}
	return false
}

// isSettings reports what may be a file of settings in the folder of the client.
func isSettings(s string) bool {
	return strings.HasPrefix(s, "settings") && strings.Contains(s, ".json") || s == "*" || mayBe(s, "settings.json") || mayBe(s, "settings.local.json")
}

// isPiPath reports what holds the permission files below the folder of pi.
func isPiPath(behind []string) bool {
	full := [][]string{{"agent", "extensions", "pi-permission-system", "config.json"}, {"extensions", "pi-permission-system", "config.json"}, {"agent", "pi-permissions.jsonc"}, {"pi-permissions.jsonc"}}
	return slices.ContainsFunc(full, func(names []string) bool {
		if len(behind) > len(names) {
			return false
		}
		for i, b := range behind {
			if !mayBe(b, names[i]) && b != "*" {
				return false
			}
		}
		return true
	})
}

// mayBe reports whether a shell pattern can stand for a name. Stars alone do not stand for a hidden one.
func mayBe(pattern, name string) bool {
	switch {
	case pattern == name:
		return true
	case !strings.ContainsAny(pattern, "*?[{"):
		return false
	case strings.Trim(pattern, "*") == "":
		return name[0] != '.'
	case strings.Contains(pattern, "{"):
		return braceMayBe(pattern, name)
	}
	ok, err := path.Match(classes.Replace(pattern), name)
	return ok || err != nil && isClass(pattern)
}

// isClass reports a class in brackets that path.Match does not read, such as []x].
func isClass(pattern string) bool {
	open := strings.IndexByte(pattern, '[')
	return len(pattern) < 64 && open >= 0 && open+2 < len(pattern) && strings.IndexByte(pattern[open+2:], ']') >= 0
}

// classes puts what a shell reads in brackets as path.Match does.
var classes = strings.NewReplacer("[!", "[^", "[[:alpha:]]", "?", "[[:lower:]]", "?", "[[:alnum:]]", "?", "[[:graph:]]", "?", "[[:print:]]", "?", "[[:punct:]]", "?", "[[:word:]]", "?", "[[:ascii:]]", "?", "[[:xdigit:]]", "?")

// braceMayBe takes any run of characters for a list in braces.
func braceMayBe(pattern, name string) bool {
	open, end := strings.IndexByte(pattern, '{'), strings.LastIndexByte(pattern, '}')
	if end < open || !strings.Contains(pattern[open:end], ",") && !strings.Contains(pattern[open:end], "..") || len(pattern) > 64 {
		return false
	}
	ok, _ := path.Match(classes.Replace(pattern[:open]+"*"+pattern[end+1:]), name)
	return ok
}
