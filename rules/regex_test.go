package rules

import (
	"strings"
	"testing"
)

// The tables of this file were checked against Node 20 (flag u) where JavaScript has an answer.

func TestRegexAccepts(t *testing.T) {
	for _, pattern := range []string{
		"", "a", "a|b", "a||b", "|", "()", "(?:)", "(?:)*", "a{0}", "a{2}", "a{2,}", "a{2,3}", "a*?", "a{2}?", "a-b", "&&", "a/b",
		`\/`, `\^\$\\\.\*\+\?\(\)\[\]\{\}\|`, `\t\n\v\f\r\0`, `\cA\cz`, `\x41\u0041\u{41}\u{10FFFF}`,
		`\uD83D\uDE00`, `\uD83D`, `\uDE00\uD83D`, `[\uD83D\uDE00]`,
		"[]", "[^]", "[a-]", "[-a]", "[--a]", `[\-\b\]]`, `[\d\s\w-]`, `[\D\S\W]`, "[[(*+?.]", "[{}]", "[^^]",
		`(?<n>a)`, `(?<$n_1>a)(?<m>b)`, `\d+\.\d+\.\d+`, ".*.*.*", "(.*)(.*)", `^git (push|pull)( .*)?$`,
		`\p{L}\P{Lu}`, `\p{Letter}`, `\p{Uppercase_Letter}\p{Lowercase_Letter}\p{Mark}\p{Number}\p{Decimal_Number}`, `\p{Punctuation}\p{Symbol}\p{Separator}\p{Other}`, `\p{Script=Greek}`, `\p{sc=Greek}`, `\p{gc=Lu}`, `[\p{L}\d-]`,
		"a{1000}", "a{1001}", "a{1000,2500}", "a{1001,}", "a{5000}", "(?:ab){1500}",
	} {
		if _, err := compileRegex(pattern); err != nil {
			t.Errorf("compileRegex(%q) = %v, want it to load", pattern, err)
		}
	}
}

