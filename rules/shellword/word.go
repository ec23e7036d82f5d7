// Package shellword decodes words of shell text. It is pure.
package shellword

import (
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Text decodes a word of a text: quotes and escapes are gone, expansions stay as they are written.
func Text(w *syntax.Word, text string) string {
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
			b.WriteString(ANSI(p.Value))
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

// ANSI decodes the text of $'…', which echo -e and printf read much the same. It ends at a NUL, as it does for a shell.
func ANSI(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		n, ok := plainEscape(s[i])
		switch c := s[i]; {
		case ok:
		case c == 'c' && i+1 < len(s):
			i++
			n = int(s[i] & 0x1f)
		case c == 'x' || c == 'u' || c == 'U':
			var digits int
			if n, digits = hexNumber(s[i+1:], map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]); digits == 0 {
				b.WriteByte('\\')
				n = int(c)
			}
			i += digits
			if c != 'x' && n >= utf8.RuneSelf {
				b.WriteRune(rune(n))
				continue
			}
		case '0' <= c && c <= '7':
			n = int(c - '0')
			for d := 1; d < 3 && i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '7'; d++ {
				i++
				n = n<<3 | int(s[i]-'0')
			}
		default:
			b.WriteByte('\\')
			n = int(c)
		}
		if byte(n) == 0 {
			return b.String()
		}
		b.WriteByte(byte(n))
	}
	return b.String()
}

// plainEscape gives the character that a letter stands for behind a backslash.
func plainEscape(c byte) (int, bool) {
	if i := strings.IndexByte("abtnvfreE\\'\"?", c); i >= 0 {
		return int("\a\b\t\n\v\f\r\x1b\x1b\\'\"?"[i]), true
	}
	return 0, false
}

// hexNumber reads up to so many hexadecimal digits.
func hexNumber(s string, most int) (n, digits int) {
	for digits < most && digits < len(s) && hexDigit(s[digits]) >= 0 {
		n = n<<4 | hexDigit(s[digits])
		digits++
	}
	return n, digits
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
