package rules

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"dshproxy/rules/tree"
)

// maxRegex is the longest pattern that is compiled, in bytes; maxRepeat the largest repeat count that is expanded.
const (
	maxRegex  = 4096
	maxRepeat = 5000
)

// compileRegex translates a JavaScript regular expression (flag u) to RE2, which is linear. What JavaScript refuses is
// refused, so that files load alike; what RE2 cannot express is refused with a message; and the structural scan of the
// format is kept for the same reason, although RE2 needs none.
func compileRegex(pattern string) (*regexp.Regexp, error) {
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
		return nil, errors.New("a regular expression that is too large")
	}
	return re, nil
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
		return t.invalid("nested too deep")
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
	start := t.out.Len()
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
	return t.quantifier(start)
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
		name, rest, ok := strings.Cut(t.in[t.at:], ">")
		if !ok || !isIdentifier(name) {
			return t.invalid("a bad group name")
		}
		if t.names[name] {
			return t.invalid("two groups of one name")
		}
		if t.names == nil {
			t.names = map[string]bool{}
		}
		t.names[name] = true
		t.at = len(t.in) - len(rest)
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

// isIdentifier tells the names that JavaScript takes.
func isIdentifier(name string) bool {
	for i, r := range name {
		if !unicode.IsLetter(r) && r != '_' && r != '$' && (i == 0 || !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Mc, r) && !unicode.Is(unicode.Pc, r)) {
			return false
		}
	}
	return name != ""
}

var braces = regexp.MustCompile(`^\{(\d+)(?:(,)(\d*))?\}`)

