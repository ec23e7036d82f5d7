// Package surface evaluates rules of the form surface, pattern, action: the last one that matches wins. It is pure.
package surface

import (
	"math"
	"strings"
	"unicode/utf8"

	"dshproxy/netrule"
	"dshproxy/rules/work"
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
	// work bounds the evaluation; nil is no bound.
	work *work.Budget
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
	if o.work.Over() && o.work != nil {
		return false
	}
	if pattern == "*" || pattern == value {
		return true
	}
	if o.Profile == V1 {
		return strings.Contains(pattern, "*") && o.wildcard(pattern, value, false)
	}
	pattern = o.expandHome(pattern)
	if prefix, ok := strings.CutSuffix(pattern, " *"); ok && o.wildcard(prefix, value, true) {
		return true
	}
	return o.wildcard(pattern, value, true)
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

func (o Options) wildcard(pattern, value string, current bool) bool {
	if o.work == nil {
		matched, _ := wildcard(pattern, value, current, math.MaxInt)
		return matched
	}
	matched, steps := wildcard(pattern, value, current, o.work.Steps())
	return o.work.Used(steps) && matched
}

// wildcard matches "*", and in the current profile "?", in time linear in the value times the pattern. It gives up when
// it has taken most steps, and tells how many it took.
func wildcard(pattern, value string, current bool, most int) (matched bool, steps int) {
	at, next, retryAt, retryNext := 0, 0, -1, 0
	for at < len(value) {
		if steps++; steps > most {
			return false, steps
		}
		r, size := utf8.DecodeRuneInString(value[at:])
		var want rune
		var width int
		if next < len(pattern) {
			want, width = utf8.DecodeRuneInString(pattern[next:])
		}
		switch {
		case want == '*':
			next += width
			retryAt, retryNext = at, next
		case width > 0 && (want == r || current && want == '?'):
			next += width
			at += size
		case retryAt >= 0:
			passed, step := utf8.DecodeRuneInString(value[retryAt:])
			if !current && isLineEnd(passed) {
				return false, steps
			}
			retryAt += step
			at, next = retryAt, retryNext
		default:
			return false, steps
		}
	}
	for next < len(pattern) && pattern[next] == '*' {
		next++
	}
	return next == len(pattern), steps
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' }
