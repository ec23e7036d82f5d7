package tree

import (
	"fmt"
	"strings"
)

// Error is a YAML file that does not load. It names positions, fields and key names, never values that a file may
// keep secret.
type Error struct {
	File string
	Line int // 1-based; 0 where no line is known
	Col  int // 1-based; 0 where the YAML library knows none, and the line is then only near
	What string
	Hint string
}

// Error gives FILE:LINE:COL: what, or FILE: near LINE: what.
func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.File + ": " + e.What
	case e.Col == 0:
		return fmt.Sprintf("%s: near %d: %s", e.File, e.Line, e.What)
	default:
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.What)
	}
}

// Nearest gives the known word closest to a misspelt one, for hints; empty when none is near.
func Nearest(word string, known []string) string {
	best, bestDistance := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is Levenshtein's, for short words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// DidYouMean is the hint for a word that is not among the known ones.
func DidYouMean(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known here: " + strings.Join(known, ", ")
}
