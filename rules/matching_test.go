package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules/work"
)

// TestRegexWork: a text is matched whole, or the call is refused; never is it cut, and never does a rule just not match.
func TestRegexWork(t *testing.T) {
	rule := func(pattern string) *Ruleset {
		doc, err := Parse("f.yaml", fmt.Appendf(nil, "rules:\n- match: { params: { x: %q } }\n  action: deny\n  reason: r\n", pattern), Options{Regex: true})
		if err != nil {
			t.Fatal(err)
		}
		return NewRuleset(doc.Rules)
	}
	long := strings.Repeat("a", 1<<20)
	for _, tt := range []struct {
		name, pattern, value string
		want                 string // deny, pass or error
	}{
		{"large pattern, short text", "(?:[ab][bc]){900}", strings.Repeat("a", 4000), "error"},
		{"large pattern, tiny text", "^(?:[ab]c){900}$", "b", "pass"},
		{"small pattern, long text", "a[bc]", long[:1<<17], "pass"},
		{"small pattern, end of a long text", "a[bc]$", long[:1<<16] + "c", "deny"},
		{"pattern and text too large", "(?:[ab]){900}$", long, "error"},
		{"ten atoms, 1 MiB", "[ab][bc][ab][ab][ab][ab][ab][ab][ab][ab]$", long, "error"},
		{"a literal that is not there", "(?:[ab]){900}secret", long, "pass"},
		{"a literal that is there", "^a*secret", "aaasecret", "deny"},
	} {
		v, err := rule(tt.pattern).Match(Call{Tool: "x", Args: jsonOf("x", tt.value)})
		got := "pass"
		switch {
		case errors.Is(err, ErrTooMuch):
			got = "error"
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case v.Matched && v.Action == netrule.Deny:
			got = "deny"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestWorkIsShared: many rules that are cheap alone use one budget, wherever they look.
func TestWorkIsShared(t *testing.T) {
	long := strings.Repeat("a", 1<<16)
	for name, match := range map[string]string{
		"params": "params: { x: '*a*a%d' }", "tools": "tools: ['*a*a%d']", "agents": "agents: ['*a*a%d']", "paths": "paths: ['**/a*%d']",
		"command": "argv: { command: ['*a*a%d'] }", "args": "argv: { args: ['*a*a%d'] }", "pipeline": "argv: { pipeline: ['*a*a%d'] }",
	} {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range 5000 {
			fmt.Fprintf(&text, "- match: { %s }\n  action: deny\n  reason: r\n", fmt.Sprintf(match, i))
		}
		doc, err := Parse("f.yaml", []byte(text.String()), Options{MaxRules: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		args := fmt.Appendf(nil, `{"x": %q, "path": %q, "command": "%s %s"}`, long, long, long, long)
		if _, err := NewRuleset(doc.Rules).Match(Call{Tool: long, Agents: []string{long}, Args: args, Workspace: "/ws"}); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: %v, want %v", name, err, ErrTooMuch)
		}
	}
}

// TestNoWork: what is matched with no budget at all matches nothing.
func TestNoWork(t *testing.T) {
	doc, err := Parse("f.yaml", []byte("rules:\n- match: { params: { x: ['*', a] } }\n  action: deny\n  reason: r\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range doc.Rules[0].Match.Params[0].Patterns {
		p := &doc.Rules[0].Match.Params[0].Patterns[i]
		if p.within("a", nil) || p.within("a", new(work.Budget)) || !p.within("a", work.New(1000)) {
			t.Errorf("pattern %q", p.Text)
		}
	}
}

// FuzzLexicalTokens: whatever operators and quotes a text has, each token that the lexical view gives to deny rules is in
// the views of the shell too, as long as nothing is expanded.
func FuzzLexicalTokens(f *testing.F) {
	for _, s := range []string{"rm -rf /", "a | b && c; d", "sudo env A=1 b c", "a 'b c' \"d e\" >f 2>g", "a b\nc d", "a || b & c", "timeout 1 a b", "x 'y' z\"w\"", "a <<E\nb c\nE\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\x00$`\\(){}#[]~*?!\r\ufffd") {
			return
		}
		if strings.Contains(text, "<<-") || strings.Contains(text, "<<") && strings.ContainsAny(text, `'"`) {
			return // to the lexical view the body of a here-document has quotes, and the dash belongs to its end mark
		}
		facts, err := newFacts(&Call{Tool: "bash", Args: jsonOf("command", text)})
		if err != nil {
			t.Skip()
		}
		v := facts.shellViews()
		if v.tooMuch || len(facts.commandTexts()) == 0 {
			return // refused
		}
		seen := slices.Clone(v.words)
		for i := range v.commands {
			c := &v.commands[i]
			seen = append(append(seen, c.word), c.tokens()...)
		}
		for _, c := range splitLexically(facts.commandTexts()[0].text) {
			leads := true // nothing but what the shell keeps to itself has come
			for _, token := range append([]string{c.word}, c.tokens()...) {
				if leads = leads && (token == "--" || isShellSyntax(token)); leads {
					continue // the word time keeps its --, and no program has that name
				}
				if token != "" && !slices.Contains(seen, token) && !isShellSyntax(token) {
					t.Fatalf("%q: %q is lost, there is %q", text, token, seen)
				}
			}
		}
	})
}

// isShellSyntax reports what a shell keeps to itself, or reads with what stands beside it.
func isShellSyntax(token string) bool {
	return isOneOf(token, " if then elif else fi for in do done while until case esac select function time coproc -p ") || strings.ContainsAny(token, "=")
}
