package toolspec

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// scalar gives the text of a JSON scalar.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	default:
		return "", false
	}
}

// maxCommand is the longest command, in bytes, that an allow rule may approve.
const maxCommand = 10_000

// simpleCommand is one command of a shell text, in its own spelling.
type simpleCommand struct {
	assigns []string // NAME of NAME=value before it
	words   []string
	writes  bool // it redirects output to a file
}

// commandMatches: a deny or ask rule fires on any command at any depth, or on the whole text; an allow rule must cover
// every one.
func (r Rule) commandMatches(allow bool, c Call) bool {
	text, ok := c.text("command")
	if !ok {
		return false
	}
	commands, whole := parseCommands(text)
	if !allow {
		if r.covers(strings.TrimSpace(text)) {
			return true
		}
		return slices.ContainsFunc(commands, func(c simpleCommand) bool { return r.covers(c.text()) || r.covers(c.stripped()) })
	}
	if !whole || len(text) > maxCommand || len(commands) == 0 {
		return false
	}
	for _, c := range commands {
		if !c.assignsOnlySafe() || c.writes {
			return false
		}
		if inner := c.stripped(); !r.covers(inner) || r.hasStar() && runsOthers(strings.Fields(inner)) {
			return false
		}
	}
	return true
}

func (r Rule) hasStar() bool { return strings.Contains(r.Spec, "*") }

// covers matches one command. A lone star at the end, behind a space or as ":*", also matches the bare prefix.
func (r Rule) covers(command string) bool {
	pattern := r.Spec
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		pattern = prefix + " *"
	}
	if prefix, ok := strings.CutSuffix(pattern, " *"); ok && !strings.Contains(prefix, "*") && command == prefix {
		return true
	}
	return wildcard(pattern, command, never)
}

// runsOthers reports commands that run or delete what their arguments say: no wildcard approves those.
func runsOthers(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "watch", "setsid", "ionice", "flock":
		return true
	case "find":
		return slices.ContainsFunc(words, func(w string) bool {
			return w == "-delete" || strings.HasPrefix(w, "-exec") || strings.HasPrefix(w, "-ok")
		})
	default:
		return false
	}
}

func (c simpleCommand) text() string { return strings.Join(c.words, " ") }

// stripped takes the wrappers off that are known to run just what follows them.
func (c simpleCommand) stripped() string {
	w := c.words
	for len(w) > 1 {
		rest := w[1:]
		switch w[0] {
		case "time", "nohup", "builtin", "noglob":
		case "command", "xargs":
			if strings.HasPrefix(rest[0], "-") {
				return strings.Join(w, " ")
			}
		case "nice", "stdbuf", "timeout":
			for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
				takes := slices.Contains([]string{"-n", "-k", "-s", "-i", "-o", "-e"}, rest[0])
				if rest = rest[1:]; takes && len(rest) > 0 {
					rest = rest[1:]
				}
			}
			if w[0] == "timeout" && len(rest) > 0 {
				rest = rest[1:]
			}
		default:
			return strings.Join(w, " ")
		}
		if len(rest) == 0 {
			return strings.Join(w, " ")
		}
		w = rest
	}
	return strings.Join(w, " ")
}

// safeVariables may be set before a command that an allow rule approves: they change how it prints, not what it runs.
var safeVariables = []string{"NODE_ENV", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "FORCE_COLOR", "RUST_BACKTRACE", "RUST_LOG", "GOOS", "GOARCH", "CGO_ENABLED", "DEBUG", "CI"}

func (c simpleCommand) assignsOnlySafe() bool {
	return !slices.ContainsFunc(c.assigns, func(name string) bool { return !slices.Contains(safeVariables, name) })
}

const (
	maxBrackets = 4096 // the parser recurses
	maxParsed   = 256 << 10
)

// parseCommands gives every simple command at any depth. whole is false when the text does not parse or holds what is no
// simple command, such as a function; the commands are then those before, and the rest split at operators.
func parseCommands(text string) (commands []simpleCommand, whole bool) {
	if strings.Count(text, "(")+strings.Count(text, "{")+strings.Count(text, "`") > maxBrackets || len(text) > maxParsed {
		return splitPlainly(text), false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return splitPlainly(text), false
	}
	whole = true
	slice := func(n syntax.Node) string { return text[n.Pos().Offset():n.End().Offset()] }
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl, *syntax.CoprocClause, *syntax.DeclClause, *syntax.LetClause, *syntax.TestDecl:
			whole = false
		case *syntax.Stmt:
			c := simpleCommand{}
			for _, r := range n.Redirs {
				c.writes = c.writes || writesFile(r, slice)
			}
			call, ok := n.Cmd.(*syntax.CallExpr)
			if !ok {
				whole = whole && !c.writes
				break
			}
			for _, a := range call.Assigns {
				if a.Name != nil {
					c.assigns = append(c.assigns, a.Name.Value)
				}
			}
			for _, w := range call.Args {
				c.words = append(c.words, slice(w))
			}
			commands = append(commands, c)
		}
		return true
	})
	return commands, whole
}

// writesFile reports a redirect to a file other than /dev/null.
func writesFile(r *syntax.Redirect, slice func(syntax.Node) string) bool {
	switch r.Op {
	case syntax.RdrIn, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return false
	case syntax.DplOut:
		_, err := strconv.Atoi(strings.TrimSuffix(slice(r.Word), "-"))
		return err != nil && slice(r.Word) != "-"
	default:
		return slice(r.Word) != "/dev/null"
	}
}

// splitPlainly cuts at operators without regard to quotes, which can only make a deny rule see more.
func splitPlainly(text string) []simpleCommand {
	var out []simpleCommand
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";|&\n()`{}", r) }) {
		if words := strings.Fields(part); len(words) > 0 {
			out = append(out, simpleCommand{words: words})
		}
	}
	return out
}
