package rules

import (
	"slices"
	"strings"

	"dshproxy/rules/shellword"
	"dshproxy/rules/work"

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

	signatures map[string]bool           // those in pipelines
	parsed     map[string]bool           // texts inside texts that have been looked at
	trees      map[string][]*syntax.Stmt // of the texts of the call itself that parse, for other readers
	left       *work.Budget
	tooMuch    bool // the call cannot be looked at as a whole
}

const (
	maxShellText  = 128 << 10 // of one text; Linux takes no longer argument
	maxShellDepth = 500       // of brackets, substitutions and compound commands: the parser recurses
	maxInnerTexts = 64        // texts inside texts, such as sh -c 'sh -c …'
	maxWrappers   = 16        // around one command that are views of their own
	maxViews      = 20_000    // simple commands, and signatures of pipelines
)

func (f *facts) shellViews() *shellViews {
	if f.viewsDone {
		return &f.views
	}
	f.viewsDone = true
	v := &f.views
	v.signatures, v.parsed, v.left = map[string]bool{}, map[string]bool{}, f.work
	for _, c := range f.commandTexts() {
		switch {
		case v.tooMuch || !v.spend(perCommand):
		case c.words != nil:
			v.addWords(c.words, simpleCommand{}, 0)
		case f.call.Tool == "pwsh":
			v.addLexical(c.text, 0, false)
		default:
			v.addText(c.text, 0, false)
		}
	}
	return v
}

// What the steps of making views cost, in units of work. They are measured on the dearest texts that were found.
const (
	perCommand   = 500 // a simple command: its parts are collected
	perWord      = 100 // decoded, kept, and looked at by several readers
	perSignature = 150 // a part of a pipeline: it is joined and looked up
)

// spend takes work off the budget of the call. Without it what is left is not looked at, and the call is refused.
func (v *shellViews) spend(n int) bool {
	if !v.left.Spend(n) {
		v.tooMuch = true
	}
	return !v.tooMuch
}

// parseCost is what a parser takes for a text: some for each byte, and far more for each thing that begins a node.
func parseCost(text string) int {
	const perByte, perNode, perQuote = 8, 250, 80
	cost := perByte * len(text)
	blank := true
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ';', '|', '&', '(', '\n', '`', '$', '{', '<', '>':
			cost += perNode
			blank = true
		case '"', '\'', '=', ',':
			cost += perQuote
			blank = false
		case ' ', '\t':
			blank = true
		default:
			if blank {
				cost += perWord
			}
			blank = false
		}
	}
	return cost
}

// addText parses shell text statement by statement. What stands behind the first error is split by words. doc says that
// the text is the body of a here-document.
func (v *shellViews) addText(text string, depth int, doc bool) {
	text = strings.ReplaceAll(text, "\r", "")
	switch {
	case v.parsed[text]:
		return
	case len(text) > maxShellText || depth > maxInnerTexts || !v.spend(parseCost(text)) || nesting(text) > maxShellDepth:
		v.tooMuch = true
		return
	}
	v.parsed[text] = true
	stmts, end, whole := statements(text)
	for _, stmt := range stmts {
		v.addStmt(stmt, text, depth, doc)
	}
	switch {
	case !whole:
		v.unparsed = true
		v.addLexical(text[min(end, len(text)):], depth, doc)
	case depth == 0:
		if v.trees == nil {
			v.trees = map[string][]*syntax.Stmt{}
		}
		v.trees[text] = stmts
	}
}

// statements gives the statements before the first error, and where they end; whole says that there was none.
func statements(text string) (stmts []*syntax.Stmt, end int, whole bool) {
	defer func() {
		// A panic is a bug of the library met by a hostile text, which then counts as one that does not parse.
		if p := recover(); p != nil {
			whole = false
		}
	}()
	whole = true
	// The loop is not left early: the sequence goes on after an error, and panics when nobody listens.
	for stmt, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(text)) {
		whole = whole && err == nil
		if whole {
			stmts, end = append(stmts, stmt), int(stmt.End().Offset())
		}
	}
	return stmts, end, whole
}

