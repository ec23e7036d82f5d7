package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
			name, known = category(value)
		}
	} else if name, known = category(name); !known {
		known = name == "Any" || name == "ASCII" || name == "Assigned"
	}
	if !known {
		return errors.New("a property that this engine does not have; it has \\p{L}, \\p{Lu} and \\p{Script=Greek} and their like")
	}
	fmt.Fprintf(&t.out, `\%c{%s}`, sign, name)
	return nil
}

// category gives the short name of a general category, by that name or a long one. JavaScript wants their case kept.
func category(name string) (short string, known bool) {
	if short, known = unicode.CategoryAliases[name]; known {
		return short, true
	}
	_, known = unicode.Categories[name]
	return name, known
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
