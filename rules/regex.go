package rules

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"dshproxy/rules/tree"
)

// maxRegex is the longest pattern that is compiled, in bytes; maxRepeat the largest repeat count that is expanded; maxAtoms
// the number of atoms that a pattern may come to when its repeats are written out. Time and memory of a match grow with
// the last, and repeats of repeats would grow the translation without end.
const (
	maxRegex  = 4096
	maxRepeat = 5000
	maxAtoms  = 10_000
)

var errRegexTooLarge = errors.New("a regular expression that is too large")

// compileRegex translates a JavaScript regular expression (flag u) to RE2, which is linear. What JavaScript refuses is
// refused, so that files load alike; what RE2 cannot express is refused with a message; and the structural scan of the
// format is kept for the same reason, although RE2 needs none.
func compileRegex(pattern string) (*regex, error) {
	if len(pattern) > maxRegex {
		return nil, fmt.Errorf("a regular expression of over %d bytes", maxRegex)
	}
	t := translator{in: pattern}
	if err := t.disjunction(0); err != nil {
		return nil, err
	}
	if t.at < len(t.in) {
		return nil, t.invalid("unmatched )")
	}
	if err := scanStructure(pattern); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(t.out.String())
	if err != nil {
		return nil, errRegexTooLarge
	}
	parsed, err := syntax.Parse(t.out.String(), syntax.Perl)
	if err != nil {
		return nil, errRegexTooLarge
	}
	return &regex{re, t.atoms + 1, literalIn(parsed)}, nil
}

