package toolspec

import (
	"path"
	"strings"
	"unicode/utf8"

	"dshproxy/rules/work"
)

// The longest path that is matched. A longer one is refused where a deny or ask rule asks about paths.
const (
	maxPath     = 4096 // bytes
	maxSegments = 512
)

// tooLong reports a path that is not matched.
func tooLong(name string) bool { return len(name) > maxPath || strings.Count(name, "/") > maxSegments }

// matchFolders matches a clean path as matchPath does, or any folder above it. With glob the path's own segments may be
// patterns of the shell, and a match is one that could be. The time is that of the segments of both, multiplied.
func matchFolders(pattern, name string, glob, hidden bool, left *work.Budget) (self, above bool) {
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	if !left.Spend(200 + 10*(len(p)+len(n)) + 5*len(p)*len(n)) {
		return false, false
	}
	last := len(p) - 1
	active, next := make([]bool, len(p)+1), make([]bool, len(p)+1)
	// reach marks a state, and those that a "**" of no segments leads to.
	reach := func(set []bool, i int) {
		for set[i] = true; i < last && p[i] == "**"; {
			i++
			set[i] = true
		}
	}
	reach(active, 0)
	for k, segment := range n {
		clear(next)
		for i := range p {
			switch {
			case !active[i]:
			case glob && segment == "**": // any number of segments
				for j := i; j <= len(p); j++ {
					next[j] = true
				}
			case p[i] == "**" && i == last:
				next[i], next[len(p)] = true, true
			case p[i] == "**":
				reach(next, i)
			case matchSegment(p[i], segment, left) || glob && meet(p[i], segment, hidden, left):
				reach(next, i+1)
			}
		}
		active, next = next, active
		if active[len(p)] && k < len(n)-1 {
			above = true
		}
	}
	return active[len(p)], above
}

// meet reports whether some name could match both a segment of a rule and one of the shell's patterns. hidden lets the
// latter match a leading dot with a star.
func meet(pattern, glob string, hidden bool, left *work.Budget) bool {
	if !strings.ContainsAny(glob, "*?[") {
		return false
	}
	if !hidden && strings.HasPrefix(pattern, ".") && strings.IndexByte("*?[", glob[0]) >= 0 {
		return false
	}
	if !left.Spend(200 + 50*(len(pattern)+len(glob)) + 10*len(pattern)*len(glob)) {
		return false
	}
	a, b := tokens(pattern), tokens(glob)
	row := make([]bool, len(b)+1) // row[j]: what is left of both could be the same, for the tokens of a seen so far
	for i := len(a); i >= 0; i-- {
		diagonal := false // of the row below
		for j := len(b); j >= 0; j-- {
			below := row[j]
			switch {
			case i == len(a) && j == len(b):
				row[j] = true
			case i < len(a) && a[i] == "*":
				row[j] = below || j < len(b) && row[j+1]
			case j < len(b) && b[j] == "*":
				row[j] = row[j+1] || i < len(a) && below
			default:
				row[j] = i < len(a) && j < len(b) && diagonal && oneMeets(a[i], b[j])
			}
			diagonal = below
		}
	}
	return row[0]
}

// tokens cuts a segment pattern into stars, classes and characters.
func tokens(s string) []string {
	var out []string
	for len(s) > 0 {
		n := 1
		switch {
		case s[0] == '[':
			if end := strings.IndexByte(s[1:], ']'); end > 0 {
				n = end + 2
			}
		case s[0] == '\\' && len(s) > 1:
			_, size := utf8.DecodeRuneInString(s[1:])
			n = 1 + size
		default:
			_, n = utf8.DecodeRuneInString(s)
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// oneMeets reports whether two tokens for one character have one in common; two classes may.
func oneMeets(a, b string) bool {
	if a == "?" || b == "?" || len(a) > 1 && a[0] == '[' && len(b) > 1 && b[0] == '[' {
		return true
	}
	if len(b) > 1 && b[0] == '[' {
		a, b = b, a
	}
	b = strings.TrimPrefix(b, `\`)
	ok, err := path.Match(strings.Replace(a, "[!", "[^", 1), b)
	return err != nil || ok
}
