// Package shellword decodes words of shell text. It is pure.
package shellword

import (
	"strings"

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