// The classes that JavaScript and RE2 read differently, as ranges of RE2.
const (
	jsSpace    = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	jsNotSpace = `\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
	jsDot = `[^\n\r\x{2028}\x{2029}]`
)

type translator struct {
	in    string
	at    int
	out   strings.Builder
	names map[string]bool // of groups
	atoms int             // so far, repeats written out
}

// Messages do not quote the pattern: a rule file's values may be nobody else's business, its positions tell enough.

func (t *translator) invalid(why string) error {
	return fmt.Errorf("not a valid regular expression: %s", why)
}

func (t *translator) unsupported(what string) error {
	return fmt.Errorf("needs a %s, which this engine does not have; use ! patterns", what)
}

func (t *translator) more() bool { return t.at < len(t.in) }

func (t *translator) next() rune {
	r, size := utf8.DecodeRuneInString(t.in[t.at:])
	t.at += size
	return r
}

func (t *translator) has(prefix string) bool { return strings.HasPrefix(t.in[t.at:], prefix) }

func (t *translator) take(prefix string) bool {
	if t.has(prefix) {
		t.at += len(prefix)
		return true
	}
	return false
}

// disjunction reads alternatives up to the end or a closing parenthesis.
func (t *translator) disjunction(depth int) error {
	if depth > tree.MaxDepth {
		return fmt.Errorf("a regular expression nested deeper than %d", tree.MaxDepth)
	}
	for t.more() && !t.has(")") {
		if t.take("|") {
			t.out.WriteByte('|')
			continue
		}
		if err := t.term(depth); err != nil {
			return err
		}
	}
	return nil
}

func (t *translator) term(depth int) error {
	start, atoms := t.out.Len(), t.atoms
	t.atoms++
	switch {
	case t.take("^"):
		t.out.WriteByte('^')
		return t.noQuantifier()
	case t.take("$"):
		t.out.WriteByte('$')
		return t.noQuantifier()
	case t.take(`\b`):
		t.out.WriteString(`\b`)
		return t.noQuantifier()
	case t.take(`\B`):
		t.out.WriteString(`\B`)
		return t.noQuantifier()
	case t.take("."):
		t.out.WriteString(jsDot)
	case t.take("("):
		if err := t.group(depth); err != nil {
			return err
		}
	case t.take("["):
		if err := t.class(); err != nil {
			return err
		}
	case t.take(`\`):
		if err := t.escape(); err != nil {
			return err
		}
	default:
		r := t.next()
		if strings.ContainsRune("*+?", r) {
			return t.invalid("nothing to repeat")
		}
		if strings.ContainsRune("{}]", r) {
			return t.invalid("a lone " + string(r))
		}
		t.out.WriteString(regexp.QuoteMeta(string(r)))
	}
	return t.quantifier(start, t.atoms-atoms)
}

func (t *translator) noQuantifier() error {
	if t.has("*") || t.has("+") || t.has("?") || t.has("{") {
		return t.invalid("nothing to repeat")
	}
	return nil
}

func (t *translator) group(depth int) error {
	switch {
	case t.has("?=") || t.has("?!") || t.has("?<=") || t.has("?<!"):
		return t.unsupported("look-around")
	case t.take("?:"):
		t.out.WriteString("(?:")
	case t.take("?<"):
		name, err := t.groupName()
		if err != nil {
			return err
		}
		if t.names[name] {
			return t.invalid("two groups of one name")
		}
		if t.names == nil {
			t.names = map[string]bool{}
		}
		t.names[name] = true
		t.out.WriteString("(") // the name is never asked for, and RE2 allows fewer of them
	case t.has("?"):
		return t.invalid("a bad group")
	default:
		t.out.WriteString("(")
	}
	if err := t.disjunction(depth + 1); err != nil {
		return err
	}
	if !t.take(")") {
		return t.invalid("an unclosed group")
	}
	t.out.WriteString(")")
	return nil
}

// groupName reads a name up to its bracket. Escapes in it stand for their characters.
func (t *translator) groupName() (string, error) {
	var name strings.Builder
	for !t.take(">") {
		var r rune
		var err error
		switch {
		case !t.more():
			return "", t.invalid("a bad group name")
		case t.take(`\u`):
			if r, err = t.unicode(); err != nil {
				return "", err
			}
		default:
			r = t.next()
		}
		if !isIdentifier(r, name.Len() == 0) {
			return "", t.invalid("a bad group name")
		}
		name.WriteRune(r)
	}
	if name.Len() == 0 {
		return "", t.invalid("a bad group name")
	}
	return name.String(), nil
}

// isIdentifier tells the characters of JavaScript's names (ECMA-262 12.7, UAX #31).
func isIdentifier(r rune, first bool) bool {
	switch {
	case r == '_' || r == '$':
		return true
	case unicode.Is(unicode.Pattern_Syntax, r):
		return false
	case unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start):
		return true
	}
	return !first && (unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue) || r == '\u200c' || r == '\u200d')
}

var braces = regexp.MustCompile(`^\{(\d+)(?:(,)(\d*))?\}`)

// quantifier reads what follows the term that starts at start in the output and comes to so many atoms.
func (t *translator) quantifier(start, atoms int) error {
	switch {
	case t.take("*"):
		t.out.WriteByte('*')
	case t.take("+"):
		t.out.WriteByte('+')
	case t.take("?"):
		t.out.WriteByte('?')
	case t.has("{"):
		m := braces.FindStringSubmatch(t.in[t.at:])
		if m == nil {
			return t.invalid("a lone {")
		}
		t.at += len(m[0])
		expanded, err := t.repeat(start, atoms, m)
		if err != nil {
			return err
		}
		if expanded {
			t.take("?") // laziness changes what is captured, never whether there is a match
		}
	default:
		return nil
	}
	if t.take("?") {
		t.out.WriteByte('?')
	}
	if t.has("*") || t.has("+") || t.has("?") || t.has("{") {
		return t.invalid("nothing to repeat")
	}
	return nil
}

// repeat writes {m,n}. RE2 stops at 1000, so larger counts are written out as a product of parts.
func (t *translator) repeat(start, atoms int, m []string) (expanded bool, err error) {
	low, err1 := strconv.Atoi(m[1])
	high, err2 := low, error(nil)
	unbounded := m[2] != "" && m[3] == ""
	if m[3] != "" {
		high, err2 = strconv.Atoi(m[3])
	}
	if err1 != nil || err2 != nil || low > maxRepeat || high > maxRepeat {
		return false, fmt.Errorf("a regular expression that repeats more than %d times", maxRepeat)
	}
	if high < low {
		return false, t.invalid("numbers out of order in {}")
	}
	// Before anything is written: a repeat of repeats doubles and doubles again.
	if t.atoms += atoms * max(high-1, 0); t.atoms > maxAtoms {
		return false, errRegexTooLarge
	}
	if low <= 1000 && high <= 1000 {
		// Not as it is written: RE2 takes {02} for text.
		switch {
		case unbounded:
			fmt.Fprintf(&t.out, "{%d,}", low)
		case m[2] != "":
			fmt.Fprintf(&t.out, "{%d,%d}", low, high)
		default:
			fmt.Fprintf(&t.out, "{%d}", low)
		}
		return false, nil
	}
	written := t.out.String()
	atom := written[start:]
	t.out.Reset()
	t.out.WriteString(written[:start])
	t.out.WriteString("(?:")
	for left := low; left > 0; left -= min(left, 1000) {
		fmt.Fprintf(&t.out, "%s{%d}", atom, min(left, 1000))
	}
	if unbounded {
		t.out.WriteString(atom + "*")
	}
	for left := high - low; left > 0; left -= min(left, 1000) {
		fmt.Fprintf(&t.out, "%s{0,%d}", atom, min(left, 1000))
	}
	t.out.WriteString(")")
	return true, nil
}
