package glob

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern string
		opts    Options
		yes, no []string
	}{
		{"*", Options{}, []string{"", "a", "a/b", "a\nb"}, nil},
		{"rm -rf*", Options{}, []string{"rm -rf", "rm -rf /\n"}, []string{" rm -rf"}},
		{"*.example.com", Options{Fold: true}, []string{"A.Example.com", ".example.com", "a.b.example.com"}, []string{"example.com", "a.example.com."}},
		{"a?c", Options{}, []string{"abc", "a\nc", "aéc"}, []string{"ac", "abbc"}},
		{"[a-c]x", Options{}, []string{"ax", "cx"}, []string{"dx", "x"}},
		{"[!a]", Options{}, []string{"b", "\n"}, []string{"a", ""}},
		{"[^a]", Options{}, []string{"b"}, []string{"a"}},
		{`\*`, Options{}, []string{"*"}, []string{"a"}},
		{`[\]`, Options{}, []string{`\`}, []string{"]"}},
		{"K", Options{Fold: true}, []string{"k", "K", "\u212a"}, []string{"c"}},
		{"[k]", Options{Fold: true}, []string{"K", "\u212a"}, nil},
		{"a*b*", Options{}, []string{"ab", "axbx", "aabb"}, []string{"a", "ba"}},
		{"*", Options{Segments: true}, []string{"", "a", "\n"}, []string{"a/b", "/"}},
		{"**", Options{Segments: true}, []string{"", "a/b/c"}, nil},
		{"**/a", Options{Segments: true}, []string{"a", "x/a", "xa", "x/ya"}, []string{"a/b"}},
		{"a/**", Options{Segments: true}, []string{"a/", "a/b/c"}, []string{"a"}},
		{"**/secrets/**", Options{Segments: true}, []string{"secrets/k", "notsecrets/k", "a/secrets/b/c"}, []string{"secrets"}},
		{"src/*/x", Options{Segments: true}, []string{"src/a/x"}, []string{"src/a/b/x", "src/x"}},
		{"?", Options{Segments: true}, []string{"a", "\n", "😀"}, []string{"/", ""}},
		{"[!a]", Options{Segments: true}, []string{"b"}, []string{"/", "a"}},
	}
	for _, tt := range tests {
		g, err := Compile(tt.pattern, tt.opts)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.pattern, err)
			continue
		}
		for _, s := range tt.yes {
			if !g.Match(s) {
				t.Errorf("%q %+v does not match %q", tt.pattern, tt.opts, s)
			}
		}
		for _, s := range tt.no {
			if g.Match(s) {
				t.Errorf("%q %+v matches %q", tt.pattern, tt.opts, s)
			}
		}
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct {
		pattern string
		opts    Options
		want    string
	}{
		{"a[b", Options{}, `glob "a[b" has an unbalanced "["`},
		{"a]b", Options{}, `glob "a]b" has an unbalanced "]"`},
		{"[]a]", Options{}, `glob "[]a]" has an empty character class`},
		{"[!]", Options{}, `glob "[!]" has an empty character class`},
		{"t[9-0]", Options{}, `glob "t[9-0]" has a reversed range 9-0 in a character class`},
		{`a\`, Options{}, `glob "a\\" ends in a dangling escape`},
		{"*a*b*", Options{}, `glob "*a*b*" has 3 unbounded star quantifiers (max 2)`},
		{"*a*", Options{MaxStars: 1}, `glob "*a*" has 2 unbounded star quantifiers (max 1)`},
	}
	for _, tt := range tests {
		_, err := Compile(tt.pattern, tt.opts)
		var ge *Error
		if !errors.As(err, &ge) || err.Error() != tt.want {
			t.Errorf("Compile(%q) error = %v, want %s", tt.pattern, err, tt.want)
		}
	}
	if _, err := Compile("*a*b*", Options{MaxStars: -1}); err != nil {
		t.Errorf("no cap: %v", err)
	}
	if _, err := Compile(strings.Repeat("a", MaxPattern+1), Options{}); err == nil {
		t.Error("an overlong pattern compiles")
	}
}

// reference is the definition, by backtracking.
func reference(g *Glob, tokens []token, text string) bool {
	if len(tokens) == 0 {
		return text == ""
	}
	t := &tokens[0]
	if t.isStar() {
		if reference(g, tokens[1:], text) {
			return true
		}
		r, size := utf8.DecodeRuneInString(text)
		return text != "" && (t.kind == deepStar || !g.segments || r != '/') && reference(g, tokens, text[size:])
	}
	r, size := utf8.DecodeRuneInString(text)
	return text != "" && t.one(g, r) && reference(g, tokens[1:], text[size:])
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"*", "**/a*b", "[a-c]?*", `\*a`, "a**b", "*a*b*c*"} {
		f.Add(s, "a/b/ab", true, false)
		f.Add(s, "abc*ab", false, true)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, segments, fold bool) {
		if len(pattern) > 24 || len(text) > 24 {
			return
		}
		g, err := Compile(pattern, Options{Segments: segments, Fold: fold, MaxStars: 4})
		if err != nil {
			return
		}
		if got, want := g.Match(text), reference(g, g.tokens, text); got != want {
			t.Fatalf("%q segments=%v fold=%v on %q: Match %v, reference %v", pattern, segments, fold, text, got, want)
		}
	})
}

func TestMatchLongPattern(t *testing.T) {
	g, err := Compile(strings.Repeat("ab/", 100)+"**", Options{Segments: true})
	if err != nil {
		t.Fatal(err)
	}
	if !g.Match(strings.Repeat("ab/", 120)) || g.Match(strings.Repeat("ab/", 99)) {
		t.Error("a pattern of over 64 tokens matches wrongly")
	}
}

func BenchmarkMatchHostile(b *testing.B) {
	g, err := Compile("*a*a*b", Options{Segments: true, MaxStars: 3})
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("a", 1<<16)
	for b.Loop() {
		g.Match(text)
	}
}
