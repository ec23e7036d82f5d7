package rules

import (
	"errors"
	"strings"
)

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
