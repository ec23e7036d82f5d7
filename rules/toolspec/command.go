package toolspec

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"dshproxy/rules/shellword"
	"dshproxy/rules/work"

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

// simpleCommand is one command of a shell text.
type simpleCommand struct {
	assigns []string // NAME of NAME=value before it
	words   []string // in their own spelling
	plain   []string // decoded
	writes  []string // files that it redirects output to
	reads   []string // files that it redirects input from
	timed   bool     // by the shell itself

	texts []string // what spellings gives
}

// spelt is the command as it is written.
func (c *simpleCommand) spelt() string { return strings.Join(c.words, " ") }

// spellings are the texts that deny and ask rules look at: as it is written and decoded, each with and without wrappers.
func (c *simpleCommand) spellings() []string {
	if c.texts == nil {
		for _, words := range [][]string{c.words, strip(c.words), c.plain, strip(c.plain)} {
			if text := strings.Join(words, " "); !slices.Contains(c.texts, text) {
				c.texts = append(c.texts, text)
			}
		}
	}
	return c.texts
}

// firesOn: a deny or ask rule fires on any command at any depth, or on the whole text.
func (r Rule) firesOn(c *subject) bool {
	if len(c.script.text) > maxParsed {
		c.Work.Empty()
		return false
	}
	covers := func(text string) bool { return r.covers(text, c.Work) }
	if covers(c.trimmed) {
		return true
	}
	for i := range c.script.commands {
		if c.Work.Over() {
			return false
		}
		if slices.ContainsFunc(c.script.commands[i].spellings(), covers) {
			return true
		}
	}
	return false
}

// allowsCommand: every command at any depth must be covered by one of the allow rules, each perhaps by another.
func allowsCommand(rules []Rule, c *subject) bool {
	if !c.script.whole || len(c.script.text) > maxCommand || len(c.script.commands) == 0 {
		return false
	}
	covered := false
	for i := range c.script.commands {
		cmd := &c.script.commands[i]
		if len(cmd.words)+len(cmd.assigns)+len(cmd.writes) == 0 {
			continue // a compound command; what is in it has places of its own
		}
		covered = true
		approves := func(r Rule) bool { return r.approves(cmd, c.Work) }
		if !slices.ContainsFunc(rules, approves) {
			return false
		}
	}
	return covered
}

// approves reports whether an allow rule covers one command. A redirect writes a file, which no rule for commands speaks of.
func (r Rule) approves(c *simpleCommand, left *work.Budget) bool {
	return onlySafe(c.assigns) && len(c.writes) == 0 && r.covers(strings.Join(strip(c.words), " "), left) && (!r.hasStar() || !runsOthers(strip(c.plain)))
}

func (r Rule) hasStar() bool { return strings.Contains(r.Spec, "*") }

// covers matches one command. A lone star at the end, behind a space or as ":*", also matches the bare prefix.
func (r Rule) covers(command string, left *work.Budget) bool {
	pattern := r.Spec
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		pattern = prefix + " *"
	}
	if prefix, ok := strings.CutSuffix(pattern, " *"); ok && !strings.Contains(prefix, "*") && command == prefix {
		return true
	}
	return within(pattern, command, never, left)
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
			return w == "-delete" || strings.HasPrefix(w, "-exec") || strings.HasPrefix(w, "-ok") || strings.HasPrefix(w, "-fprint") || w == "-fls"
		})
	default:
		return false
	}
}

// wrapperValues are the wrappers that are known to run just what follows them, with their options that take a word.
var wrapperValues = map[string][]string{
	"time": nil, "nohup": nil, "builtin": nil, "noglob": nil, "command": nil, "xargs": nil, "nice": {"-n", "--adjustment"},
	"stdbuf": {"-i", "-o", "-e", "--input", "--output", "--error"}, "timeout": {"-k", "-s", "--kill-after", "--signal"},
}

// strip takes those wrappers off. xargs with options and command -v run something else, or nothing.
func strip(words []string) []string {
	for len(words) > 1 {
		if words[0] == "--" { // of a wrapper that the shell itself reads, as time
			words = words[1:]
			continue
		}
		values, ok := wrapperValues[words[0]]
		if !ok || words[0] == "xargs" && strings.HasPrefix(words[1], "-") || words[0] == "command" && (words[1] == "-v" || words[1] == "-V") {
			return words
		}
		rest := words[1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
			end, takes := rest[0] == "--", slices.Contains(values, rest[0])
			rest = rest[1:]
			if takes && len(rest) > 0 {
				rest = rest[1:]
			}
			if end {
				break
			}
		}
		if words[0] == "timeout" && len(rest) > 0 {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return words
		}
		words = rest
	}
	return words
}

// safeVariables may be set before a command that an allow rule approves: they change how it prints, not what it runs.
var safeVariables = []string{"NODE_ENV", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "FORCE_COLOR", "RUST_BACKTRACE", "RUST_LOG", "GOOS", "GOARCH", "CGO_ENABLED", "DEBUG", "CI"}

func onlySafe(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(safeVariables, name) })
}

const (
	maxBrackets = 4096 // the parser recurses
	maxParsed   = 128 << 10
)

// Script is shell text that is read.
type Script struct {
	text     string
	commands []simpleCommand
	whole    bool
}

// Reads reports whether the script is what a text reads as.
func (s *Script) Reads(text string) bool { return s != nil && s.text == text }

// ReadScript reads shell text.
func ReadScript(text string) *Script {
	s := &Script{text: text}
	s.commands, s.whole = parseCommands(text)
	if ended := shellword.EndComments(text); ended != text {
		// It reads in two ways: deny rules look at both, and no allow rule approves it.
		more, _ := parseCommands(ended)
		s.commands, s.whole = append(s.commands, more...), false
	}
	return s
}

