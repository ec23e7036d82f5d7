package rules

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"dshproxy/netrule/glob"
)

var update = flag.Bool("update", false, "rewrite the golden errors beside testdata/rules/bad")

const badDir = "../testdata/rules/bad"

// attacks gives the row of the attack catalogue that a file of badDir stands for.
var attacks = map[string]string{
	"alias-bomb":              "CFG-01",
	"nested-too-deep":         "CFG-02",
	"duplicate-rules":         "CFG-04",
	"duplicate-key":           "CFG-04",
	"duplicate-key-number":    "CFG-04",
	"root-unknown-key":        "CFG-05",
	"root-unknown-key-far":    "CFG-05",
	"second-document":         "CFG-06",
	"second-document-broken":  "CFG-06",
	"action-no":               "CFG-10",
	"enabled-off":             "CFG-10",
	"domain-null":             "CFG-10",
	"nul-byte":                "CFG-11",
	"nul-escape":              "CFG-11",
	"action-newline":          "CFG-11",
	"domain-newline":          "CFG-11",
	"utf16":                   "CFG-12",
	"not-utf8":                "CFG-12",
	"tab-indent":              "CFG-12",
	"tab-indent-key":          "CFG-12",
	"merge-key":               "CFG-13",
	"tag-binary":              "CFG-13",
	"tag-of-a-pattern":        "CFG-13",
	"regex-nested-quantifier": "CFG-28",
	"regex-overlap":           "CFG-28",
	"port-range-reversed":     "CFG-32",
	"port-negative":           "CFG-32",
	"port-70000":              "CFG-32",
	"port-0":                  "CFG-32",
	"domain-template":         "CFG-38",
	"domain-scheme":           "HST-29",
	"domain-port":             "HST-29",
	"domain-path":             "HST-29",
}

// TestBadFiles: each file has one fault, and beside it stands the exact error. Files named regex-… are read with
// patternMode regex.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(badDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	t.Setenv("HOST", "evil") // CFG-38: must not show anywhere
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(filepath.Join(attacks[name], name), func(t *testing.T) {
			checkBadFile(t, file, Options{Regex: strings.HasPrefix(name, "regex-")})
		})
	}
}

func checkBadFile(t *testing.T, file string, opts Options) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := errorText(t, filepath.Base(file), text, opts)
	golden := strings.TrimSuffix(file, ".yaml") + ".err"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// errorText is the error of a file in the form of the goldens: an error line, and a hint line if there is a hint.
func errorText(t *testing.T, name string, text []byte, opts Options) string {
	t.Helper()
	doc, err := Parse(name, text, opts)
	if err == nil {
		t.Fatalf("%s loads: %s", name, describeAll(doc.Rules))
	}
	if doc != nil {
		t.Errorf("%s: a document comes with the error", name)
	}
	var pe *ParseError
	if !errors.As(err, &pe) || pe.File != name {
		t.Fatalf("%s: error %T %v does not name the file", name, err, err)
	}
	out := "error: " + err.Error() + "\n"
	if pe.Hint != "" {
		out += "hint: " + pe.Hint + "\n"
	}
	return out
}

