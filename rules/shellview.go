package rules

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shellViews are what a shell would run, as far as the text shows: every simple command at any depth, with wrappers and
// assignments taken off, and every real pipeline with its contiguous parts. They are for deny and ask rules.
type shellViews struct {
	commands  []simpleCommand
	pipelines []string
	// words are all decoded words, for the targets in them.
	words    []string
	unparsed bool
}

const (
	maxShellText  = 256 << 10 // longer text is split by words alone: the parser is not linear enough for a hostile megabyte
	maxShellDepth = 64        // of brackets and substitutions, and of text inside text
	maxWrappers   = 16        // around one command that are views of their own
	maxViews      = 20_000    // simple commands of one call
)

func (f *facts) shellViews() *shellViews {
	if f.viewsDone {
		return &f.views
	}
	f.viewsDone = true
	for _, c := range f.commandTexts() {
		switch {
		case c.words != nil:
			f.views.addWords(c.words, nil, 0)
			f.views.pipelines = append(f.views.pipelines, baseName(c.words[0]))
		case f.call.Tool == "pwsh":
			f.views.addLexical(c.text)
		default:
			f.views.addText(c.text, 0)
		}
	}
	return &f.views
}

// addText parses shell text statement by statement. What stands behind the first error is split by words.
func (v *shellViews) addText(text string, depth int) {
	text = strings.ReplaceAll(text, "\r", "")
	if len(text) > maxShellText || depth > maxShellDepth || nesting(text) > maxShellDepth {
		v.unparsed = true
		v.addLexical(text)
		return
	}
	end := uint(0)
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash))
	var failed error
	for stmt, err := range parser.StmtsSeq(strings.NewReader(text)) {
		if err != nil {
			failed = err
			break
		}
		end = stmt.End().Offset()
		v.addStmt(stmt, text, depth)
	}
	if failed != nil {
		v.unparsed = true
		v.addLexical(text[min(int(end), len(text)):])
	}
}

// nesting bounds how deep brackets and substitutions can be nested, before a recursive parser sees them.
func nesting(text string) int {
	depth, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '(', '{', '`', '[':
			depth++
			deepest = max(deepest, depth)
		case ')', '}', ']':
			depth = max(depth-1, 0)
		case '\n', ';':
			if depth < 2 {
				depth = 0
			}
		}
	}
	return deepest
}

// addLexical takes the original's split, with wrappers taken off.
func (v *shellViews) addLexical(text string) {
	commands := splitLexically(text)
	var names []string
	for i := range commands {
		c := &commands[i]
		words := append([]string{c.word}, c.args...)
		v.addWords(words, c.redirects, maxShellDepth)
		names = append(names, lastName(words))
	}
	v.addPipeline(names)
}

// addPipeline adds every contiguous part of a pipeline as a signature.
func (v *shellViews) addPipeline(names []string) {
	const longest = 12 // parts of a longer pipeline are quadratic; its neighbours still count
	for i := range names {
		for j := i + 1; j <= min(len(names), i+longest); j++ {
			if len(v.pipelines) < maxViews {
				v.pipelines = append(v.pipelines, strings.Join(names[i:j], "|"))
			}
		}
	}
	if len(names) > longest {
		v.pipelines = append(v.pipelines, strings.Join(names, "|"))
	}
}

// addStmt walks a statement: every call at any depth, and the pipelines they stand in.
func (v *shellViews) addStmt(stmt *syntax.Stmt, text string, depth int) {
	syntax.Walk(stmt, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			v.addSimple(n, text, depth)
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
				v.addPipeline(stages(n, text))
			}
		}
		return true
	})
}