// nesting bounds how deep brackets and substitutions can be nested, before a recursive parser sees them.
func nesting(text string) int {
	depth, deepest, word := 0, 0, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if isLetter(c) {
			continue
		}
		depth = max(depth+compound(text[word:i]), 0)
		word = i + 1
		switch c {
		case '(', '{', '[':
			depth++
		case ')', '}', ']':
			depth = max(depth-1, 0)
		}
		deepest = max(deepest, depth)
	}
	return max(deepest, strings.Count(text, "`")/2)
}

// compound tells by how much a word may nest what follows it: it begins a compound command, or ends one.
func compound(word string) int {
	if len(word) < 2 || len(word) > 6 {
		return 0
	}
	switch word {
	case "if", "while", "until", "for", "case", "select", "time", "coproc":
		return 1
	case "fi", "done", "esac":
		return -1
	default:
		return 0
	}
}

// keywords may stand before a command.
const keywords = " then do else elif if while until ! { ( time "

// addLexical takes the original's split, with wrappers taken off, and what a shell reads before a command.
func (v *shellViews) addLexical(text string, depth int, doc bool) {
	var names [][]string
	for _, c := range splitLexically(text) {
		words := append([]string{c.word}, c.args...)
		if !v.spend(perCommand + perWord*len(words)) {
			return
		}
		v.addWords(words, simpleCommand{redirects: c.redirects, writes: c.redirects, doc: doc}, depth)
		names = append(names, lastNames(words))
		bare := slices.Clone(words)
		for len(bare) > 1 && isOneOf(bare[0], keywords) {
			bare = bare[1:]
		}
		bare[0] = strings.TrimLeft(bare[0], "({!`$\"")
		bare[len(bare)-1] = strings.TrimRight(bare[len(bare)-1], ")}`\"")
		if !slices.Equal(bare, words[len(words)-len(bare):]) || len(bare) != len(words) {
			v.addWords(bare, simpleCommand{doc: doc}, depth)
		}
	}
	v.addPipeline(names)
}

// addPipeline adds every contiguous part of a pipeline as a signature. A stage that is no simple command has several
// names.
func (v *shellViews) addPipeline(stages [][]string) {
	const longest = 8 // parts of a longer pipeline are quadratic; its neighbours and the whole still count
	for i := range stages {
		v.addSignatures(stages[i:min(len(stages), i+longest)])
	}
	if len(stages) > longest {
		var whole []string
		for _, names := range stages {
			whole = append(whole, names[0])
		}
		v.addSignature(strings.Join(whole, "|"))
	}
}

// addSignatures adds those of every part that begins with the first stage.
func (v *shellViews) addSignatures(stages [][]string) {
	const most = 64
	heads := []string{""}
	for i, names := range stages {
		var next []string
		for _, head := range heads {
			for _, name := range names {
				if i > 0 {
					name = head + "|" + name
				}
				if len(next) < most {
					next = append(next, name)
				}
				v.addSignature(name)
			}
		}
		heads = next
	}
}

func (v *shellViews) addSignature(s string) {
	switch {
	case !v.spend(perSignature+2*len(s)) || v.signatures[s]:
	case len(v.pipelines) >= maxViews:
		v.tooMuch = true
	default:
		v.signatures[s] = true
		v.pipelines = append(v.pipelines, s)
	}
}

// addStmt walks a statement: every call at any depth, and the pipelines they stand in.
func (v *shellViews) addStmt(stmt *syntax.Stmt, text string, depth int, doc bool) {
	inner := map[syntax.Node]bool{} // pipelines that are part of one that has been seen
	syntax.Walk(stmt, func(n syntax.Node) bool {
		if !v.spend(perCommand / 10) {
			return false
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			v.addSimple(n, text, depth, doc)
		case *syntax.BinaryCmd:
			if isPipe(n) && !inner[n] {
				v.addPipeline(stages(n, text, inner))
			}
		}
		return !v.tooMuch
	})
}