// quantifier reads what follows the atom that starts at start in the output.
func (t *translator) quantifier(start int) error {
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
		expanded, err := t.repeat(start, m)
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
func (t *translator) repeat(start int, m []string) (expanded bool, err error) {
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
	if low <= 1000 && high <= 1000 {
		t.out.WriteString(m[0])
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

// escape reads an escape outside of a class, behind the backslash.
func (t *translator) escape() error {
	if !t.more() {
		return t.invalid("a \\ at the end")
	}
	c := t.in[t.at]
	switch {
	case '1' <= c && c <= '9', c == 'k':
		return t.unsupported("backreference")
	case c == 's' || c == 'S':
		t.at++
		if c == 's' {
			t.out.WriteString("[" + jsSpace + "]")
		} else {
			t.out.WriteString("[^" + jsSpace + "]")
		}
		return nil
	case strings.IndexByte("dDwW", c) >= 0:
		t.at++
		t.out.WriteString(`\` + string(c))
		return nil
	case c == 'p' || c == 'P':
		return t.property()
	}
	r, err := t.character(false)
	if err != nil {
		return err
	}
	t.out.WriteString(hexRune(r))
	return nil
}

func hexRune(r rune) string { return fmt.Sprintf(`\x{%x}`, r) }

// character reads an escape that stands for one character.
func (t *translator) character(inClass bool) (rune, error) {
	if !t.more() {
		return 0, t.invalid("a \\ at the end")
	}
	switch r := t.next(); r {
	case 't':
		return '\t', nil
	case 'n':
		return '\n', nil
	case 'v':
		return '\v', nil
	case 'f':
		return '\f', nil
	case 'r':
		return '\r', nil
	case '0':
		if t.more() && '0' <= t.in[t.at] && t.in[t.at] <= '9' {
			return 0, t.invalid("an octal escape")
		}
		return 0, nil
	case 'c':
		if !t.more() || !isLetter(t.in[t.at]) {
			return 0, t.invalid("a bad control escape")
		}
		return t.next() % 32, nil
	case 'x':
		return t.hex(2)
	case 'u':
		return t.unicode()
	case 'b':
		if inClass {
			return '\b', nil
		}
		return 0, t.invalid("an unknown escape")
	default:
		if strings.ContainsRune(`^$\.*+?()[]{}|/`, r) || inClass && r == '-' {
			return r, nil
		}
		return 0, t.invalid("an unknown escape \\" + string(r))
	}
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (t *translator) hex(n int) (rune, error) {
	if t.at+n > len(t.in) {
		return 0, t.invalid("a cut escape")
	}
	v, err := strconv.ParseUint(t.in[t.at:t.at+n], 16, 32)
	if err != nil {
		return 0, t.invalid("a bad hexadecimal escape")
	}
	t.at += n
	return rune(v), nil
}

func (t *translator) unicode() (rune, error) {
	if t.take("{") {
		digits, rest, ok := strings.Cut(t.in[t.at:], "}")
		v, err := strconv.ParseUint(digits, 16, 32)
		if !ok || err != nil || v > utf8.MaxRune {
			return 0, t.invalid("a bad Unicode escape")
		}
		t.at = len(t.in) - len(rest)
		return surrogateAsReplacement(rune(v)), nil
	}
	r, err := t.hex(4)
	if err != nil {
		return 0, err
	}
	if 0xd800 <= r && r < 0xdc00 && t.has(`\u`) && !t.has(`\u{`) {
		mark := t.at
		t.at += 2
		low, err := t.hex(4)
		if err == nil && 0xdc00 <= low && low < 0xe000 {
			return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, nil
		}
		t.at = mark
	}
	return surrogateAsReplacement(r), nil
}

// surrogateAsReplacement: values are UTF-8, in which a lone surrogate has become U+FFFD.
func surrogateAsReplacement(r rune) rune {
	if 0xd800 <= r && r < 0xe000 {
		return utf8.RuneError
	}
	return r
}

// property reads \p{…} and \P{…}, both of which RE2 knows by short names only.
func (t *translator) property() error {
	sign := t.next()
	if !t.take("{") {
		return t.invalid("a bad property escape")
	}
	name, rest, ok := strings.Cut(t.in[t.at:], "}")
	if !ok {
		return t.invalid("a bad property escape")
	}
	t.at = len(t.in) - len(rest)
	known := false
	if key, value, has := strings.Cut(name, "="); has {
		switch key {
		case "Script", "sc":
			name = value
			_, known = unicode.Scripts[name]
		case "General_Category", "gc":
			name = longCategory(value)
			known = isCategory(name)
		}
	} else {
		name = longCategory(name)
		known = isCategory(name)
	}
	if !known {
		return t.invalid("a property that this engine does not have; it has \\p{L}, \\p{Lu} and \\p{Script=Greek} and their like")
	}
	out := fmt.Sprintf(`\%c{%s}`, sign, name)
	if _, err := regexp.Compile(out); err != nil {
		return t.invalid("an unknown property")
	}
	t.out.WriteString(out)
	return nil
}

// isCategory tells the short names of general categories, in their case.
func isCategory(name string) bool {
	_, ok := unicode.Categories[name]
	return ok && len(name) <= 2
}

func longCategory(name string) string {
	switch name {
	case "Letter":
		return "L"
	case "Uppercase_Letter":
		return "Lu"
	case "Lowercase_Letter":
		return "Ll"
	case "Mark":
		return "M"
	case "Number":
		return "N"
	case "Decimal_Number":
		return "Nd"
	case "Punctuation":
		return "P"
	case "Symbol":
		return "S"
	case "Separator":
		return "Z"
	case "Other":
		return "C"
	default:
		return name
	}
}

// class reads […], behind the bracket.
func (t *translator) class() error {
	negate := t.take("^")
	var body strings.Builder
	for {
		if !t.more() {
			return t.invalid("an unclosed character class")
		}
		if t.take("]") {
			break
		}
		if err := t.classItem(&body); err != nil {
			return err
		}
	}
	switch {
	case body.Len() == 0 && negate:
		t.out.WriteString(`(?s:.)`)
	case body.Len() == 0:
		t.out.WriteString(`[^\x00-\x{10ffff}]`)
	case negate:
		t.out.WriteString("[^" + body.String() + "]")
	default:
		t.out.WriteString("[" + body.String() + "]")
	}
	return nil
}

// classItem reads one character, set or range of a class.
func (t *translator) classItem(body *strings.Builder) error {
	low, set, err := t.classAtom()
	if err != nil {
		return err
	}
	if !t.has("-") || t.has("-]") {
		if set != "" {
			body.WriteString(set)
		} else {
			body.WriteString(hexRune(low))
		}
		return nil
	}
	t.at++
	high, set2, err := t.classAtom()
	switch {
	case err != nil:
		return err
	case set != "" || set2 != "":
		return t.invalid("a set at the end of a range")
	case high < low:
		return t.invalid("a range out of order")
	}
	body.WriteString(hexRune(low) + "-" + hexRune(high))
	return nil
}

// classAtom gives a character, or a set such as \d as text for RE2.
func (t *translator) classAtom() (r rune, set string, err error) {
	if !t.more() {
		return 0, "", t.invalid("an unclosed character class")
	}
	if !t.take(`\`) {
		return t.next(), "", nil
	}
	if t.more() {
		switch c := t.in[t.at]; c {
		case 'd', 'D', 'w', 'W':
			t.at++
			return 0, `\` + string(c), nil
		case 's':
			t.at++
			return 0, jsSpace, nil
		case 'S':
			t.at++
			return 0, jsNotSpace, nil
		case 'p', 'P':
			inner := translator{in: t.in, at: t.at}
			if err := inner.property(); err != nil {
				return 0, "", err
			}
			t.at = inner.at
			return 0, inner.out.String(), nil
		}
	}
	r, err = t.character(true)
	return r, "", err
}

// scanGroup is one open parenthesis of the structural scan.
type scanGroup struct {
	unbounded bool     // holds an unbounded quantifier, as far as that propagates
	branches  []string // top-level alternatives, raw
	start     int      // where the current branch starts
}

// scanStructure refuses nested unbounded quantifiers and repeated overlapping alternations, by the very walk of the
// original: its holes are kept, because their only effect is which files load.
func scanStructure(pattern string) error {
	stack := []scanGroup{{}}
	for i := 0; i < len(pattern); i++ {
		top := &stack[len(stack)-1]
		switch pattern[i] {
		case '\\':
			i++
		case '[':
			for i++; i < len(pattern) && pattern[i] != ']'; i++ {
				if pattern[i] == '\\' {
					i++
				}
			}
		case '(':
			stack = append(stack, scanGroup{start: i + 1})
		case '|':
			top.branches = append(top.branches, pattern[top.start:i])
			top.start = i + 1
		case ')':
			if len(stack) == 1 {
				continue
			}
			group := *top
			group.branches = append(group.branches, pattern[group.start:i])
			stack = stack[:len(stack)-1]
			unbounded, size := quantifierAt(pattern[i+1:])
			if unbounded && group.unbounded {
				return errors.New("a regular expression that puts an unbounded quantifier on a group that holds one")
			}
			if unbounded && len(group.branches) > 1 && overlap(group.branches) {
				return errors.New("a regular expression that repeats an overlapping alternation")
			}
			if unbounded || group.unbounded && size == 0 {
				stack[len(stack)-1].unbounded = true
			}
			i += size
		default:
			if unbounded, _ := quantifierAt(pattern[i:]); unbounded {
				top.unbounded = true
			}
		}
	}
	return nil
}

// quantifierAt reads a quantifier at the start of s and gives its size, 0 if there is none.
func quantifierAt(s string) (unbounded bool, size int) {
	if s == "" {
		return false, 0
	}
	switch s[0] {
	case '*', '+':
		return true, 1
	case '?':
		return false, 1
	}
	if m := braces.FindStringSubmatch(s); m != nil {
		return m[2] != "" && m[3] == "", len(m[0])
	}
	return false, 0
}

// overlap reports whether two branches are plain text and one is a prefix of the other.
func overlap(branches []string) bool {
	var plain []string
	for _, b := range branches {
		if b != "" && !strings.ContainsAny(b, `*+?()|[]{}^$.\`) {
			plain = append(plain, b)
		}
	}
	for i, a := range plain {
		for _, b := range plain[i+1:] {
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return true
			}
		}
	}
	return false
}