// Every golden has its file, and every row of attacks too: a renamed file must not leave a claim behind.
func TestBadFilesAreComplete(t *testing.T) {
	goldens, err := filepath.Glob(filepath.Join(badDir, "*.err"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, g := range goldens {
		names = append(names, strings.TrimSuffix(filepath.Base(g), ".err"))
	}
	for name := range attacks {
		names = append(names, name)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(badDir, name+".yaml")); err != nil {
			t.Errorf("%s.yaml is missing", name)
		}
	}
}

// Files too large to keep.
func TestBadFilesMadeHere(t *testing.T) {
	rule := "  - {action: deny, reason: here}\n"
	tests := []struct {
		name, text string
		opts       Options
		want       string
	}{
		{"CFG-02/open brackets", "rules: " + strings.Repeat("[", 100_000), Options{}, "f.yaml: invalid YAML: exceeded max depth of 10000"},
		{"CFG-02/open braces", strings.Repeat("{", 100_000), Options{}, "f.yaml: invalid YAML: exceeded max depth of 10000"},
		{"CFG-03/nested maps", "rules:\n" + strings.Repeat("- {a: {b: {c: d}}}\n", 37_000), Options{}, "f.yaml:36573:3: the document has too many nodes (aliases count each time)"},
		{"CFG-37/rules", "rules:\n" + strings.Repeat(rule, 52_000), Options{}, "f.yaml:51201:14: the document has too many nodes (aliases count each time)"},
		{"CFG-37/nodes grow with maxRules", "rules:\n" + strings.Repeat(rule, 300), Options{MaxRules: 1}, "f.yaml:201:14: the document has too many nodes (aliases count each time)"},
		{
			"a long glob", "rules:\n  - {action: deny, reason: here, match: {tools: [" + strings.Repeat("a", 4097) + "]}}",
			Options{},
			"f.yaml:2:50: rule 1.match.tools[0]: the glob is longer than 4096 bytes",
		},
		{
			"a long regular expression", "rules:\n  - {action: deny, reason: here, match: {params: {a: " + strings.Repeat("a", 4097) + "}}}",
			Options{Regex: true},
			"f.yaml:2:54: rule 1.match.params.a: a regular expression of over 4096 bytes",
		},
		{
			"a long name", "rules:\n  - {action: deny, reason: here, match: {network: {domains: [" + strings.Repeat("a.", 127) + "b]}}}",
			Options{},
			"f.yaml:2:62: rule 1.match.network.domains[0]: no host can match it: a name of over 253 bytes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, _ := strings.Cut(errorText(t, "f.yaml", []byte(tt.text), tt.opts), "\n")
			if got != "error: "+tt.want {
				t.Errorf("got:  %s\nwant: error: %s", got, tt.want)
			}
		})
	}
}

// CFG-14: inputs that have brought YAML parsers down. Parse must answer, whatever it answers.
func TestParseSurvives(t *testing.T) {
	for _, text := range []string{
		"0: [:!00 \xef", "0: [:!00 ", "#\n - C\nD:\n", "a: &a [*a]", "*a", "&a *a", "? ? ?", "- - - -\n -", "{{{{", "]", "!!", "!<", "%", "...", "---\n...\n---",
		"rules: &a {<<: *a}", "? &k a\n: *k", "*k : v", "&k ? *k\n", "\ufeff", "\r", "\x85", "\u0085", "\u2028", "|", ">-\n", "\"\\", "'", "rules: |\n\t",
	} {
		t.Run("CFG-14/"+fmt.Sprintf("%.12q", text), func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(text), Options{})
			var pe *ParseError
			if err != nil && (!errors.As(err, &pe) || pe.File == "") {
				t.Errorf("Parse(%q) error = %#v, want a *ParseError with a file", text, err)
			}
		})
	}
}

// What a YAML 1.1 parser takes for a line end is none in YAML 1.2, and in most editors: nothing may hide in a comment.
func TestParseLineSeparatorsHideNothing(t *testing.T) {
	for _, sep := range []string{"\u0085", "\u2028", "\u2029"} {
		t.Run("CFG-13/"+fmt.Sprintf("%+q", sep), func(t *testing.T) {
			text := "# a comment" + sep + "rules: [{action: allow, reason: hidden}]\n"
			doc, err := Parse("f.yaml", []byte(text), Options{})
			if err == nil && len(doc.Rules) > 0 {
				t.Errorf("%q gives %s, want an error or no rules: it is a comment", text, describeAll(doc.Rules))
			}
			text = "# a comment" + sep + "%TAG !! tag:example.com,2026:\n---\nrules: []\n"
			if _, err := Parse("f.yaml", []byte(text), Options{}); err != nil && !strings.Contains(err.Error(), "directive") && !strings.Contains(err.Error(), "line") {
				t.Errorf("%q: error %v, want none, or one about the directive or the character", text, err)
			}
		})
	}
}

// CFG-12: a tab is the commonest mistake of those who do not know YAML; the error says what to do.
func TestParseTabHint(t *testing.T) {
	for _, text := range []string{"rules:\n\t- action: deny\n", "rules:\n  - action: deny\n\treason: here\n"} {
		_, err := Parse("f.yaml", []byte(text), Options{})
		var pe *ParseError
		if !errors.As(err, &pe) || pe.Hint != "indent with spaces, not tabs" {
			t.Errorf("CFG-12: Parse(%q) error = %v, hint %q, want the hint about tabs", text, err, pe.Hint)
		}
	}
}