// What JavaScript refuses with the flag u is refused, so that the same files load in both places.
func TestRegexRefusesWhatJavaScriptRefuses(t *testing.T) {
	for _, pattern := range []string{
		"*", "+a", "?", "a**", "a*+", "a???", "a{2}{3}", "a{2}*", "^*", "$+", `\b?`, `\B{2}`, "(*a)", "a|*",
		"{", "}", "]", "{2}", "a{", "a}", "a]", "a{,5}", "a{2", "a{x}", "a{2,1}",
		"(", ")", "(a", "a)", "(?", "(?a)", "(?i)a", "(?i:a)", "(?P<n>a)", "(?<>a)", "(?<1>a)", "(?<n", "(?<n-m>a)", "(?#c)",
		`\`, `a\`, `\-`, `\_`, `\@`, `\a`, `\A`, `\z`, `\Z`, `\Q`, `\e`, `\ `, `\é`, `\8`, `\01`, `\00`, `\c`, `\c1`,
		`\x`, `\x4`, `\xg0`, `\u`, `\u004`, `\u00g0`, `\u{}`, `\u{110000}`, `\u{41`, `\u{g}`,
		"[", "[a", "[^", `[a\]`, "[b-a]", `[a-\d]`, `[\d-a]`, `[\w-\d]`, `[\B]`, `[\c1]`, `[\q]`, "[]a]", `[\`, "[a-", `[\s-`,
		`\pL`, `\p`, `\p{`, `\p{L`, `\p{}`, `\p{Xx}`, `\p{Greek}`, `\p{Foo=Bar}`, `\p{Script=Xx}`, `\P{}`, `[\p{Xx}]`,
	} {
		if re, err := compileRegex(pattern); err == nil {
			t.Errorf("compileRegex(%q) = %q, want an error as in JavaScript", pattern, re)
		}
	}
}

// Go's own names of classes are wider than JavaScript's: other cases, a negation inside, scripts as categories.
func TestRegexPropertyNamesAreJavaScripts(t *testing.T) {
	for _, pattern := range []string{
		`\p{lu}`, `\p{l}`, `\p{ L}`, `\p{^L}`, `[\p{^L}]`, `\p{Script=greek}`, `\p{Script=Lu}`, `\p{sc=^Greek}`, `\p{gc=Greek}`,
	} {
		if re, err := compileRegex(pattern); err == nil {
			t.Errorf("compileRegex(%q) = %q, want an error as in JavaScript", pattern, re)
		}
	}
}

func TestRegexGroupNames(t *testing.T) {
	if re, err := compileRegex("(?<n>a)(?<n>b)"); err == nil {
		t.Errorf("two groups of one name give %q, want an error as in JavaScript", re)
	}
	for _, pattern := range []string{"(?<é>a)", "(?<Ⅷ>a)", "(?<a\u200d>a)", "(?<℘·>a)", `(?<\u0061\u{62}c>a)`, `(?<\ud835\udc9c>a)`} {
		if _, err := compileRegex(pattern); err != nil {
			t.Errorf("%s: %v, want it to load as in JavaScript", pattern, err)
		}
	}
	for _, pattern := range []string{"(?<\u200da>a)", "(?<·>a)", "(?<²>a)", "(?<ⸯ>a)", `(?<\u0031>a)`, `(?<a\x62>a)`, `(?<\u>a)`, `(?<a>a)(?<\u0061>b)`} {
		if re, err := compileRegex(pattern); err == nil {
			t.Errorf("%s gives %q, want an error as in JavaScript", pattern, re)
		}
	}
}

// What is valid but beyond RE2 is refused by name of the construct, with the way out.
func TestRegexUnsupported(t *testing.T) {
	const lookAround, backreference = "needs a look-around, which this engine does not have; use ! patterns", "needs a backreference, which this engine does not have; use ! patterns"
	const property = `a property that this engine does not have; it has \p{L}, \p{Lu} and \p{Script=Greek} and their like`
	const repeats = "a regular expression that repeats more than 5000 times"
	tests := []struct{ pattern, want string }{
		{"(?=a+)b", lookAround},
		{"(?!a)b", lookAround},
		{"(?<=a)b", lookAround},
		{"(?<!a)b", lookAround},
		{`(a)\1`, backreference},
		{`(?<n>a)\k<n>`, backreference},
		{`\p{Alphabetic}`, property},
		{`\p{Script_Extensions=Greek}`, property},
		{"a{5001}", repeats},
		{"a{1,5001}", repeats},
		{"a{99999999999999999999}", repeats},
		{"(?:a{1000}){1000}", "a regular expression that is too large"},
		// Written out, each repeat would make the one inside five times as long.
		{strings.Repeat("(?:", 60) + "a" + strings.Repeat("){5000}", 60), "a regular expression that is too large"},
		{strings.Repeat("(?:", 60) + strings.Repeat("){5000}", 60), "a regular expression that is too large"},
		{strings.Repeat("a{1000}", 11), "a regular expression that is too large"},
		{strings.Repeat("(", 200) + strings.Repeat(")", 200), "a regular expression nested deeper than 100"},
		{strings.Repeat("a", maxRegex+1), "a regular expression of over 4096 bytes"},
	}
	for _, tt := range tests {
		_, err := compileRegex(tt.pattern)
		if err == nil || err.Error() != tt.want {
			t.Errorf("compileRegex(%.40q) error = %v, want %s", tt.pattern, err, tt.want)
		}
	}
	if _, err := compileRegex(strings.Repeat("a", maxRegex)); err != nil {
		t.Errorf("a pattern of exactly %d bytes: %v", maxRegex, err)
	}
}

func TestRegexMatch(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		// Unanchored and case-sensitive; anchors hold at the ends of the input only (CFG-29).
		{"b", []string{"b", "abc"}, []string{"B", ""}},
		{"^b$", []string{"b"}, []string{"b\n", "a\nb", "\nb"}},
		{"", []string{"", "x"}, nil},
		{"a|", []string{"a", "b", ""}, nil},
		// The dot stops at the four line terminators and takes a whole code point.
		{"^.$", []string{"a", "é", "😀", "\t", "\v", "\u0085"}, []string{"\n", "\r", "\u2028", "\u2029", "ab", ""}},
		{
			`^\s$`,
			[]string{" ", "\t", "\n", "\v", "\f", "\r", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"},
			[]string{"\u0085", "\u180e", "\u200b", "a", "_"},
		},
		{`^\S$`, []string{"\u0085", "\u180e", "\u200b", "a"}, []string{" ", "\v", "\u00a0", "\ufeff"}},
		{`^[\s]$`, []string{"\v", "\u00a0", "\ufeff"}, []string{"a"}},
		{`^[\S]$`, []string{"a", "\u0085", "\U0010ffff"}, []string{"\v", "\u00a0", "\ufeff", "\u2028"}},
		{`^[^\S]$`, []string{" ", "\ufeff"}, []string{"a"}},
		{`^[\s\S]$`, []string{"a", "\n", "\ufeff"}, []string{""}},
		// \d, \w and \b are ASCII.
		{`^\d$`, []string{"7"}, []string{"٣", "a"}},
		{`^\w$`, []string{"a", "Z", "0", "_"}, []string{"é", "-"}},
		{`^\W$`, []string{"é", "-"}, []string{"a"}},
		{`\bcat\b`, []string{"a cat.", "écaté"}, []string{"cats", "_cat"}},
		{`a\Bb`, []string{"ab"}, []string{"a b"}},
		// Classes.
		{"[]", nil, []string{"", "a", "]"}},
		{"^[^]$", []string{"a", "\n", "\u2028", "]"}, []string{""}},
		{"^[a-c-]$", []string{"a", "b", "c", "-"}, []string{"d"}},
		{"^[^a-c]$", []string{"d", "\n"}, []string{"b"}},
		{`^[\b]$`, []string{"\b"}, []string{"b"}},
		{`^[.*+?]$`, []string{".", "*"}, []string{"a"}},
		{`^[\]\-\\]$`, []string{"]", "-", `\`}, []string{"a"}},
		// Escapes.
		{`^\x41\u0042\u{43}$`, []string{"ABC"}, []string{"abc"}},
		{`^\cJ\0\t\v\f\r$`, []string{"\n\x00\t\v\f\r"}, nil},
		{`^\{\}\/$`, []string{"{}/"}, nil},
		// A surrogate pair is one character; a lone surrogate has become U+FFFD in the values already.
		{`^\uD83D\uDE00$`, []string{"😀"}, []string{"\ufffd\ufffd"}},
		{`^[\uD83D\uDE00]$`, []string{"😀"}, []string{"\ufffd"}},
		{`^\uD83D$`, []string{"\ufffd"}, []string{"😀"}},
		{`^\uD83D\u0041$`, []string{"\ufffdA"}, []string{"A"}},
		{`^\u{D83D}\u{DE00}$`, []string{"\ufffd\ufffd"}, []string{"😀"}},
		{`^\p{Lu}\P{Lu}$`, []string{"Äa", "A1"}, []string{"aA"}},
		{`^[\p{Script=Greek}\d]+$`, []string{"λ1"}, []string{"l1"}},
		{`^(?<year>\d{4})-(?:\d\d)$`, []string{"2026-01"}, []string{"26-01"}},
	}
	for _, tt := range tests {
		checkRegex(t, tt.pattern, tt.yes, tt.no)
	}
}

// Repeats beyond RE2's 1000 are written out and must keep their meaning, laziness included.
func TestRegexLargeRepeats(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	checkRegex(t, "^a{1001}$", []string{a(1001)}, []string{a(1000), a(1002), ""})
	checkRegex(t, "^a{1001}?$", []string{a(1001)}, []string{a(1000), ""})
	checkRegex(t, "^a{999,1001}$", []string{a(999), a(1001)}, []string{a(998), a(1002)})
	checkRegex(t, "^a{0,1500}$", []string{"", a(1500)}, []string{a(1501)})
	checkRegex(t, "^a{1500,}$", []string{a(1500), a(4000)}, []string{a(1499), ""})
	checkRegex(t, "^a{1500,}?$", []string{a(1500)}, []string{a(1499), ""})
	checkRegex(t, "^(?:ab){1001}c{1001}$", []string{strings.Repeat("ab", 1001) + strings.Repeat("c", 1001)}, []string{"abc", a(1001)})
	checkRegex(t, "^[ab]{2000}$", []string{strings.Repeat("ab", 1000)}, []string{a(1999)})
}

func checkRegex(t *testing.T, pattern string, yes, no []string) {
	t.Helper()
	re, err := compileRegex(pattern)
	if err != nil {
		t.Errorf("compileRegex(%q): %v", pattern, err)
		return
	}
	for _, s := range yes {
		if !re.MatchString(s) {
			t.Errorf("%q does not match %.40q (%d bytes), JavaScript does", pattern, s, len(s))
		}
	}
	for _, s := range no {
		if re.MatchString(s) {
			t.Errorf("%q matches %.40q (%d bytes), JavaScript does not", pattern, s, len(s))
		}
	}
}

const (
	scanNested  = "puts an unbounded quantifier on a group that holds one"
	scanOverlap = "repeats an overlapping alternation"
)

// The scan serves one purpose, that files load alike, so its holes are kept. The rows with an id are of the shared
// vectors (units.json, regexSafety).
func TestRegexStructuralScan(t *testing.T) {
	tests := []struct{ id, pattern, want string }{
		{"regexSafety-0", "(a+)+", scanNested},
		{"regexSafety-1", "(ab*)+", scanNested},
		{"regexSafety-3", "(a{2,})+", scanNested},
		{"regexSafety-4", `(\w+\s?)+`, scanNested},
		{"regexSafety-5", "(a|aa)+", scanOverlap},
		{"regexSafety-9", "(a+)?b*", ""},
		{"regexSafety-11", "((a+){2})+", ""},
		{"regexSafety-13", "(?:x|a|aa)+", scanOverlap},
		{"regexSafety-15", "(?=a+)b", ""},
		{"regexSafety-18", "(a+){2,}", scanNested},
		{"regexSafety-20", "(a|aa)?", ""},
		{"regexSafety-21", "([a+]+)", ""},
		{"regexSafety-22", "([a-z]+)*", scanNested},
		{"regexSafety-24", "(a|a)*", scanOverlap},
		{"regexSafety-25", "(a||b)+", ""},
		{"regexSafety-26", "(|a)+", ""},
		{"regexSafety-29", "(a(b|bc)+)*", scanOverlap},
		{"regexSafety-30", "(a(b|bc))*", ""},
		{"regexSafety-31", ".*.*.*", ""},
		{"regexSafety-32", "(.*)(.*)", ""},
		{"regexSafety-34", "^(([a-z])+.)+[A-Z]([a-z])+$", scanNested},
		{"regexSafety-35", "(a|b|ab)*c", scanOverlap},
		// Holes of the original, in the words of dialects.md 1.3.
		{"hole: a bounded quantifier hides the inner one", "((a+)?)+", ""},
		{"hole: the ?: makes the first branch no text", "(?:a|aa)+", ""},
		{"hole: escapes are no text", `(\d|\d\d)+`, ""},
		// The walk itself.
		{"the mark passes an unquantified group", "((a+))+", scanNested},
		{"the mark passes an unbounded group", "((a)*b)+", scanNested},
		{"a bounded outer quantifier", "(a+){3}", ""},
		{"an optional outer quantifier", "(a+)?", ""},
		{"lazy quantifiers are unbounded too", "(a+?)+?", scanNested},
		{"an escaped star is text", `(a\*)+`, ""},
		{"an escaped parenthesis opens nothing", `\((a+)\)+`, ""},
		{"a class hides its content", "([(+]a)+", ""},
		{"a class ends at the first unescaped bracket", `([\]+]a)+`, ""},
		{"branches of the top level only", "((a|b)c|a)+", ""},
		{"no repeat, no overlap", "(a|aa)", ""},
		{"equal branches of any length", "(abc|x|abc)+", scanOverlap},
		{"the longer branch first", "(abc|ab)+", scanOverlap},
		{"neither is a prefix", "(ab|ac)+", ""},
		{"a stray parenthesis is none of its business", "a)+b+", ""},
		{"CFG-28 catastrophic", "(a+)+$", scanNested},
		{"CFG-28 bounded", "(.*){1,32}", ""},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			got := ""
			if err := scanStructure(tt.pattern); err != nil {
				got = err.Error()
			}
			if !strings.HasSuffix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("scanStructure(%q) = %q, want %q", tt.pattern, got, tt.want)
			}
		})
	}
}

// Syntax is judged before structure, so that a broken pattern is called broken.
func TestRegexSyntaxBeforeStructure(t *testing.T) {
	_, err := compileRegex("(a+)+(")
	if err == nil || !strings.Contains(err.Error(), "not a valid regular expression: an unclosed group") {
		t.Errorf("error = %v, want one about syntax", err)
	}
}

// CFG-28: what loads is matched in time linear in the text, also what a backtracking engine would never come back from.
func TestRegexIsLinear(t *testing.T) {
	a := strings.Repeat("a", 10_000)
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"((a+)?)+$", a + "b\n!", true}, // empty, at the end
		{"^((a+)?)+$", a + "!", false},
		{"^(?:a|aa)+$", a + "!", false},
		{"^(?:a|aa)+$", a, true},
		{"^(.*){1,32}$", a + "\n", false},
		{"^(a?){100}a{100}$", a[:100], true},
		{"^(a?){100}a{100}$", a[:99], false},
	}
	for _, tt := range tests {
		re, err := compileRegex(tt.pattern)
		if err != nil {
			t.Errorf("compileRegex(%q): %v", tt.pattern, err)
		} else if got := re.MatchString(tt.text); got != tt.want {
			t.Errorf("%q on %d bytes = %v, want %v", tt.pattern, len(tt.text), got, tt.want)
		}
	}
}
