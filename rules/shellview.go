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
	// unknown says that the text does not show all of what is run or connected to.
	unknown bool

	signatures map[string]bool           // those in pipelines
	parsed     map[string]bool           // texts inside texts that have been looked at
	trees      map[string][]*syntax.Stmt // of the texts of the call itself that parse, for other readers
	left       *work.Budget
	tooMuch    bool // the call cannot be looked at as a whole

	values    map[string][]string // what the texts assign to variables, as far as it is literal
	sure      map[string]bool     // variables that are set to a literal text for all of the call
	unclear   map[string]bool     // variables that are set to what is not known
	unsets    bool                // a text takes variables away
	functions map[string]bool
	aliases   map[string]string
	sets      [][]string              // positional parameters that the texts set
	unsure    map[string]doubt        // words with expansions, as they are written
	files     map[string]string       // literal text that the call writes to files
	stdin     map[*syntax.Stmt]string // literal text that a pipe brings
	outputs   map[*syntax.Stmt]output
	resumed   int  // what reading on behind errors has cost
	isScript  bool // the call is one of a shell
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
	f.views = *newViews(f.work)
	v := &f.views
	v.isScript = isShellTool(f.call.Tool)
	for _, c := range f.commandTexts() {
		switch {
		case v.tooMuch || !v.spend(perCommand):
		case c.words != nil:
			v.addWords(c.words, simpleCommand{}, 0)
		case f.call.Tool == "pwsh":
			v.addLexical(script{text: c.text})
		default:
			v.addText(script{text: c.text})
		}
	}
	for _, words := range f.splitCommands() {
		if v.tooMuch || !v.spend(perCommand) {
			break
		}
		v.addWords(words, simpleCommand{}, 0)
	}
	return v
}

// splitCommands are commands whose arguments stand under a key of their own.
func (f *facts) splitCommands() [][]string {
	if f.args.kind != argObject {
		return nil
	}
	args := f.get("args")
	if args == nil {
		args = f.get("arguments")
	}
	if args == nil || !args.allStrings() {
		return nil
	}
	var out [][]string
	for _, c := range f.commandTexts() {
		if c.words == nil && len(out) < maxWrappers {
			out = append(out, append([]string{strings.TrimSpace(c.text)}, args.strings()...))
		}
	}
	return out
}

func newViews(left *work.Budget) *shellViews {
	return &shellViews{
		left: left, signatures: map[string]bool{}, parsed: map[string]bool{}, sure: map[string]bool{}, unclear: map[string]bool{}, values: map[string][]string{},
		functions: map[string]bool{}, aliases: map[string]string{}, unsure: map[string]doubt{}, stdin: map[*syntax.Stmt]string{}, files: map[string]string{}, outputs: map[*syntax.Stmt]output{},
	}
}

// script is shell text to be looked at.
type script struct {
	text  string
	depth int      // texts that it is inside of
	doc   bool     // it is the body of a here-document
	args  []string // $0, $1 and so on, when the text is given any
}

// isShellTool tells from a tool's name that its command is shell text, whatever it holds.
func isShellTool(tool string) bool {
	tool = strings.ToLower(tool)
	return slices.ContainsFunc([]string{"bash", "shell", "terminal", "exec", "command"}, func(part string) bool { return strings.Contains(tool, part) }) || tool == "sh" || tool == "zsh"
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

// addText parses shell text statement by statement. What stands behind the first error is split by words, and read on
// from there as far as it can be.
func (v *shellViews) addText(s script) {
	s.text = strings.ReplaceAll(s.text, "\r", "")
	key := s.text
	if s.doc {
		key = "\x00" + key // what is only written counts for less
	}
	if len(s.args) > 0 {
		key += "\x00" + strings.Join(s.args, "\x00")
	}
	switch {
	case v.parsed[key]:
		return
	case len(s.text) > maxShellText || s.depth > maxInnerTexts || !v.spend(parseCost(s.text)) || nesting(s.text) > maxShellDepth:
		v.tooMuch = true
		return
	}
	v.parsed[key] = true
	if ended := shellword.EndComments(s.text); ended != s.text {
		other := s
		other.text = ended
		v.unknown = true // it reads in two ways
		v.addText(other)
	}
	stmts, end, whole := statements(s.text)
	v.addStmts(stmts, &s)
	switch {
	case !whole:
		v.unparsed = true
		rest := s
		rest.text = s.text[min(end, len(s.text)):]
		v.addLexical(rest)
		v.resume(&s, min(end, len(s.text)))
	case s.depth == 0:
		if v.trees == nil {
			v.trees = map[string][]*syntax.Stmt{}
		}
		v.trees[s.text] = stmts
	}
}

// addStmts adds the views of statements that have been parsed.
func (v *shellViews) addStmts(stmts []*syntax.Stmt, s *script) {
	for _, stmt := range stmts {
		v.collect(stmt, s)
	}
	for _, stmt := range stmts {
		v.addStmt(stmt, s)
	}
}

// statements gives the statements before the first error, and where they end; whole says that there was none.
func statements(text string) (stmts []*syntax.Stmt, end int, whole bool) {
	stmts, end, whole, _ = parse(text)
	return stmts, end, whole
}

// parse is statements, and gives the first error too.
func parse(text string) (stmts []*syntax.Stmt, end int, whole bool, first error) {
	defer func() {
		// A panic is a bug of the library met by a hostile text, which then counts as one that does not parse.
		if p := recover(); p != nil {
			whole = false
		}
	}()
	whole = true
	// The loop is not left early: the sequence goes on after an error, and panics when nobody listens.
	for stmt, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(text)) {
		if whole && err != nil {
			whole, first = false, err
		}
		if whole {
			stmts, end = append(stmts, stmt), int(stmt.End().Offset())
		}
	}
	return stmts, end, whole, first
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
func (v *shellViews) addLexical(s script) {
	var names [][]string
	for _, c := range splitLexically(s.text) {
		words := append([]string{c.word}, c.args...)
		if !v.spend(perCommand + perWord*len(words)) {
			return
		}
		v.addWords(words, simpleCommand{redirects: c.redirects, writes: c.redirects, doc: s.doc}, s.depth)
		names = append(names, lastNames(words, v.left))
		bare := slices.Clone(words)
		for len(bare) > 1 && isOneOf(bare[0], keywords) {
			bare = bare[1:]
		}
		bare[0] = strings.TrimLeft(bare[0], "({!`$\"")
		bare[len(bare)-1] = strings.TrimRight(bare[len(bare)-1], ")}`\"")
		if !slices.Equal(bare, words[len(words)-len(bare):]) || len(bare) != len(words) {
			v.addWords(bare, simpleCommand{doc: s.doc}, s.depth)
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
