package rules

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"unicode/utf8"
)

var answersFile = flag.String("answers", "../testdata/regex/answers.jsonl", "recorded answers of JavaScript about regular expressions")

// answer is what JavaScript said about a pattern and an input; testdata/regex/generate.mjs has recorded it.
type answer struct {
	About   string // the construct
	Pattern string
	Flags   string
	Input   string
	Matches bool
	Error   string // of a pattern that does not compile
}

func readAnswers(t testing.TB) []answer {
	t.Helper()
	f, err := os.Open(*answersFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []answer
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil || a.Flags != "u" {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out = append(out, a)
	}
	return out
}

// limits are the errors of what JavaScript has and this engine has not; every other error says that the pattern is none.
var limits = regexp.MustCompile(`^(needs a (look-around|backreference), which this engine does not have; use ! patterns` +
	`|a property that this engine does not have; it has .*` +
	`|a regular expression (that repeats more than 5000 times|that is too large|of over 4096 bytes|nested deeper than 100` +
	`|that puts an unbounded quantifier on a group that holds one|that repeats an overlapping alternation))$`)

// check tests one answer and says what became of it: "refused" where JavaScript refuses too, "limit", "matches" or "not".
func (a *answer) check(t *testing.T) string {
	t.Helper()
	re, err := compileRegex(a.Pattern)
	switch {
	case a.Error != "" && err == nil:
		t.Errorf("%q compiles to %q; JavaScript says %s", a.Pattern, re, a.Error)
		return "refused"
	case a.Error != "":
		return "refused"
	case err != nil && !limits.MatchString(err.Error()):
		t.Errorf("%q: %v; it compiles in JavaScript", a.Pattern, err)
		return "limit"
	case err != nil:
		return "limit"
	case re.MatchString(a.Input) != a.Matches:
		t.Errorf("%q on %q: %v, in JavaScript %v (%s)", a.Pattern, a.Input, !a.Matches, a.Matches, re)
	}
	return map[bool]string{true: "matches", false: "not"}[a.Matches]
}

// TestRegexAnswers: every recorded answer is ours too.
func TestRegexAnswers(t *testing.T) {
	count := map[string]int{}
	for _, a := range readAnswers(t) {
		count[a.About]++
		count[a.check(t)]++
	}
	for kind, least := range map[string]int{
		"refused": 500, "limit": 60, "matches": 800, "not": 800,
		"anchors": 100, "beyond": 30, "case": 80, "dot": 60, "empty class": 30, "escapes": 400, "groups": 80, "grown": 300, "properties": 400,
		"quantifiers": 300, "ranges": 200, "slipped": 300, "space": 120, "surrogates": 150, "syntax": 100, "word": 200,
	} {
		if count[kind] < least {
			t.Errorf("%d answers about %s, want %d", count[kind], kind, least)
		}
	}
}

// FuzzRegexAgainstRecorded: from the recorded patterns and inputs on. A pattern is refused for a named reason, or becomes an
// expression of bounded size that keeps the relations which hold between patterns.
func FuzzRegexAgainstRecorded(f *testing.F) {
	type key struct{ pattern, input string }
	recorded := map[key]answer{}
	for i, a := range readAnswers(f) {
		recorded[key{a.Pattern, a.Input}] = a
		if i%16 == 0 { // all of them would leave a short run no time to fuzz
			f.Add(a.Pattern, a.Input)
		}
	}
	for _, pattern := range []string{"(a+)+", "(?:a|aa)+", "((a+)?)+", "\xff", "((a{9}){9}){9}", "(?:(?:a{5000}){5000}){5000}", "[\\S\\S]{5000}"} {
		f.Add(pattern, "aab\n")
	}
	f.Fuzz(func(t *testing.T, pattern, input string) {
		input = input[:min(len(input), 1000)] // time is linear in it, with a large factor for the largest patterns
		if a, ok := recorded[key{pattern, input}]; ok {
			a.check(t)
		}
		checkLiteral(t, input)
		re, err := compileRegex(pattern)
		if err != nil {
			if !limits.MatchString(err.Error()) && !strings.HasPrefix(err.Error(), "not a valid regular expression: ") {
				t.Errorf("%q is refused for no known reason: %v", pattern, err)
			}
			return
		}
		if scan := scanStructure(pattern); scan != nil {
			t.Errorf("%q loads although the scan refuses it: %v", pattern, scan)
		}
		checkSize(t, pattern, re.Regexp)
		checkRelations(t, pattern, input, re.Regexp)
		if re.MatchString(input) && !strings.Contains(input, re.literal) {
			t.Errorf("%q matches %q without the %q that it needs", pattern, input, re.literal)
		}
	})
}

// checkSize: what a pattern becomes is bounded, and so is the time of a match, which is linear in it.
func checkSize(t *testing.T, pattern string, re *regexp.Regexp) {
	t.Helper()
	// The longest translation of two bytes is that of \S in a class; a repeat writes its atom out eleven times at most.
	if n := len(re.String()); n > 64*11*(len(pattern)+1) {
		t.Errorf("%.100q becomes %d bytes", pattern, n)
	}
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(prog.Inst); n > 4*maxAtoms {
		t.Errorf("%.100q becomes %d instructions", pattern, n)
	}
}

// checkRelations tests what holds of any pattern p, in the terms of JavaScript.
func checkRelations(t *testing.T, pattern, input string, re *regexp.Regexp) {
	t.Helper()
	matches := re.MatchString(input)
	relations := []struct {
		pattern string
		holds   func(got bool) bool
	}{
		{"(?:" + pattern + ")", func(got bool) bool { return got == matches }},
		{"^[^]*(?:" + pattern + ")[^]*$", func(got bool) bool { return got == matches }},
		{pattern + "|[]", func(got bool) bool { return got == matches }},
		{"(?:" + pattern + "){1}", func(got bool) bool { return got == matches }},
		{"^(?:" + pattern + ")$", func(got bool) bool { return !got || matches }},
		{"(?:" + pattern + ")[]", func(got bool) bool { return !got }},
		{"(?:" + pattern + ")?", func(got bool) bool { return got }},
	}
	for _, r := range relations {
		other, err := compileRegex(r.pattern)
		switch {
		case err != nil && !limits.MatchString(err.Error()):
			t.Errorf("%q compiles, %q: %v", pattern, r.pattern, err)
		case err == nil && !r.holds(other.MatchString(input)):
			t.Errorf("%q on %q: %v, and %q not as it must be", pattern, input, matches, r.pattern)
		}
	}
}

// checkLiteral: a text with its marks escaped is the pattern of itself alone.
func checkLiteral(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || len(text) > maxRegex/3 {
		return
	}
	var quoted strings.Builder
	for _, r := range text {
		if strings.ContainsRune(`^$\.*+?()[]{}|/`, r) {
			quoted.WriteByte('\\')
		}
		quoted.WriteRune(r)
	}
	re, err := compileRegex("^" + quoted.String() + "$")
	if err != nil {
		t.Fatalf("the pattern of %q: %v", text, err)
	}
	if !re.MatchString(text) || re.MatchString(text+"a") || re.MatchString("a"+text) || re.MatchString(text+"\n") {
		t.Errorf("%q is not the pattern of %q alone", re, text)
	}
}
