package rules

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxResume is what reading on behind errors may cost one call, in units of work.
const maxResume = 12_000_000

// resume reads on behind the first error of a text: a shell may take what the parser does not. It tries every place where
// a command may begin, from the statement on that did not parse.
func (v *shellViews) resume(s *script, from int) {
	text := s.text
	for at := from; at < len(text); {
		next, ok := v.resumeAt(s, at)
		if !ok {
			return
		}
		if next <= at {
			next = at
		}
		at = nextStart(text, next)
	}
}

// resumeAt adds the statements that begin at a place, and gives where they end. ok is false when nothing more is looked
// at.
func (v *shellViews) resumeAt(s *script, at int) (next int, ok bool) {
	for _, window := range []int{192, 2 << 10, 16 << 10, maxShellText} {
		piece := s.text[at:min(at+window, len(s.text))]
		cost := parseCost(piece)
		if v.resumed += cost; v.resumed > maxResume || !v.spend(cost) {
			v.tooMuch = v.tooMuch || v.isScript
			return 0, false
		}
		stmts, open := beforeError(piece)
		if open && at+window < len(s.text) {
			// The last one may go on behind the window.
			if len(stmts) < 2 {
				continue
			}
			stmts = stmts[:len(stmts)-1]
		}
		if len(stmts) == 0 {
			return at, true
		}
		inner := *s
		inner.text = piece
		v.addStmts(stmts, &inner)
		end := int(stmts[len(stmts)-1].End().Offset())
		if strings.IndexByte(piece[:min(end, len(piece))], '`') >= 0 {
			end = 0 // it may be that the quotes are paired the other way
		}
		return at + end, !v.tooMuch
	}
	return at, true
}

// beforeError gives the statements before the first error, and the one that it cut off. open says that the text may only
// have ended too early.
func beforeError(text string) (stmts []*syntax.Stmt, open bool) {
	stmts, end, whole, err := parse(text)
	if whole {
		return stmts, true
	}
	open = syntax.IsIncomplete(err)
	const most = 4 // errors that are cut off, one inside the other
	for range most {
		var bad syntax.ParseError
		if !errors.As(err, &bad) {
			break
		}
		cut := min(int(bad.Pos.Offset()), len(text))
		if cut <= end || strings.Trim(text[end:cut], " \t\n;&|") == "" {
			break
		}
		var more []*syntax.Stmt
		text = text[:cut]
		if more, end, whole, err = parse(text); whole || len(more) > len(stmts) {
			return more, open
		}
	}
	return stmts, open
}

// nextStart gives the next place behind one where a command may begin.
func nextStart(text string, from int) int {
	word := from
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '\n', ';', '&', '|', '(', ')', '{', '`', '!':
			if skipBlanks(text, i+1) < len(text) {
				return skipBlanks(text, i+1)
			}
			return len(text)
		case ' ', '\t':
			if w := text[word:i]; strings.Contains(w, "=") || isOneOf(w, keywords) {
				return skipBlanks(text, i+1)
			}
			word = i + 1
		}
	}
	return len(text)
}

func skipBlanks(text string, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n') {
		at++
	}
	return at
}