// Errors give positions and key names, never values: whoever reads the log need not be allowed to read the file.
func TestErrorsHoldNoValues(t *testing.T) {
	const secret = "hunter2"
	tests := []struct{ name, text string }{
		{"document", secret},
		{"rules", "rules: " + secret},
		{"rule", "rules: [" + secret + "]"},
		{"action", "rules: [{action: " + secret + "}]"},
		{"reason", "rules: [{action: deny, reason: [" + secret + "]}]"},
		{"enabled", "rules: [{action: deny, reason: r, enabled: " + secret + "}]"},
		{"match", "rules: [{action: deny, reason: r, match: " + secret + "}]"},
		{"tool glob", "rules: [{action: deny, reason: r, match: {tools: ['" + secret + "[']}}]"},
		{"param glob", "rules: [{action: deny, reason: r, match: {params: {a: '" + secret + "['}}}]"},
		{"absolute path", "rules: [{action: deny, reason: r, match: {paths: /" + secret + "}}]"},
		{"platform", "rules: [{action: deny, reason: r, match: {when: {platform: " + secret + "}}}]"},
		{"domain", "rules: [{action: deny, reason: r, match: {network: {domains: " + secret + "/}}}]"},
		{"domain glob", "rules: [{action: deny, reason: r, match: {network: {domains: '" + secret + "*['}}}]"},
		{"ip", "rules: [{action: deny, reason: r, match: {network: {ips: " + secret + "}}}]"},
		{"port", "rules: [{action: deny, reason: r, match: {network: {ports: " + secret + "}}}]"},
		{"scheme", "rules: [{action: deny, reason: r, match: {network: {schemes: " + secret + "}}}]"},
		{"tag", "rules: [{action: !" + secret + " deny}]"},
		{"escape", "rules: [{action: \"" + secret + "\\q\"}]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := errorText(t, "f.yaml", []byte(tt.text), Options{}); strings.Contains(got, secret) {
				t.Errorf("the error shows a value of the file:\n%s", got)
			}
		})
	}
	t.Run("regular expression", func(t *testing.T) {
		text := "rules: [{action: deny, reason: r, match: {params: {a: '" + secret + "('}}}]"
		if got := errorText(t, "f.yaml", []byte(text), Options{Regex: true}); strings.Contains(got, secret) {
			t.Errorf("the error shows a value of the file:\n%s", got)
		}
	})
}

// With two faults, the one that the original would report comes first.
func TestParseOrderOfChecks(t *testing.T) {
	tests := []struct{ rule, want string }{
		{"{acton: deny, action: maybe}", "unknown field"},
		{"{reason: '', action: maybe}", "rule 1.action"},
		{"{enabled: 1, reason: '', action: deny}", "rule 1.reason"},
		{"{description: '', enabled: 1, reason: r, action: deny}", "rule 1.enabled"},
		{"{match: 1, description: '', reason: r, action: deny}", "rule 1.description"},
		{"{tags: 1, match: 1, reason: r, action: deny}", "rule 1.match"},
		{"{tags: 1, reason: r, action: deny}", "rule 1.tags"},
	}
	for _, tt := range tests {
		_, err := Parse("f.yaml", []byte("rules: ["+tt.rule+"]"), Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %v, want one about %s", tt.rule, err, tt.want)
		}
	}
}