// addSimple adds the call of a statement, with the redirects that belong to it.
func (v *shellViews) addSimple(stmt *syntax.Stmt, text string, depth int, doc bool) {
	c := simpleCommand{doc: doc}
	var bodies []string
	for _, r := range stmt.Redirs {
		if r.Word != nil {
			target := shellword.Text(r.Word, text)
			c.redirects = append(c.redirects, target)
			switch r.Op {
			case syntax.RdrIn, syntax.DplIn, syntax.DplOut, syntax.Hdoc, syntax.DashHdoc:
			case syntax.WordHdoc:
				bodies = append(bodies, target)
			default:
				c.writes = append(c.writes, target)
			}
		}
		if r.Hdoc != nil {
			bodies = append(bodies, shellword.Text(r.Hdoc, text))
		}
	}
	var words []string
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		for _, w := range cmd.Args {
			words = append(words, expandedText(w, text)...)
		}
		for _, a := range cmd.Assigns {
			v.words = append(v.words, text[a.Pos().Offset():a.End().Offset()])
			if a.Value != nil {
				v.words = append(v.words, shellword.Text(a.Value, text))
			}
		}
	case *syntax.DeclClause:
		v.addDecl(cmd, text)
	}
	shell := isOneOf(lastName(words), shells)
	for _, body := range bodies {
		// A here-document may be a script for the command it feeds; the original reads every one as commands.
		if shell {
			v.addText(body, depth+1, false)
		} else {
			v.addLexical(body, depth+1, true)
		}
	}
	if len(words) > 0 {
		v.addWords(words, c, depth)
	} else if len(c.redirects) > 0 {
		v.add(c)
	}
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
	v.words = append(v.words, words...)
	for level := 0; len(words) > 0; level++ {
		if !v.spend(perWord) {
			return
		}
		name := baseName(words[0])
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
			}
			if inner, ok := innerText(name, words[1:]); ok {
				v.addText(inner, depth+1, like.doc)
			}
		}
		words = wrapped
	}
}

func isPipe(n *syntax.BinaryCmd) bool { return n.Op == syntax.Pipe || n.Op == syntax.PipeAll }

// stages are the command names of a pipeline, in order, behind their wrappers; of a stage that is no simple command those
// of all commands in it. It notes the pipelines that are part of this one.
func stages(n *syntax.BinaryCmd, text string, inner map[syntax.Node]bool) [][]string {
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
	for _, s := range stmts {
		if right, ok := s.Cmd.(*syntax.BinaryCmd); ok && isPipe(right) {
			inner[right] = true
			out = append(out, stages(right, text, inner)...)
			continue
		}
		out = append(out, stageNames(s, text))
	}
	return out
}

func stageNames(s *syntax.Stmt, text string) []string {
	const most = 8
	var names []string
	syntax.Walk(s, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || len(names) >= most {
			return len(names) < most
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, expandedText(w, text)...)
		}
		names = append(names, lastNames(words)...)
		return s.Cmd != n // the calls inside a call's words are no stage
	})
	if len(names) == 0 {
		names = []string{""}
	}
	return names
}

// expandedText decodes a word and expands the lists in its braces, where they are few.
func expandedText(w *syntax.Word, text string) []string {
	one := shellword.Text(w, text)
	if strings.IndexByte(one, '{') < 0 || strings.IndexByte(one, ',') < 0 || strings.Count(one, ",") > 8 {
		return []string{one}
	}
	split := *w
	split.Parts = slices.Clone(w.Parts)
	if !syntax.SplitBraces(&split) {
		return []string{one}
	}
	return expandBraces(split.Parts, text)
}

// expandBraces gives every reading of the parts of a word.
func expandBraces(parts []syntax.WordPart, text string) []string {
	const most = 64
	out := []string{""}
	for _, part := range parts {
		endings := []string{}
		if brace, ok := part.(*syntax.BraceExp); ok && !brace.Sequence {
			for _, e := range brace.Elems {
				endings = append(endings, expandBraces(e.Parts, text)...)
			}
		} else {
			endings = append(endings, shellword.Text(&syntax.Word{Parts: []syntax.WordPart{part}}, text))
		}
		var next []string
		for _, head := range out {
			for _, ending := range endings {
				if len(next) < most {
					next = append(next, head+ending)
				}
			}
		}
		out = next
	}
	return out
}