// addSimple adds the call of a statement, with the redirects that belong to it.
func (v *shellViews) addSimple(stmt *syntax.Stmt, text string, depth int) {
	var redirects []string
	for _, r := range stmt.Redirs {
		if r.Word != nil {
			redirects = append(redirects, wordText(r.Word, text))
		}
		if r.Hdoc != nil {
			// A here-document may be a script for the command it feeds; the original reads it as one.
			v.addLexical(wordText(r.Hdoc, text))
		}
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok {
		if len(redirects) > 0 {
			v.add(simpleCommand{redirects: redirects})
		}
		if d, isDecl := stmt.Cmd.(*syntax.DeclClause); isDecl {
			v.addDecl(d, text)
		}
		return
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, wordText(w, text))
	}
	for _, a := range call.Assigns {
		if a.Value != nil {
			v.words = append(v.words, wordText(a.Value, text))
		}
	}
	if len(words) == 0 {
		if len(redirects) > 0 {
			v.add(simpleCommand{redirects: redirects})
		}
		return
	}
	v.addWords(words, redirects, depth)
}

// addDecl keeps export, local and the like visible as commands.
func (v *shellViews) addDecl(d *syntax.DeclClause, text string) {
	c := simpleCommand{word: d.Variant.Value}
	for _, a := range d.Args {
		c.args = append(c.args, text[a.Pos().Offset():a.End().Offset()])
	}
	v.words = append(v.words, c.args...)
	v.add(c)
}

func (v *shellViews) add(c simpleCommand) {
	if len(v.commands) >= maxViews {
		v.unparsed = true
		return
	}
	v.commands = append(v.commands, c)
}

// addWords adds a command and everything that it wraps: sudo rm gives rm too, sh -c 'rm' the text inside. Of very many
// wrappers it keeps the first ones and what they end at.
func (v *shellViews) addWords(words, redirects []string, depth int) {
	words = skipAssignments(words)
	v.words = append(v.words, words...)
	for level := 0; len(words) > 0; level++ {
		name := baseName(words[0])
		wrapped := skipAssignments(unwrap(name, words[1:]))
		if level < maxWrappers || len(wrapped) == 0 {
			v.add(simpleCommand{word: name, args: words[1:], redirects: redirects})
			if inner, ok := innerText(name, words[1:]); ok && depth < maxShellDepth {
				v.addText(inner, depth+1)
			}
		}
		words = wrapped
	}
}

// stages are the command names of a pipeline, in order, behind their wrappers.
func stages(n *syntax.BinaryCmd, text string) []string {
	var out []string
	for _, side := range []*syntax.Stmt{n.X, n.Y} {
		if inner, ok := side.Cmd.(*syntax.BinaryCmd); ok && (inner.Op == syntax.Pipe || inner.Op == syntax.PipeAll) {
			out = append(out, stages(inner, text)...)
			continue
		}
		name := ""
		if call, ok := side.Cmd.(*syntax.CallExpr); ok {
			var words []string
			for _, w := range call.Args {
				words = append(words, wordText(w, text))
			}
			name = lastName(words)
		}
		out = append(out, name)
	}
	return out
}

// lastName is the name of the command that the wrappers end at.
func lastName(words []string) string {
	name := ""
	for words = skipAssignments(words); len(words) > 0; words = skipAssignments(unwrap(name, words[1:])) {
		name = baseName(words[0])
	}
	return name
}

