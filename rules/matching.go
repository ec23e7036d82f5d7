package rules

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"dshproxy/netrule/glob"
	"dshproxy/rules/work"
)

// regex is a compiled expression with what its matches cost.
type regex struct {
	*regexp.Regexp
	atoms int
	// literal is in every text that matches; empty when no such text is known.
	literal string
}

// perAtom is what an atom of a regular expression costs for each byte of the text, in units of work.
const perAtom = 10

// within matches if there is work left for the worst case. A text without the literal costs next to nothing.
func (r *regex) within(text string, left *work.Budget) bool {
	if !left.Spend(len(text)/4 + 20) {
		return false
	}
	if r.literal != "" && !strings.Contains(text, r.literal) {
		return false
	}
	return left.Spend((len(text)+16)*r.atoms*perAtom) && r.MatchString(text)
}

// literalIn gives the longest text that every match of an expression holds.
func literalIn(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		// Every broken byte reads as U+FFFD.
		if re.Flags&syntax.FoldCase == 0 && !slices.Contains(re.Rune, utf8.RuneError) {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return literalIn(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literalIn(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if s := literalIn(sub); len(s) > len(longest) {
				longest = s
			}
		}
		return longest
	default: // what has no fixed text, or may be left out
	}
	return ""
}

// within matches a text with the work that is left; without any, nothing matches, and the call is refused.
func (p *Pattern) within(text string, left *work.Budget) bool {
	switch {
	case p.regex != nil:
		return p.regex.within(text, left)
	case p.glob != nil:
		return globWithin(p.glob, text, left)
	default:
		return false
	}
}

func globWithin(g *glob.Glob, text string, left *work.Budget) bool {
	if plain, ok := g.Plain(); ok {
		return left.Spend(2) && text == plain
	}
	matched, steps := g.MatchWithin(text, left.Steps())
	return left.Used(steps) && matched
}

func anyGlob(globs []*glob.Glob, text string, left *work.Budget) bool {
	for _, g := range globs {
		// Most are plain: they are not worth a call.
		if plain, ok := g.Plain(); ok {
			if left.Spend(2) && text == plain {
				return true
			}
		} else if globWithin(g, text, left) {
			return true
		}
	}
	return false
}

func anyWithin(patterns []Pattern, text string, left *work.Budget) bool {
	for i := range patterns {
		if patterns[i].within(text, left) {
			return true
		}
	}
	return false
}
