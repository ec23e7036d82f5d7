package shellword

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Expand gives what an expansion comes to: the fields that it is split into, if it is not quoted, or else one text. Only
// "$@" gives several fields though it is quoted. What it does not know stays as it is written.
type Expand func(part syntax.WordPart, quoted bool) (fields []string, known bool)

// Fields decodes a word as Text does, with the expansions that expand knows. A word that comes to nothing, and is not
// quoted, gives no field.
func Fields(w *syntax.Word, text string, expand Expand) []string {
	b := fieldBuilder{text: text, expand: expand}
	for _, part := range w.Parts {
		b.part(part, false)
	}
	if b.begun {
		b.out = append(b.out, b.word.String())
	}
	return b.out
}

type fieldBuilder struct {
	text   string
	expand Expand
	out    []string
	word   strings.Builder
	begun  bool // the current field is one even when it is empty
}

func (b *fieldBuilder) part(part syntax.WordPart, quoted bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		b.begun = b.begun || p.Value != ""
		if quoted {
			b.word.WriteString(unescape(p.Value, "\"\\$`\n"))
		} else {
			b.word.WriteString(unescape(p.Value, ""))
		}
	case *syntax.SglQuoted:
		b.begun = true
		partText(&b.word, p, b.text)
	case *syntax.DblQuoted:
		b.begun = b.begun || len(p.Parts) == 0
		for _, inner := range p.Parts {
			b.part(inner, true)
		}
	default:
		b.expansion(part, quoted)
	}
}

func (b *fieldBuilder) expansion(part syntax.WordPart, quoted bool) {
	fields, known := b.expand(part, quoted)
	if !known {
		b.begun = true
		partText(&b.word, part, b.text)
		return
	}
	for i, f := range fields {
		if i > 0 {
			b.out = append(b.out, b.word.String())
			b.word.Reset()
		}
		b.word.WriteString(f)
		b.begun = true
	}
}
