package rules

import (
	"slices"
	"strings"

	"dshproxy/rules/shellword"
	"dshproxy/rules/work"

	"mvdan.cc/sh/v3/syntax"
)

// addStmt walks a statement: every call at any depth, and the pipelines they stand in.
func (v *shellViews) addStmt(stmt *syntax.Stmt, s *script) {
	inner := map[syntax.Node]bool{} // pipelines that are part of one that has been seen
	syntax.Walk(stmt, func(n syntax.Node) bool {
		if !v.spend(perCommand / 10) {
			return false
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			v.addSimple(n, s)
		case *syntax.BinaryCmd:
			if isPipe(n) {
				v.feed(n, s)
				if !inner[n] {
					v.addPipeline(v.stages(n, s, inner))
				}
			}
		}
		return !v.tooMuch
	})
}

// addSimple adds the call of a statement, in every reading, with the redirects that belong to it.
func (v *shellViews) addSimple(stmt *syntax.Stmt, s *script) {
	c := simpleCommand{doc: s.doc}
	bodies := v.redirects(stmt, s, &c)
	if piped, ok := v.stdin[stmt]; ok {
		c.stdin = append(c.stdin, piped)
	}
	c.stdin = append(c.stdin, bodies...)
	var lists [][]string
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		lists = v.readCall(cmd, s)
		v.addProcesses(cmd, lists, s)
		v.addAssigns(cmd.Assigns, s)
		if len(cmd.Args) == 0 && len(cmd.Assigns) > 0 && len(c.redirects) == 0 {
			return
		}
	case *syntax.DeclClause:
		v.addDecl(cmd, s)
	case *syntax.LetClause:
		v.addHidden(append([]string{"let"}, wordsIn(cmd, s.text)...), s)
	case *syntax.TestClause:
		v.addHidden(append([]string{"test"}, wordsIn(cmd, s.text)...), s)
	}
	shell := false
	for _, words := range lists {
		shell = shell || isOneOf(lastName(words, v.left), shells+stdinShells)
	}
	for _, body := range bodies {
		// A here-document may be a script for the command it feeds; the original reads every one as commands.
		if !shell {
			v.addLexical(script{text: body, depth: s.depth + 1, doc: true})
		}
	}
	if len(lists) == 0 && len(c.redirects) > 0 {
		v.add(c)
	}
	v.keepFile(stmt, c.writes, s)
	for _, words := range lists {
		if v.tooMuch {
			return
		}
		if len(words) == 0 {
			v.add(c)
			continue
		}
		if shellOperand(words, v.left) == "" && isOneOf(lastName(words, v.left), shells) && len(c.stdin) == 0 {
			v.unknown = true // it runs what it reads
		}
		v.addWords(words, c, s.depth)
		v.runFile(words, s.depth)
		if len(c.stdin) > 0 {
			v.addFed(words, c, s.depth)
		}
	}
}

// stdinShells run what they read too, when they are told to read there.
const stdinShells = " source . "

// redirects fills in those of a statement, and gives the texts that stand in the script for the command to read.
func (v *shellViews) redirects(stmt *syntax.Stmt, s *script, c *simpleCommand) (bodies []string) {
	for _, r := range stmt.Redirs {
		if r.Word != nil {
			for _, target := range v.readWord(r.Word, s) {
				c.redirects = append(c.redirects, target)
				switch r.Op {
				case syntax.RdrIn, syntax.DplIn, syntax.DplOut, syntax.Hdoc, syntax.DashHdoc:
				case syntax.WordHdoc:
					bodies = append(bodies, target)
				default:
					c.writes = append(c.writes, target)
				}
			}
		}
		if r.Hdoc != nil {
			bodies = append(bodies, v.readWord(r.Hdoc, s)...)
		}
	}
	return bodies
}

// addAssigns keeps assignments visible, for the targets in them and for the texts that some of them hold.
func (v *shellViews) addAssigns(assigns []*syntax.Assign, s *script) {
	for _, a := range assigns {
		v.words = append(v.words, shellText(a, s.text))
		if a.Value == nil {
			continue
		}
		value := shellword.Text(a.Value, s.text)
		v.words = append(v.words, value)
		if (strings.Contains(value, "$(") || strings.Contains(value, "`")) && (strings.Contains(s.text, "@P}") || strings.Contains(s.text, "((")) {
			v.addText(script{text: ": " + value, depth: s.depth + 1})
		}
		if a.Name != nil && isOneOf(a.Name.Value, " PS0 PS1 PS2 PS4 PROMPT_COMMAND BASH_ENV ENV ") {
			v.addText(script{text: value, depth: s.depth + 1})
			v.addProcess(a.Value, s)
			v.addHidden([]string{"let", value}, s)
		}
	}
}

// shellOperand gives the first operand of the shell that a command ends at, which is its script.
func shellOperand(words []string, left *work.Budget) string {
	name := lastName(words, left)
	for i := len(words) - 1; i >= 0; i-- {
		if baseName(words[i]) != name {
			continue
		}
		for _, a := range words[i+1:] {
			if a == "-s" {
				break
			}
			if a != "" && a[0] != '-' && a[0] != '+' {
				return a
			}
		}
		break
	}
	return ""
}

// shellText is a node as it is written.
func shellText(n syntax.Node, text string) string {
	return text[min(int(n.Pos().Offset()), len(text)):min(int(n.End().Offset()), len(text))]
}

