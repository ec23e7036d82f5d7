package rules

import (
	"slices"
	"strings"

	"dshproxy/rules/shellword"

	"mvdan.cc/sh/v3/syntax"
)

// doubt says how little of a word is known.
type doubt uint8

const (
	doubtQuoted doubt = iota + 1 // it holds a quoted expansion: it is one word
	doubtOpen                    // it may be any number of words
)

const (
	maxValues    = 16 // of one variable
	maxArgLists  = 8  // lists of positional parameters
	maxBraceText = 10_000
)

// collect notes what a statement assigns and sets, before the views of the text are made.
func (v *shellViews) collect(stmt *syntax.Stmt, s *script) {
	var calls [][]string
	v.collectSure(stmt, s)
	syntax.Walk(stmt, func(n syntax.Node) bool {
		if !v.spend(perCommand / 20) {
			return false
		}
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil && (n.Value == nil || !isLiteral(n.Value) || shellword.Text(n.Value, s.text) == "") {
				v.unclear[n.Name.Value] = true
			}
			if n.Name != nil && n.Value != nil && isLiteral(n.Value) {
				v.assign(n.Name.Value, shellword.Text(n.Value, s.text))
			}
		case *syntax.WordIter:
			for _, item := range n.Items {
				if isLiteral(item) {
					for _, w := range v.braces(item) {
						v.assign(n.Name.Value, shellword.Text(w, s.text))
					}
				}
			}
		case *syntax.FuncDecl:
			if n.Name != nil {
				v.functions[n.Name.Value] = true
			}
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				switch name := n.Args[0].Lit(); {
				case name == "unset", name == "env" && len(n.Args) > 1 && strings.HasPrefix(n.Args[1].Lit(), "-"):
					v.unsets = true
				case name == "alias":
					for _, w := range v.plainWords(n, s)[1:] {
						if alias, text, ok := strings.Cut(w, "="); ok && len(v.aliases) < maxValues {
							v.aliases[alias] = text
						}
					}
				case name == "set" || v.functions[name]:
					calls = append(calls, v.plainWords(n, s))
				}
			}
		}
		return !v.tooMuch
	})
	for _, words := range calls {
		if words[0] == "set" {
			words = words[1:]
			for len(words) > 0 && len(words[0]) > 1 && (words[0][0] == '-' || words[0][0] == '+') {
				end := words[0] == "--"
				if words = words[1:]; end {
					break
				}
			}
			words = append([]string{"sh"}, words...)
		}
		if len(words) > 1 && len(v.sets) < maxArgLists {
			v.sets = append(v.sets, words)
		}
	}
}

// collectSure notes the variables that a statement certainly sets to a literal text.
func (v *shellViews) collectSure(stmt *syntax.Stmt, s *script) {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if s.depth > 0 || !ok || len(call.Args) > 0 || stmt.Background {
		return
	}
	for _, a := range call.Assigns {
		if a.Name != nil && a.Value != nil && isLiteral(a.Value) && shellword.Text(a.Value, s.text) != "" {
			v.sure[a.Name.Value] = true
		}
	}
}

// isSure reports a variable that cannot be empty, as far as the call shows.
func (v *shellViews) isSure(name string) bool {
	return !v.unsets && !v.unclear[name] && (v.sure[name] || isOneOf(name, alwaysSet) && len(v.values[name]) == 0)
}

func (v *shellViews) assign(name, value string) {
	if known := v.values[name]; len(known) < maxValues && !slices.Contains(known, value) {
		v.values[name] = append(known, value)
	}
}

// isLiteral reports a word without expansions.
func isLiteral(w *syntax.Word) bool {
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				if _, ok := inner.(*syntax.Lit); !ok {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// plainWords are the words of a call as they are written.
func (v *shellViews) plainWords(call *syntax.CallExpr, s *script) []string {
	var out []string
	for _, w := range call.Args {
		for _, one := range v.braces(w) {
			out = append(out, shellword.Text(one, s.text))
		}
	}
	return out
}

// readCall gives the readings of a call's words: as they are written; with what is known in place of the expansions; and
// with nothing in place of those that may be unset.
func (v *shellViews) readCall(call *syntax.CallExpr, s *script) [][]string {
	var words []*syntax.Word
	var uses usage
	for _, w := range call.Args {
		if isLiteral(w) && !hasBrace(w) {
			words = append(words, w)
			continue
		}
		words = append(words, v.braces(w)...)
	}
	plain := make([]string, 0, len(words))
	for i, w := range words {
		text := shellword.Text(w, s.text)
		plain = append(plain, text)
		if d := uses.add(w); d != 0 {
			v.unsure[text] = max(v.unsure[text], d)
			v.unknown = v.unknown || i == 0
		}
	}
	if len(plain) == 0 {
		return nil
	}
	out := [][]string{plain}
	if !uses.any {
		return out
	}
	add := func(r *reading) {
		if !v.spend(perWord * len(words)) {
			return
		}
		var read []string
		for _, w := range words {
			read = append(read, shellword.Fields(w, s.text, r.expand)...)
		}
		if len(read) > 0 && !slices.ContainsFunc(out, func(have []string) bool { return slices.Equal(have, read) }) {
			out = append(out, read)
		}
	}
	v.eachReading(&uses, s, add)
	return out
}

// readWord gives the readings of one word that is no argument.
func (v *shellViews) readWord(w *syntax.Word, s *script) []string {
	out := []string{shellword.Text(w, s.text)}
	var uses usage
	if uses.add(w) == 0 || !v.spend(perWord) {
		return out
	}
	v.unsure[out[0]] = doubtOpen
	v.eachReading(&uses, s, func(r *reading) {
		if !v.spend(perWord + int(w.End().Offset()) - int(w.Pos().Offset())) {
			return
		}
		if text := strings.Join(shellword.Fields(w, s.text, r.expand), " "); !slices.Contains(out, text) {
			out = append(out, text)
		}
	})
	return out
}

// eachReading visits the readings other than the written one.
func (v *shellViews) eachReading(uses *usage, s *script, visit func(*reading)) {
	n := 1
	for _, name := range uses.names {
		n = max(n, len(v.values[name]))
	}
	lists := [][]string{s.args}
	if uses.positional {
		lists = append(lists, v.sets...)
	}
	for _, args := range lists {
		for i := range n {
			visit(&reading{v: v, s: s, args: args, pick: i})
		}
	}
	visit(&reading{v: v, s: s, blank: true})
}

// usage is what expansions the words of a call have.
type usage struct {
	any        bool
	positional bool
	names      []string
}

// add looks at a word and gives how little of it is known.
func (u *usage) add(w *syntax.Word) doubt {
	var d doubt
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				if _, ok := inner.(*syntax.Lit); !ok {
					if u.expansion(inner) {
						d = doubtOpen
					}
					d = max(d, doubtQuoted)
				}
			}
		default:
			d = doubtOpen
			u.expansion(part)
		}
	}
	return d
}

