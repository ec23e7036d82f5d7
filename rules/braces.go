package rules

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func hasBrace(w *syntax.Word) bool {
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok && strings.IndexByte(lit.Value, '{') >= 0 {
			return true
		}
	}
	return false
}

// braces expands the lists and sequences in the braces of a word. A word that becomes too many makes the call one that
// cannot be looked at.
func (v *shellViews) braces(w *syntax.Word) []*syntax.Word {
	if !hasBrace(w) {
		return []*syntax.Word{w}
	}
	if !v.spend(20 * (int(w.End().Offset()) - int(w.Pos().Offset()))) {
		return nil
	}
	split := *w
	split.Parts = slices.Clone(w.Parts)
	if !syntax.SplitBraces(&split) {
		return []*syntax.Word{w}
	}
	var out []*syntax.Word
	for _, parts := range v.expandBraces(split.Parts) {
		isEmpty := func(p syntax.WordPart) bool { lit, ok := p.(*syntax.Lit); return ok && lit.Value == "" }
		if len(slices.DeleteFunc(slices.Clone(parts), isEmpty)) > 0 {
			out = append(out, &syntax.Word{Parts: parts}) // one without text is no word
		}
	}
	return out
}

// perBrace is what one word of an expansion costs, in units of work.
const perBrace = 150

// expandBraces gives every word that the parts stand for.
func (v *shellViews) expandBraces(parts []syntax.WordPart) [][]syntax.WordPart {
	out := [][]syntax.WordPart{nil}
	for _, part := range parts {
		brace, ok := part.(*syntax.BraceExp)
		if !ok {
			for i := range out {
				out[i] = append(slices.Clip(out[i]), part)
			}
			continue
		}
		endings := v.endings(brace)
		if len(out)*len(endings) > maxBraceText || !v.spend(perBrace*len(out)*len(endings)) {
			v.tooMuch = true
			return nil
		}
		next := make([][]syntax.WordPart, 0, len(out)*len(endings))
		for _, head := range out {
			for _, ending := range endings {
				next = append(next, append(slices.Clip(head), ending...))
			}
		}
		out = next
	}
	return out
}

func (v *shellViews) endings(brace *syntax.BraceExp) [][]syntax.WordPart {
	var out [][]syntax.WordPart
	if !brace.Sequence {
		for _, e := range brace.Elems {
			out = append(out, v.expandBraces(e.Parts)...)
		}
		return out
	}
	texts, ok := sequence(brace)
	if !ok {
		v.tooMuch = true
	}
	for _, t := range texts {
		out = append(out, []syntax.WordPart{&syntax.Lit{Value: t}})
	}
	return out
}

// sequence gives what {a..b} and {a..b..step} stand for. ok is false for one that is too long.
func sequence(brace *syntax.BraceExp) (out []string, ok bool) {
	var ends [3]string
	for i, e := range brace.Elems[:min(len(brace.Elems), 3)] {
		ends[i] = e.Lit()
	}
	from, errFrom := strconv.Atoi(ends[0])
	to, errTo := strconv.Atoi(ends[1])
	letters := errFrom != nil || errTo != nil
	if letters {
		if len(ends[0]) != 1 || len(ends[1]) != 1 {
			return nil, false
		}
		from, to = int(ends[0][0]), int(ends[1][0])
	}
	step, err := strconv.Atoi(ends[2])
	if err != nil || step == 0 {
		step = 1
	}
	step = max(step, -step)
	width := 0
	for _, e := range ends[:2] {
		if digits := strings.TrimLeft(e, "-+"); !letters && len(digits) > 1 && digits[0] == '0' {
			width = max(width, len(e))
		}
	}
	if step < 0 || width > 20 || from < -1<<40 || from > 1<<40 || to < -1<<40 || to > 1<<40 || max(from-to, to-from)/step > maxBraceText {
		return nil, false
	}
	down := from > to
	for n := from; !down && n <= to || down && n >= to; {
		text := strconv.Itoa(n)
		switch {
		case letters:
			text = string([]byte{byte(n)})
		case n < 0:
			text = "-" + strings.Repeat("0", max(0, width-len(text))) + text[1:]
		default:
			text = strings.Repeat("0", max(0, width-len(text))) + text
		}
		out = append(out, text)
		if down {
			n -= step
		} else {
			n += step
		}
	}
	return out, true
}
