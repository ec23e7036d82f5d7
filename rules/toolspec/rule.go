// Package toolspec matches tool calls against rules of the form Tool or Tool(specifier). It is pure. There are two
// profiles: MatchRule is the simple one, Rule.Matches follows the documented behaviour of the client that the form comes
// from.
package toolspec

import (
	"errors"
	"math"
	"path"
	"strings"
	"unicode/utf8"

	"dshproxy/netrule"
	"dshproxy/rules/work"
)

// Call is a tool call: a name and its arguments, decoded from JSON.
type Call struct {
	Tool  string         `json:"tool"`
	Input map[string]any `json:"input"`
	// Script is the command, if it has been read; nil reads it when it is needed.
	Script *Script `json:"-"`
	// Work bounds what the verdict may cost; nil is a budget of its own. When it is used up, nothing is known: see Decide.
	Work *work.Budget `json:"-"`
}

// text gives the first of some string arguments that is there.
func (c Call) text(keys ...string) (string, bool) {
	for _, k := range keys {
		if s, ok := c.Input[k].(string); ok {
			return s, true
		}
	}
	return "", false
}

// Rule is a parsed rule. The zero value matches nothing.
type Rule struct {
	Tool string
	// Spec is what stands in the parentheses; Bare says that there are none.
	Spec string
	Bare bool
}

// ParseRule reads Tool or Tool(specifier). The specifier runs to the last parenthesis and is not empty.
func ParseRule(text string) (Rule, error) {
	open := strings.IndexByte(text, '(')
	switch {
	case text == "":
		return Rule{}, errors.New("an empty rule")
	case open < 0 && strings.IndexByte(text, ')') >= 0:
		return Rule{}, errors.New("a closing parenthesis without an opening one")
	case open < 0:
		return Rule{Tool: text, Bare: true}, nil
	case open == 0:
		return Rule{}, errors.New("no tool before the parenthesis")
	case strings.IndexByte(text[:open], ')') >= 0, text[len(text)-1] != ')':
		return Rule{}, errors.New("want Tool(specifier), with the closing parenthesis at the end")
	case open == len(text)-2:
		return Rule{}, errors.New("an empty specifier; leave the parentheses out to match every call")
	}
	return Rule{Tool: text[:open], Spec: text[open+1 : len(text)-1]}, nil
}

// MatchRule reports whether a rule matches a call, in the simple profile: tools are equal; a command is matched as a
// whole, and "*" does not cross a line end; paths have gitignore globs after a leading "./" is off; a host is equal to
// that of the URL. A rule or a call that does not parse matches nothing.
func MatchRule(rule string, c Call) bool {
	r, err := ParseRule(rule)
	if err != nil || r.Tool != c.Tool {
		return false
	}
	if r.Bare {
		return true
	}
	switch r.Tool {
	case "Bash":
		command, ok := c.text("command")
		return ok && wildcard(r.Spec, command, isLineEnd)
	case "Read", "Edit", "Write":
		p, ok := c.text("path", "file_path")
		return ok && p != "" && matchPath(path.Clean(r.Spec), path.Clean(p), work.New(math.MaxInt))
	case "WebFetch":
		domain, ok := strings.CutPrefix(r.Spec, "domain:")
		host, isURL := hostOf(c)
		return ok && domain != "" && isURL && host == canonicalHost(domain)
	default:
		return false
	}
}

// isLineEnd reports what "." of a JavaScript expression does not match.
func isLineEnd(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' }

func never(rune) bool { return false }

// wildcard matches a whole text against a pattern in which "*" is any run without characters that stop it, and all else
// is literal. It takes the shortest run for each star; a longer one is tried only for the last, which is enough: where a
// star may grow, what it passes holds nothing that stops another.
func wildcard(pattern, text string, stops func(rune) bool) bool {
	matched, _ := wildcardWithin(pattern, text, stops, math.MaxInt)
	return matched
}

// within is wildcard with the work that is left.
func within(pattern, text string, stops func(rune) bool, left *work.Budget) bool {
	matched, steps := wildcardWithin(pattern, text, stops, left.Steps())
	return left.Used(steps) && matched
}

// wildcardWithin gives up when it has taken most steps, and tells how many it took.
func wildcardWithin(pattern, text string, stops func(rune) bool, most int) (matched bool, steps int) {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(text) {
		if steps++; steps > most {
			return false, steps
		}
		// A broken byte is like any other, as it is where texts are made of characters.
		r, size := utf8.DecodeRuneInString(text[j:])
		var want rune
		var width int
		if i < len(pattern) {
			want, width = utf8.DecodeRuneInString(pattern[i:])
		}
		switch {
		case want == '*':
			star, mark = i, j
			i += width
		case width > 0 && want == r:
			i += width
			j += size
		case star >= 0:
			passed, step := utf8.DecodeRuneInString(text[mark:])
			if stops(passed) {
				return false, steps
			}
			mark += step
			i, j = star+1, mark
		default:
			return false, steps
		}
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern), steps
}

// matchPath matches cleaned paths segment by segment: "**" is any number of segments, none included unless it stands
// last; within a segment "*", "?", classes and "\" are as in gitignore.
func matchPath(pattern, name string, left *work.Budget) bool {
	if !left.Spend(100 + 3*len(name)) {
		return false
	}
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	i, j, star, mark := 0, 0, -1, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == "**":
			if i == len(p)-1 {
				return true // and at least one segment is left for it
			}
			star, mark = i, j
			i++
		case i < len(p) && matchSegment(p[i], n[j], left):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
		if !left.Spend(20) {
			return false
		}
	}
	return i == len(p)
}

func matchSegment(pattern, name string, left *work.Budget) bool {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return pattern == name
	}
	if !left.Spend(100 + 3*len(name)*(1+len(pattern))) {
		return false
	}
	if name == ".." && pattern != ".." {
		return false
	}
	ok, err := path.Match(strings.ReplaceAll(strings.ReplaceAll(pattern, "[!", "[^"), "**", "*"), name)
	return err == nil && ok
}

// hostOf gives the host that a call's URL names, as a browser reads it; schemes do not count.
func hostOf(c Call) (string, bool) {
	text, ok := c.text("url")
	if !ok {
		return "", false
	}
	if scheme, rest, found := strings.Cut(text, "://"); found {
		if _, known := netrule.ParseScheme(strings.ToLower(scheme)); !known {
			text = "http://" + rest
		}
	}
	t, err := netrule.ParseURL(text)
	return t.Host, err == nil
}

// canonicalHost is the spelling that hostOf gives, or empty for no host.
func canonicalHost(text string) string {
	t, err := netrule.ParseURL("http://" + text)
	if err != nil {
		return ""
	}
	return t.Host
}
