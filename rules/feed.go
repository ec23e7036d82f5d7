package rules

import (
	"path"
	"strings"

	"dshproxy/rules/shellword"

	"mvdan.cc/sh/v3/syntax"
)

// feed notes the literal text that the last command before a pipe writes, for what stands behind it.
func (v *shellViews) feed(n *syntax.BinaryCmd, s *script) {
	from := n.X
	for {
		left, ok := from.Cmd.(*syntax.BinaryCmd)
		if !ok || !isPipe(left) {
			break
		}
		from = left.Y
	}
	text, ok := v.output(from, s)
	if !ok {
		return
	}
	readers := []*syntax.Stmt{n.Y}
	for i := 0; i < len(readers) && i < 8; i++ {
		v.stdin[readers[i]] = text
		switch cmd := readers[i].Cmd.(type) {
		case *syntax.Subshell:
			readers = append(readers, cmd.Stmts...)
		case *syntax.Block:
			readers = append(readers, cmd.Stmts...)
		case *syntax.TimeClause:
			if cmd.Stmt != nil {
				readers = append(readers, cmd.Stmt)
			}
		}
	}
}

// output gives the text that a statement writes, when it is echo, printf or cat with a text that stands in the script.
func (v *shellViews) output(stmt *syntax.Stmt, s *script) (string, bool) {
	known, ok := v.outputs[stmt]
	if !ok {
		known.text, known.ok = v.readOutput(stmt, s)
		v.outputs[stmt] = known
	}
	return known.text, known.ok
}

// output is the text that a statement writes, if that is known.
type output struct {
	text string
	ok   bool
}