// ReadStatements is ReadScript for text that has been parsed, all of it.
func ReadStatements(text string, stmts []*syntax.Stmt) *Script {
	if shellword.EndComments(text) != text {
		return ReadScript(text)
	}
	s := &Script{text: text}
	s.commands, s.whole = commandsOf(&syntax.File{Stmts: stmts}, text)
	return s
}

// parseCommands gives every simple command at any depth. whole is false when the text does not parse or holds what is no
// simple command, such as a function; the commands are then those before, and the rest split at operators.
func parseCommands(text string) (commands []simpleCommand, whole bool) {
	if strings.Count(text, "(")+strings.Count(text, "{")+strings.Count(text, "`") > maxBrackets || len(text) > maxParsed {
		return splitPlainly(text), false
	}
	defer func() {
		// A panic is a bug of the library met by a hostile text, which then counts as one that does not parse.
		if p := recover(); p != nil {
			commands, whole = splitPlainly(text), false
		}
	}()
	var file syntax.File
	parses := true
	for s, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(text)) {
		if parses = err == nil; !parses {
			break
		}
		file.Stmts = append(file.Stmts, s)
	}
	commands, whole = commandsOf(&file, text)
	if !parses {
		// A shell runs what stands before an error.
		return append(commands, splitPlainly(text)...), false
	}
	return commands, whole
}

// commandsOf gives the simple commands of a parsed text.
func commandsOf(file *syntax.File, text string) (commands []simpleCommand, whole bool) {
	whole = true
	slice := func(n syntax.Node) string { return text[n.Pos().Offset():n.End().Offset()] }
	timed := map[*syntax.Stmt]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.TimeClause:
			timed[n.Stmt] = true
		case *syntax.FuncDecl, *syntax.CoprocClause, *syntax.DeclClause, *syntax.LetClause, *syntax.TestDecl:
			whole = false
		case *syntax.WordIter:
			// A loop sets its variable for all that is run in it.
			whole = whole && (onlySafe([]string{n.Name.Value}) || strings.ToLower(n.Name.Value) == n.Name.Value)
		case *syntax.ParamExp:
			whole = whole && (n.Exp == nil || n.Exp.Op != syntax.AssignUnset && n.Exp.Op != syntax.AssignUnsetOrNull)
		case *syntax.Stmt:
			c := simpleCommand{timed: timed[n]}
			for _, r := range n.Redirs {
				if writesFile(r, slice) {
					c.writes = append(c.writes, shellword.Text(r.Word, text))
				}
				if r.Op == syntax.RdrIn || r.Op == syntax.RdrInOut {
					c.reads = append(c.reads, shellword.Text(r.Word, text))
				}
			}
			call, ok := n.Cmd.(*syntax.CallExpr)
			if !ok {
				whole = whole && len(c.writes) == 0
				commands = append(commands, c)
				break
			}
			for _, a := range call.Assigns {
				if a.Name != nil {
					c.assigns = append(c.assigns, a.Name.Value)
				}
			}
			for _, w := range call.Args {
				c.words, c.plain = append(c.words, slice(w)), append(c.plain, shellword.Text(w, text))
			}
			commands = append(commands, c)
		}
		return true
	})
	return commands, whole
}

// Command is one simple command of a shell text.
type Command struct {
	// Text is the command as it is written, without assignments and redirects.
	Text string
	// Words are its words, decoded; none for redirects alone.
	Words []string
	// Files are what it redirects from and to, decoded, but for /dev/null.
	Files []string
	// Timed says that the shell's own time runs it.
	Timed bool
}

// Readings gives what the command may as well be called: decoded, without what runs it, by the name of its program alone.
func (c *Command) Readings() []string {
	var out []string
	for _, words := range [][]string{c.Words, strip(c.Words), runs(c.Words)} {
		if len(words) == 0 {
			continue
		}
		rest := strings.Join(append([]string{""}, words[1:]...), " ")
		for _, name := range []string{words[0], path.Base(words[0])} {
			if text := name + rest; text != c.Text && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// Commands gives every simple command of the text at any depth. whole is false when the text does not parse, or holds
// what is no simple command; what there is was then split by operators.
func (s *Script) Commands() (commands []Command, whole bool) {
	for i := range s.commands {
		c := &s.commands[i]
		files := slices.DeleteFunc(slices.Concat(c.reads, c.writes), func(f string) bool { return f == "/dev/null" })
		if len(c.words)+len(files) > 0 {
			commands = append(commands, Command{c.spelt(), c.plain, files, c.timed})
		}
	}
	return commands, s.whole
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

// unquoter takes off what quotes, wherever it stands.
var unquoter = strings.NewReplacer(`"`, "", "'", "", `\`, "")

// splitPlainly cuts at operators without regard to quotes, which can only make a deny rule see more. What a shell reads
// before a command is taken off.
func splitPlainly(text string) []simpleCommand {
	var out []simpleCommand
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";|&\n()`{}", r) }) {
		words := strings.Fields(part)
		for len(words) > 0 && (slices.Contains([]string{"then", "do", "else", "elif", "if", "while", "until", "!", "$"}, words[0]) || strings.IndexByte(words[0], '=') > 0) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		c := simpleCommand{words: words}
		for _, w := range words {
			c.plain = append(c.plain, unquoter.Replace(w))
		}
		// What does not parse may name a file anywhere.
		names := strings.FieldsFunc(unquoter.Replace(part), func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("<>,=", r) })
		c.reads, c.writes = names, names
		out = append(out, c)
	}
	return out
}