func baseName(word string) string {
	word = strings.TrimRight(word, "/")
	return word[strings.LastIndexAny(word, `/\`)+1:]
}

func skipAssignments(words []string) []string {
	for len(words) > 0 && isAssignment(words[0]) {
		words = words[1:]
	}
	return words
}

func isAssignment(w string) bool {
	eq := strings.IndexByte(w, '=')
	if eq <= 0 || '0' <= w[0] && w[0] <= '9' {
		return false
	}
	name := strings.TrimSuffix(w[:eq], "+")
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && name != ""
}

// wrappers run another command. The value lists their options that take a word of their own.
var wrappers = map[string]string{
	"sudo": " -u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --other-user --chroot ", "doas": " -u -C ", "env": " -u -C -S --unset --chdir ",
	"timeout": " -s -k --signal --kill-after ", "time": " -f -o --format --output ", "nice": " -n --adjustment ", "ionice": " -c -n -p --class --classdata ",
	"nohup": "", "stdbuf": " -i -o -e --input --output --error ", "command": "", "builtin": "", "exec": " -a ", "noglob": "", "nocorrect": "", "setsid": "", "chroot": " --userspec --groups ",
	"xargs": " -I -i -n -L -P -s -d -E -a --arg-file --max-args --max-procs --replace --delimiter --max-lines --max-chars ", "watch": " -n --interval ", "flock": " -w -E --timeout ", "busybox": "",
	"unshare": "", "strace": " -e -o -p -s ", "ltrace": " -e -o ", "taskset": "", "chrt": "", "script": " -c ", "su": " -s -g ", "runuser": " -u -g ", "pkexec": " --user ", "systemd-run": " -u -p --unit ", "parallel": " -j ", "coproc": "",
}

// unwrap gives the words that a wrapper runs, or nil when the command is no wrapper.
func unwrap(name string, args []string) []string {
	if name == "find" || name == "fd" {
		if i := slices.IndexFunc(args, func(a string) bool { return isOneOf(a, " -exec -execdir -ok -okdir -x --exec ") }); i >= 0 {
			return args[i+1:]
		}
		return nil
	}
	withValue, ok := wrappers[name]
	if !ok {
		return nil
	}
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			args = args[1:]
		case len(a) > 1 && a[0] == '-' && isOneOf(a, withValue):
			args = args[min(2, len(args)):]
			continue
		case len(a) > 1 && a[0] == '-', isAssignment(a):
			args = args[1:]
			continue
		}
		break
	}
	// A duration, a root or a lock stands before the command of these.
	if len(args) > 0 && isOneOf(name, " timeout chroot flock taskset chrt ") {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	return args
}

// innerText gives the text that a shell is told to run.
func innerText(name string, args []string) (string, bool) {
	switch name {
	case "eval":
		return strings.Join(args, " "), len(args) > 0
	case "sh", "bash", "zsh", "dash", "ksh", "ash", "su", "script", "fish", "mksh", "rbash", "runuser":
	case "env":
		for i, a := range args {
			if s, ok := strings.CutPrefix(a, "-S"); ok {
				return strings.Join(append([]string{s}, args[i+1:]...), " "), true
			}
		}
		return "", false
	default:
		return "", false
	}
	for i, a := range args {
		// -c may be bundled, as in -lc; what follows is the text.
		if len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, 'c') > 0 && i+1 < len(args) {
			return args[i+1], true
		}
		if text, ok := strings.CutPrefix(a, "--command="); ok {
			return text, true
		}
		if a == "--command" && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// wordText decodes a word: quotes and escapes are gone, expansions stay as they are written.
func wordText(w *syntax.Word, text string) string {
	var b strings.Builder
	for _, part := range w.Parts {
		partText(&b, part, text)
	}
	return b.String()
}

func partText(b *strings.Builder, part syntax.WordPart, text string) {
	switch p := part.(type) {
	case *syntax.Lit:
		b.WriteString(unescape(p.Value, ""))
	case *syntax.SglQuoted:
		if p.Dollar {
			b.WriteString(ansiC(p.Value))
		} else {
			b.WriteString(p.Value)
		}
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			if lit, ok := inner.(*syntax.Lit); ok {
				b.WriteString(unescape(lit.Value, "\"\\$`\n"))
				continue
			}
			partText(b, inner, text)
		}
	default:
		b.WriteString(text[min(int(part.Pos().Offset()), len(text)):min(int(part.End().Offset()), len(text))])
	}
}

// unescape takes backslashes off: before any character, or only before those of a set. A continued line is joined.
func unescape(s, only string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (only == "" || strings.IndexByte(only, s[i+1]) >= 0) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ansiC decodes $'…' as far as letters can hide in it.
func ansiC(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'x', 'u', 'U':
			n, digits := 0, 0
			limit := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			for digits < limit && i+1 < len(s) && hexDigit(s[i+1]) >= 0 {
				i++
				n = n<<4 | hexDigit(s[i])
				digits++
			}
			b.WriteRune(rune(n))
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := int(c - '0')
			for d := 1; d < 3 && i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '7'; d++ {
				i++
				n = n<<3 | int(s[i]-'0')
			}
			b.WriteByte(byte(n))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
