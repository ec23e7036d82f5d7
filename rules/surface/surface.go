// Package surface evaluates rules of the form surface, pattern, action: the last one that matches wins. It is pure.
package surface

import (
	"strings"

	"dshproxy/netrule"
)

// Rule is one permission rule.
type Rule struct {
	Surface string         `json:"surface"`
	Pattern string         `json:"pattern"`
	Action  netrule.Action `json:"action"`
}

// Ruleset is an ordered list; later rules take priority.
type Ruleset []Rule

// Profile is a version of the matcher.
type Profile uint8

const (
	// V2 is the current one: "*" crosses newlines, "?" is one character, a trailing " *" also matches nothing, "~" and
	// "$HOME" at the start of a pattern are the home folder.
	V2 Profile = iota
	// V1 is the first one: "*" stops at line ends unless it stands alone, and nothing else is special.
	V1
)

// Options of an evaluation. The zero value is profile V2, default ask, no home.
type Options struct {
	Profile Profile
	// Default is the action when nothing matches; nil means ask.
	Default *netrule.Action
	// Home is what "~" stands for; empty leaves it as it is written.
	Home string
}

// Result is the winning rule and where it stands.
type Result struct {
	Rule Rule
	// Index counts over all rulesets together, Ruleset and Position say which rule that is. All are -1 for the default.
	Index, Ruleset, Position int
}

// Matched reports whether a rule won.
func (r Result) Matched() bool { return r.Index >= 0 }

// Evaluate gives the last rule over all rulesets, in their order, whose surface and pattern match; else a rule of the
// queried surface and value with the default action.
func Evaluate(opts Options, surface, value string, rulesets ...Ruleset) Result {
	index := -1
	for _, rs := range rulesets {
		index += len(rs)
	}
	for i := len(rulesets) - 1; i >= 0; i-- {
		for j := len(rulesets[i]) - 1; j >= 0; j-- {
			r := rulesets[i][j]
			if opts.match(r.Surface, surface) && opts.match(r.Pattern, value) {
				return Result{r, index, i, j}
			}
			index--
		}
	}
	action := netrule.Ask
	if opts.Default != nil {
		action = *opts.Default
	}
	return Result{Rule{surface, value, action}, -1, -1, -1}
}

// match compares a pattern with a value, whole against whole.
func (o Options) match(pattern, value string) bool {
	if pattern == "*" || pattern == value {
		return true
	}
	if o.Profile == V1 {
		return strings.Contains(pattern, "*") && wildcard(pattern, value, false)
	}
	pattern = o.expandHome(pattern)
	if prefix, ok := strings.CutSuffix(pattern, " *"); ok && wildcard(prefix, value, true) {
		return true
	}
	return wildcard(pattern, value, true)
}

func (o Options) expandHome(pattern string) string {
	if o.Home == "" {
		return pattern
	}
	for _, prefix := range []string{"~", "$HOME"} {
		if rest, ok := strings.CutPrefix(pattern, prefix); ok && (rest == "" || rest[0] == '/' || rest[0] == '\\') {
			return o.Home + rest
		}
	}
	return pattern
}

// wildcard matches "*", and in the current profile "?", in time linear in the value times the pattern.
func wildcard(pattern, value string, current bool) bool {
	p, v := []rune(pattern), []rune(value)
	at, next, retryAt, retryNext := 0, 0, -1, 0
	for at < len(v) {
		switch {
		case next < len(p) && p[next] == '*':
			next++
			retryAt, retryNext = at, next
		case next < len(p) && (p[next] == v[at] || current && p[next] == '?'):
			next++
			at++
		case retryAt >= 0 && (current || !isLineEnd(v[retryAt])):
			retryAt++
			at, next = retryAt, retryNext
		default:
			return false
		}
	}
	for next < len(p) && p[next] == '*' {
		next++
	}
	return next == len(p)
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' }