// expansion notes one, and reports one that may be several words though it is quoted.
func (u *usage) expansion(part syntax.WordPart) (several bool) {
	u.any = true
	p, ok := part.(*syntax.ParamExp)
	if !ok || p.Param == nil {
		return !ok && !isSubstitution(part)
	}
	name := p.Param.Value
	if name == "@" || name == "*" || name != "" && strings.Trim(name, "0123456789") == "" {
		u.positional = true
		return name == "@"
	}
	u.names = append(u.names, name)
	return p.Index != nil
}

func isSubstitution(part syntax.WordPart) bool {
	switch part.(type) {
	case *syntax.CmdSubst, *syntax.ArithmExp:
		return true
	default:
		return false
	}
}

// reading says what expansions come to.
type reading struct {
	v     *shellViews
	s     *script
	args  []string // $0, $1 and so on
	pick  int      // which of the values of a variable
	blank bool     // what may be unset is nothing
}

// alwaysSet are variables that are there unless somebody takes them away.
const alwaysSet = " HOME PWD USER LOGNAME PATH SHELL UID EUID PPID HOSTNAME RANDOM SECONDS LINENO "

func (r *reading) expand(part syntax.WordPart, quoted bool) ([]string, bool) {
	split := func(value string) ([]string, bool) {
		if quoted {
			return []string{value}, true
		}
		return strings.Fields(value), true
	}
	switch p := part.(type) {
	case *syntax.CmdSubst:
		if len(p.Stmts) == 1 && !r.blank {
			if text, ok := r.v.output(p.Stmts[0], r.s); ok {
				return split(strings.TrimRight(text, "\n"))
			}
		}
		return nil, true
	case *syntax.ArithmExp:
		if r.blank {
			return nil, true
		}
		return nil, false
	case *syntax.ParamExp:
		if p.Param == nil || p.Length || p.Width {
			return nil, false
		}
		value, known := r.value(p)
		if known {
			return value(quoted, split)
		}
		if r.v.isSure(p.Param.Value) || p.Exp != nil && p.Exp.Op == syntax.ErrorUnsetOrNull {
			return nil, false
		}
		return nil, true
	default:
		return nil, false
	}
}

// fieldsOf gives the fields of a value.
type fieldsOf func(quoted bool, split func(string) ([]string, bool)) ([]string, bool)

// value gives what a parameter comes to, if that is known.
func (r *reading) value(p *syntax.ParamExp) (fieldsOf, bool) {
	name := p.Param.Value
	one := func(value string) (fieldsOf, bool) {
		return func(_ bool, split func(string) ([]string, bool)) ([]string, bool) { return split(value) }, true
	}
	word := func() (fieldsOf, bool) {
		if p.Exp.Word == nil {
			return nil, false
		}
		fields := shellword.Fields(p.Exp.Word, r.s.text, r.expand)
		return one(strings.Join(fields, " "))
	}
	if !r.blank {
		if values := r.v.values[name]; len(values) > 0 && p.Index == nil && (p.Exp == nil || !isAlternate(p.Exp.Op)) {
			return one(values[min(r.pick, len(values)-1)])
		}
		if value, ok := r.positional(name); ok {
			return value, true
		}
	}
	if p.Exp == nil {
		return nil, false
	}
	if isDefault(p.Exp.Op) || isAlternate(p.Exp.Op) && !r.blank {
		return word()
	}
	return nil, false
}

func isDefault(op syntax.ParExpOperator) bool {
	return op == syntax.DefaultUnset || op == syntax.DefaultUnsetOrNull || op == syntax.AssignUnset || op == syntax.AssignUnsetOrNull
}

func isAlternate(op syntax.ParExpOperator) bool {
	return op == syntax.AlternateUnset || op == syntax.AlternateUnsetOrNull
}

// positional gives $0, $1, $@ and $*.
func (r *reading) positional(name string) (fieldsOf, bool) {
	if len(r.args) == 0 {
		return nil, false
	}
	if name == "@" || name == "*" {
		rest := r.args[1:]
		return func(quoted bool, split func(string) ([]string, bool)) ([]string, bool) {
			if quoted && name == "@" {
				return rest, true
			}
			return split(strings.Join(rest, " "))
		}, true
	}
	n := 0
	for _, c := range []byte(name) {
		if c < '0' || c > '9' || n > len(r.args) {
			return nil, false
		}
		n = n*10 + int(c-'0')
	}
	if name == "" || n >= len(r.args) {
		return nil, false
	}
	return func(_ bool, split func(string) ([]string, bool)) ([]string, bool) { return split(r.args[n]) }, true
}