func (v *shellViews) readOutput(stmt *syntax.Stmt, s *script) (string, bool) {
	if block, ok := stmt.Cmd.(*syntax.Block); ok && len(block.Stmts) == 1 {
		stmt = block.Stmts[0]
	} else if sub, ok := stmt.Cmd.(*syntax.Subshell); ok && len(sub.Stmts) == 1 {
		stmt = sub.Stmts[0]
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	words := v.plainWords(call, s)
	if len(words) == 0 || !v.spend(perWord*len(words)) {
		return "", false
	}
	if uses := (usage{}); hasExpansion(call, &uses) {
		v.eachReading(&uses, s, func(r *reading) {
			if r.pick == 0 && !r.blank {
				words = nil
				for _, w := range call.Args {
					words = append(words, shellword.Fields(w, s.text, r.expand)...)
				}
			}
		})
	}
	switch name := baseName(lastOr(words)); name {
	case "echo":
		words = words[1:]
		for len(words) > 0 && isOneOf(words[0], " -n -e -E -ne -en -nE -En ") {
			words = words[1:]
		}
		return decodeEscapes(strings.Join(words, " ")), true
	case "printf":
		words = words[1:]
		if len(words) > 0 && words[0] == "--" {
			words = words[1:]
		}
		if len(words) == 0 || strings.HasPrefix(words[0], "-v") {
			return "", false
		}
		return v.printf(words[0], words[1:]), true
	case "cat":
		for _, r := range stmt.Redirs {
			switch {
			case r.Hdoc != nil:
				return shellword.Text(r.Hdoc, s.text), true
			case r.Op == syntax.WordHdoc:
				return shellword.Text(r.Word, s.text), true
			}
		}
	}
	return "", false
}

func lastOr(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func hasExpansion(call *syntax.CallExpr, uses *usage) bool {
	for _, w := range call.Args {
		uses.add(w)
	}
	return uses.any
}

func decodeEscapes(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return shellword.ANSI(s)
}

// printf puts the arguments into a format, as far as text can hide there.
func (v *shellViews) printf(format string, args []string) string {
	var b strings.Builder
	format = decodeEscapes(format)
	const most = 1000 // times that the format is used again
	for range most {
		if !v.spend(5 * len(format)) {
			break
		}
		took := false
		for i := 0; i < len(format); i++ {
			if format[i] != '%' || i+1 == len(format) {
				b.WriteByte(format[i])
				continue
			}
			i++
			for i < len(format)-1 && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
				i++
			}
			switch {
			case format[i] == '%':
				b.WriteByte('%')
			case len(args) > 0:
				took = true
				arg := args[0]
				if format[i] == 'b' {
					arg = decodeEscapes(arg)
				}
				b.WriteString(arg)
				args = args[1:]
			}
		}
		if !took || len(args) == 0 || b.Len() > maxShellText {
			break
		}
	}
	return b.String()
}

// addFed looks at what a command does with a text that it is given to read.
func (v *shellViews) addFed(words []string, like simpleCommand, depth int) {
	name := lastName(words, v.left)
	for _, text := range like.stdin {
		if !v.spend(perCommand + 10*len(text)) {
			return
		}
		if isOneOf(name, shells+stdinShells) {
			v.addText(script{text: text, depth: depth + 1})
		}
		for i, w := range words {
			if baseName(w) == "xargs" {
				v.addXargs(words[i+1:], text, simpleCommand{}, depth)
				break
			}
		}
	}
}

// keepFile notes a literal text that is written to a file, which may be run later.
func (v *shellViews) keepFile(stmt *syntax.Stmt, writes []string, s *script) {
	if len(writes) == 0 || len(v.files) >= maxWrappers {
		return
	}
	text, ok := v.output(stmt, s)
	if !ok {
		return
	}
	for _, name := range writes {
		v.files[path.Clean(name)] += text + "\n"
	}
}

// runFile looks at the text of a file that the call has written and now runs.
func (v *shellViews) runFile(words []string, depth int) {
	if len(v.files) == 0 {
		return
	}
	name := shellOperand(words, v.left)
	if last := lastName(words, v.left); !isOneOf(last, shells+stdinShells) {
		for _, w := range words {
			if baseName(w) == last {
				name = w
			}
		}
	}
	if text := v.files[path.Clean(name)]; text != "" {
		v.addText(script{text: text, depth: depth + 1})
	}
}

// addProcesses looks at what <(echo …) gives a shell to run.
func (v *shellViews) addProcesses(call *syntax.CallExpr, lists [][]string, s *script) {
	if len(lists) == 0 || !isOneOf(lastName(lists[0], v.left), shells+stdinShells) {
		return
	}
	for _, w := range call.Args {
		v.addProcess(w, s)
	}
}

func (v *shellViews) addProcess(w *syntax.Word, s *script) {
	for _, part := range w.Parts {
		if p, ok := part.(*syntax.ProcSubst); ok && len(p.Stmts) == 1 {
			if text, ok := v.output(p.Stmts[0], s); ok {
				v.addText(script{text: text, depth: s.depth + 1})
			}
		}
	}
}

// addXargs adds the command that xargs makes of a text.
func (v *shellViews) addXargs(args []string, text string, like simpleCommand, depth int) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == '\'' || r == '"' || r == ',' || r == ':' })
	if whole := strings.Fields(text); len(whole) > 0 && len(whole) != len(fields) {
		fields = append(fields, whole...)
	}
	if !v.spend(perWord*(len(fields)+len(args)) + perCommand) {
		return
	}
	command, _ := unwrap("xargs", args)
	if mark := replaceMark(args); mark != "" {
		replaced := make([]string, 0, len(command))
		for _, w := range command {
			if strings.Contains(w, mark) && !v.spend(len(text)+len(w)) {
				return
			}
			replaced = append(replaced, strings.Replace(w, mark, strings.TrimSpace(text), 4))
		}
		v.addWords(replaced, like, depth)
	}
	v.addWords(append(append([]string{}, command...), fields...), like, depth)
}

// replaceMark gives what xargs replaces in its command.
func replaceMark(args []string) string {
	for i, a := range args {
		switch {
		case a == "-I" && i+1 < len(args):
			return args[i+1]
		case strings.HasPrefix(a, "-I"):
			return a[2:]
		case strings.HasPrefix(a, "--replace="):
			return a[len("--replace="):]
		case a == "-i" || a == "--replace":
			return "{}"
		case strings.HasPrefix(a, "-i"):
			return a[2:]
		}
	}
	return ""
}