func TestParseGood(t *testing.T) {
	const one = `deny "here" network=[domains a.example]`
	lf := "rules:\n  - match:\n      network: {domains: [a.example]}\n    action: deny\n    reason: here\n"
	tests := []struct {
		name, text string
		want       string // of the rules, one a line
	}{
		{"LF", lf, one},
		{"CRLF", strings.ReplaceAll(lf, "\n", "\r\n"), one},
		{"CR only", strings.ReplaceAll(lf, "\n", "\r"), one},
		{"a stray CR is deleted", strings.Replace(lf, "here", "he\rre", 1), one},
		{"a stray CR in a CRLF file", strings.Replace(strings.ReplaceAll(lf, "\n", "\r\n"), "here", "he\rre", 1), one},
		{"CFG-12/BOM", "\ufeff" + lf, one},
		{"CFG-12/BOM and CRLF", "\ufeff" + strings.ReplaceAll(lf, "\n", "\r\n"), one},
		{"no line end at the end", strings.TrimSuffix(lf, "\n"), one},
		{"document markers", "---\n" + lf + "...\n", one},
		{"JSON", `{"rules": [{"match": {"network": {"domains": ["a.example"]}}, "action": "deny", "reason": "here"}]}`, one},
		{"JSON with tabs", "{\n\t\"rules\": [\n\t\t{\"match\": {\"network\": {\"domains\": [\"a.example\"]}}, \"action\": \"deny\", \"reason\": \"here\"}\n\t]\n}", one},
		{"comments", "# head\n" + strings.ReplaceAll(lf, "\n", " # c\n") + "# end\n", one},
		{"a directive in a comment", "# %YAML 1.1\n" + lf, one},
		{"CFG-13/aliases resolve", "rules:\n  - match: &m {network: {domains: &d [a.example]}}\n    action: deny\n    reason: &r here\n" +
			"  - match: *m\n    action: deny\n    reason: *r\n  - match: {network: {domains: *d}}\n    action: deny\n    reason: *r\n", one + "\n" + one + "\n" + one},
		{"an alias as a key", "rules:\n  - &r reason: here\n    action: deny\n    match: {tools: &t [bash], agents: *t}\n", `deny "here" tools=[bash] agents=[bash]`},
		{"core tags", "rules: !!seq\n  - !!map\n    action: !!str deny\n    reason: !!str 403\n    enabled: !!bool false\n", `deny "403" disabled`},
		{"every field", "rules:\n  - match: {}\n    action: ask\n    reason: ' why '\n    enabled: false\n    description: what\n    tags: [a, b]\n", `ask " why " disabled description="what" tags=[a b]`},
		{
			"bare strings", "rules:\n  - match: {tools: bash, agents: main, paths: src/*, absent: force, when: {platform: linux, env: {CI: 1}}}\n    action: allow\n    reason: r\n    tags: t\n",
			`allow "r" tags=[t] tools=[bash] agents=[main] paths=[src/*] absent=[force] when.env=[CI 1] when.platform=[linux]`,
		},
		{
			"bare patterns", "rules:\n  - match: {params: {a: x, b: 1, c: true, d: ''}, argv: {command: rm, args: -rf, anyArg: 9, pipeline: 'a|b'}}\n    action: deny\n    reason: r\n",
			`deny "r" params=[a x b 1 c true d ] argv.command=[rm] argv.pipeline=[a|b] argv.args=[-rf] argv.anyArg=[9]`,
		},
		{"no match", "rules: [{action: deny, reason: all}]", `deny "all"`},
		{"empty dimensions", "rules: [{action: deny, reason: all, match: {tools: [], agents: [], params: {}, paths: [], absent: [], when: {env: {}, platform: []}}, tags: []}]", `deny "all"`},
		{
			"an empty dimension beside another in argv and network", "rules: [{action: deny, reason: r, match: {argv: {command: [], args: [x]}, network: {domains: [], ports: [80]}}}]",
			`deny "r" argv.args=[x] network=[ports 80]`,
		},
		{
			"every network field", "rules: [{action: allow, reason: r, match: {network: {schemes: https, ports: [443, 8000-9000, '*'], ips: [10.0.0.0/8, '::1', 10.0.*.*], domains: [=a.example, .b.example, '*']}}}]",
			`allow "r" network=[domains =a.example domains .b.example domains * ips 10.0.0.0/8 ips ::1 ips 10.0.*.* ports 443 ports 8000-9000 ports * schemes https]`,
		},
		{"CFG-32/a whole range loads", "rules: [{action: deny, reason: r, match: {network: {ports: [0-65535, 0080]}}}]", `deny "r" network=[ports 0-65535 ports 80]`},
		{"CFG-10/names that YAML 1.1 takes for booleans", "rules: [{action: deny, reason: no, match: {network: {domains: [no, on, y]}}}]", `deny "no" network=[domains no domains on domains y]`},
		{"CFG-38/nothing is expanded", "rules: [{action: deny, reason: '${HOME}', match: {tools: ['$HOME', '{{x}}']}}]", `deny "${HOME}" tools=[$HOME {{x}}]`},
		{"braces are literal", "rules: [{action: deny, reason: r, match: {tools: ['{a,b}']}}]", `deny "r" tools=[{a,b}]`},
		{"block scalars", "rules:\n  - action: >-\n      deny\n    reason: |\n      first\n      second\n", `deny "first\nsecond\n"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := Parse("f.yaml", []byte(tt.text), Options{})
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.text, err)
			}
			if got := describeAll(doc.Rules); got != tt.want || !doc.HasRules || doc.File != "f.yaml" {
				t.Errorf("Parse(%q)\ngot:  %s\nwant: %s", tt.text, got, tt.want)
			}
		})
	}
}

// An empty file and an empty list are not the same: a reload takes only the second.
func TestParseWithoutRules(t *testing.T) {
	tests := []struct {
		text string
		want bool // HasRules
	}{
		{"", false},
		{"\n", false},
		{"# a comment\n", false},
		{"---\n", false},
		{"~", false},
		{"null\n", false},
		{"{}", false},
		{"\ufeff", false},
		{"rules: []", true},
		{"rules:\n  []\n", true},
		{`{"rules": []}`, true},
	}
	for _, tt := range tests {
		doc, err := Parse("f.yaml", []byte(tt.text), Options{})
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.text, err)
		} else if doc.HasRules != tt.want || len(doc.Rules) != 0 {
			t.Errorf("Parse(%q) = HasRules %v, %d rules, want %v and none", tt.text, doc.HasRules, len(doc.Rules), tt.want)
		}
	}
}

// Scalars are read by the YAML 1.2 core schema and printed as JavaScript prints them.
func TestParseScalars(t *testing.T) {
	tests := []struct{ scalar, want string }{
		{"012", "12"},
		{"0o14", "12"},
		{"0x1F", "31"},
		{"1.0", "1"},
		{"1.10", "1.1"},
		{".5", "0.5"},
		{"5.", "5"},
		{"+1", "1"},
		{"-0", "0"},
		{"-7", "-7"},
		{"1e3", "1000"},
		{"1E-2", "0.01"},
		{"1e21", "1e+21"},
		{"1e20", "100000000000000000000"},
		{"1e-7", "1e-7"},
		{"0.000001", "0.000001"},
		{"-1.5e300", "-1.5e+300"},
		{"9007199254740993", "9007199254740992"},
		{"0xFFFFFFFFFFFFFFFFFF", "4.722366482869645e+21"},
		{"1e999", "Infinity"},
		{"-1e999", "-Infinity"},
		{".inf", "Infinity"},
		{"-.Inf", "-Infinity"},
		{"+.INF", "Infinity"},
		{".nan", "NaN"},
		{".NaN", "NaN"},
		{"true", "true"},
		{"True", "true"},
		{"TRUE", "true"},
		{"False", "false"},
		{"tRue", "tRue"},
		{"yes", "yes"},
		{"no", "no"},
		{"on", "on"},
		{"off", "off"},
		{"y", "y"},
		{"n", "n"},
		{"1_000", "1_000"},
		{"2024-01-02", "2024-01-02"},
		{"12:30:45", "12:30:45"},
		{"0b11", "0b11"},
		{"-0x1F", "-0x1F"},
		{"0X1F", "0X1F"},
		{"1e", "1e"},
		{".", "."},
		{"'012'", "012"},
		{`"1.0"`, "1.0"},
		{"'true'", "true"},
		{`"\u0041\n"`, "A\n"},
		{"nUll", "nUll"},
		{"'~'", "~"},
		{"<<", "<<"},
		{"!!str 012", "012"},
	}
	for _, tt := range tests {
		doc, err := Parse("f.yaml", []byte("rules:\n  - action: deny\n    reason: r\n    match:\n      params:\n        a: "+tt.scalar+"\n"), Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.scalar, err)
		} else if got := doc.Rules[0].Match.Params[0].Patterns[0].Text; got != tt.want {
			t.Errorf("%s is read as %q, want %q", tt.scalar, got, tt.want)
		}
	}
}

// Keys that are no strings become what they print as; << is an ordinary one.
func TestParseKeys(t *testing.T) {
	doc, err := Parse("f.yaml", []byte("rules: [{action: deny, reason: r, match: {params: {1: a, 012: b, true: c, yes: d, <<: e, '': f}}}]"), Options{})
	if err == nil {
		t.Fatalf("an empty key loads: %s", describeAll(doc.Rules))
	}
	doc, err = Parse("f.yaml", []byte("rules: [{action: deny, reason: r, match: {params: {1: a, 013: b, True: c, yes: d, <<: e}}}]"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describeAll(doc.Rules), `deny "r" params=[1 a 13 b true c yes d << e]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParsePositions(t *testing.T) {
	text := "\ufeff# é\r\nrules:\r\n- action: deny\r\n  reason: r\r\n  match: {network: {domains: [é.example, &x b.example], ports: 443}}\r\n" +
		"-   action: allow\r\n    reason: r\r\n    match:\r\n      network:\r\n        domains:\r\n        - *x\r\n"
	doc, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range doc.Rules {
		got = append(got, fmt.Sprintf("%s:%d:%d", r.File, r.Line, r.Col))
		for _, p := range r.Match.Network.Positions {
			got = append(got, fmt.Sprintf("%s %s %d:%d", p.Field, p.Text, p.Line, p.Col))
		}
	}
	want := []string{"f.yaml:3:3", "domains é.example 5:31", "domains b.example 5:42", "ports 443 5:64", "f.yaml:6:5", "domains b.example 11:11"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("positions\ngot:  %q\nwant: %q", got, want)
	}
}

// A "!" negates in params and argv words only, and once.
func TestParseNegation(t *testing.T) {
	tests := []struct {
		pattern string
		negate  bool
		matches string
	}{
		{"!git*", true, "git push"}, {"!!x", true, "!x"}, {`\!x`, false, "!x"}, {"x!", false, "x!"},
	}
	for _, tt := range tests {
		doc, err := Parse("f.yaml", []byte("rules: [{action: deny, reason: r, match: {params: {a: '"+tt.pattern+"'}, argv: {args: '"+tt.pattern+"', anyArg: '"+tt.pattern+"'}}}]"), Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		m := &doc.Rules[0].Match
		for _, p := range []*Pattern{&m.Params[0].Patterns[0], &m.Argv.Args[0], &m.Argv.AnyArg[0]} {
			if p.Negate != tt.negate || !p.Match(tt.matches) {
				t.Errorf("%s: negate %v, matches %q %v; want %v and true", tt.pattern, p.Negate, tt.matches, p.Match(tt.matches), tt.negate)
			}
		}
	}
	doc, err := Parse("f.yaml", []byte("rules: [{action: deny, reason: r, match: {tools: '!a', agents: '!a', paths: '!a', absent: '!a', when: {env: {A: '!a'}}, argv: {command: '!a', pipeline: '!a'}}}]"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &doc.Rules[0].Match
	if !m.Tools[0].Match("!a") || !m.Agents[0].Match("!a") || !m.Paths[0].Match("!a") || m.Paths[0].Negate || !m.When.Env[0].Patterns[0].Match("!a") ||
		!m.Argv.Command[0].Match("!a") || !m.Argv.Pipeline[0].Match("!a") {
		t.Error("a ! is no ordinary character in tools, agents, paths, when.env, argv.command or argv.pipeline")
	}
}

// patternMode regex is about params, paths, when.env, argv.args and argv.anyArg; the rest stays globs.
func TestParseRegexMode(t *testing.T) {
	text := `rules: [{action: deny, reason: r, match: {tools: ['a.c'], params: {p: '!^a.c$'}, paths: ['/etc/'], when: {env: {E: b+}}, argv: {command: ['a.c'], args: ['\d'], anyArg: [x|y]}}}]`
	doc, err := Parse("f.yaml", []byte(text), Options{Regex: true, CaseInsensitivePaths: true})
	if err != nil {
		t.Fatal(err)
	}
	m := &doc.Rules[0].Match
	checks := []struct {
		what      string
		got, want bool
	}{
		{"tools is a glob", m.Tools[0].Match("abc"), false},
		{"argv.command is a glob", m.Argv.Command[0].Match("abc"), false},
		{"params is negated", m.Params[0].Patterns[0].Negate, true},
		{"params", m.Params[0].Patterns[0].Match("abc"), true},
		{"paths, unanchored", m.Paths[0].Match("x/etc/y"), true},
		{"paths keep their case", m.Paths[0].Match("/ETC/"), false},
		{"when.env", m.When.Env[0].Patterns[0].Match("abbc"), true},
		{"argv.args", m.Argv.Args[0].Match("x7"), true},
		{"argv.anyArg", m.Argv.AnyArg[0].Match("z"), false},
	}
	for _, c := range checks {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestParseOptions(t *testing.T) {
	stars := "rules: [{action: deny, reason: r, match: {tools: ['*a*b*'], network: {domains: ['*a*b*'], ips: ['10.*.*.*']}}}]"
	if _, err := Parse("f.yaml", []byte(stars), Options{MaxGlobStars: 3}); err != nil {
		t.Errorf("three stars under a cap of three: %v", err)
	}
	doc, err := Parse("f.yaml", []byte("rules: [{action: deny, reason: r, match: {paths: Src/*}}]"), Options{CaseInsensitivePaths: true})
	if err != nil {
		t.Fatal(err)
	}
	if p := &doc.Rules[0].Match.Paths[0]; !p.Match("sRC/A") || p.Match("src/a/b") {
		t.Error("caseInsensitivePaths does not fold the case of a paths glob, or loses the segments")
	}
}

// CFG-37: maxRules counts over the whole chain, disabled rules included, and names the first rule too many.
func TestParseChain(t *testing.T) {
	parse := func(file string, n int, rule string) *Document {
		t.Helper()
		doc, err := Parse(file, []byte("rules:\n"+strings.Repeat("  - "+rule+"\n", n)), Options{MaxRules: 3})
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	near, far := parse("near.yaml", 2, "{action: allow, reason: near}"), parse("far.yaml", 1, "{action: deny, reason: far, enabled: false}")
	chain, err := ParseChain([]*Document{near, far}, Options{MaxRules: 3})
	if got, want := describeAll(chain), "allow \"near\"\nallow \"near\"\ndeny \"far\" disabled"; err != nil || got != want {
		t.Errorf("chain = %q, %v, want %q", got, err, want)
	}
	_, err = ParseChain([]*Document{near, parse("far.yaml", 2, "{action: deny, reason: far, enabled: false}")}, Options{MaxRules: 3})
	if want := "far.yaml:3:5: the rule count exceeds maxRules 3"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	_, err = ParseChain([]*Document{parse("near.yaml", DefaultMaxRules+1, "{action: deny, reason: r}")}, Options{})
	if want := "near.yaml:258:5: the rule count exceeds maxRules 256"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func describeAll(all []Rule) string {
	lines := make([]string, len(all))
	for i := range all {
		lines[i] = describe(&all[i])
	}
	return strings.Join(lines, "\n")
}

// describe gives a rule as one line, in the order of the format. Where it stands is left out.
func describe(r *Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q", r.Action, r.Reason)
	if !r.Enabled {
		b.WriteString(" disabled")
	}
	if r.Description != "" {
		fmt.Fprintf(&b, " description=%q", r.Description)
	}
	list := func(name string, texts []string) {
		if len(texts) > 0 {
			fmt.Fprintf(&b, " %s=%s", name, texts)
		}
	}
	m := &r.Match
	list("tags", r.Tags)
	list("tools", globTexts(m.Tools))
	list("agents", globTexts(m.Agents))
	list("params", keyedWords(m.Params))
	list("paths", patternWords(m.Paths))
	list("absent", m.Absent)
	list("when.env", keyedWords(m.When.Env))
	list("when.platform", m.When.Platforms)
	if a := m.Argv; a != nil {
		list("argv.command", globTexts(a.Command))
		list("argv.pipeline", globTexts(a.Pipeline))
		list("argv.args", patternWords(a.Args))
		list("argv.anyArg", patternWords(a.AnyArg))
	}
	if m.Network != nil {
		list("network", patternTexts(r))
	}
	return b.String()
}

func globTexts(globs []*glob.Glob) []string {
	var out []string
	for _, g := range globs {
		out = append(out, g.String())
	}
	return out
}

func patternWords(patterns []Pattern) []string {
	var out []string
	for _, p := range patterns {
		out = append(out, p.Text)
	}
	return out
}

func keyedWords(keyed []Keyed) []string {
	var out []string
	for _, k := range keyed {
		out = append(append(out, k.Key), patternWords(k.Patterns)...)
	}
	return out
}