// wordsIn are the decoded words of a node.
func wordsIn(n syntax.Node, text string) []string {
	var out []string
	syntax.Walk(n, func(n syntax.Node) bool {
		w, ok := n.(*syntax.Word)
		if ok {
			out = append(out, shellword.Text(w, text))
		}
		return !ok
	})
	return out
}

// evaluators run substitutions that are quoted for the shell: in subscripts and arithmetic.
const evaluators = " let test [ [[ printf read unset declare typeset local export readonly mapfile readarray wait "

// addHidden looks at quoted substitutions that a command runs all the same.
func (v *shellViews) addHidden(words []string, s *script) {
	if !isOneOf(words[0], evaluators) {
		return
	}
	for _, w := range words[1:] {
		if (strings.Contains(w, "$(") || strings.Contains(w, "`")) && strings.Contains(w, "[") || words[0] == "let" && strings.ContainsAny(w, "$`") {
			v.addText(script{text: ": " + w, depth: s.depth + 1})
		}
	}
}

// addDecl keeps export, local and the like visible as commands.
func (v *shellViews) addDecl(d *syntax.DeclClause, s *script) {
	c := simpleCommand{word: d.Variant.Value}
	for _, a := range d.Args {
		c.args = append(c.args, shellText(a, s.text))
		if a.Naked && a.Value != nil {
			v.addHidden([]string{c.word, shellword.Text(a.Value, s.text)}, s)
		}
	}
	v.addAssigns(d.Args, s)
	v.add(c)
}

func (v *shellViews) add(c simpleCommand) {
	if len(v.commands) >= maxViews {
		v.tooMuch = true
		return
	}
	v.commands = append(v.commands, c)
	v.addSignature(c.word)
}

// addWords adds a command and everything that it wraps: sudo rm gives rm too, sh -c 'rm' the text inside. Of very many
// wrappers it keeps the first ones and what they end at. like has the redirects.
func (v *shellViews) addWords(words []string, like simpleCommand, depth int) {
	words = skipAssignments(words)
	if len(words) > 0 && v.aliases[words[0]] != "" {
		name, text := words[0], v.aliases[words[0]]
		delete(v.aliases, name) // it does not stand for itself inside
		v.addWords(append(strings.Fields(text), words[1:]...), like, depth)
		v.aliases[name] = text
	}
	if len(words) == 0 && len(like.redirects) > 0 {
		v.add(like) // nothing runs, but files are opened
		return
	}
	v.words = append(v.words, words...)
	for level := 0; len(words) > 0; level++ {
		if !v.spend(perWord) {
			return
		}
		name := baseName(words[0])
		if !spendUnwrap(name, words, v.left) {
			v.tooMuch = true
			return
		}
		wrapped, others := unwrap(name, words[1:])
		wrapped = skipAssignments(wrapped)
		if level < maxWrappers || len(wrapped) == 0 {
			if !v.spend(perCommand + perWord*len(words)) {
				return
			}
			c := like
			c.word, c.args = name, words[1:]
			v.add(c)
			for _, other := range others {
				c.word, c.args = baseName(other[0]), other[1:]
				v.add(c)
				v.addInner(c.word, c.args, depth, like.doc)
			}
			v.addInner(name, words[1:], depth, like.doc)
			v.addHidden(append([]string{name}, words[1:]...), &script{depth: depth})
		}
		words = wrapped
	}
}

// addInner looks at the text that a command is told to run.
func (v *shellViews) addInner(name string, args []string, depth int, doc bool) {
	for _, inner := range innerTexts(name, args) {
		v.addText(script{text: inner.text, args: inner.args, depth: depth + 1, doc: doc})
		if rest, ok := strings.CutPrefix(inner.text, "$"); ok && v.unparsed {
			v.addText(script{text: rest, args: inner.args, depth: depth + 1, doc: doc}) // split by words, $"…" keeps its dollar
		}
	}
}

func isPipe(n *syntax.BinaryCmd) bool { return n.Op == syntax.Pipe || n.Op == syntax.PipeAll }

// stages are the command names of a pipeline, in order, behind their wrappers; of a stage that is no simple command those
// of all commands in it. It notes the pipelines that are part of this one.
func (v *shellViews) stages(n *syntax.BinaryCmd, s *script, inner map[syntax.Node]bool) [][]string {
	var stmts []*syntax.Stmt
	for {
		stmts = append(stmts, n.Y)
		left, ok := n.X.Cmd.(*syntax.BinaryCmd)
		if !ok || !isPipe(left) {
			stmts = append(stmts, n.X)
			break
		}
		inner[left] = true
		n = left
	}
	slices.Reverse(stmts)
	var out [][]string
	for _, stmt := range stmts {
		if right, ok := stmt.Cmd.(*syntax.BinaryCmd); ok && isPipe(right) {
			inner[right] = true
			out = append(out, v.stages(right, s, inner)...)
			continue
		}
		out = append(out, v.stageNames(stmt, s))
	}
	return out
}

func (v *shellViews) stageNames(stmt *syntax.Stmt, s *script) []string {
	const most = 8
	var names []string
	syntax.Walk(stmt, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || len(names) >= most {
			return len(names) < most
		}
		for _, words := range v.readCall(call, s) {
			for _, name := range lastNames(words, v.left) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return stmt.Cmd != n // the calls inside a call's words are no stage
	})
	if len(names) == 0 {
		names = []string{""}
	}
	return names
}
