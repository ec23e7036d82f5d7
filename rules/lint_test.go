package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dshproxy/netrule"
)

var linux = Host{Platform: "linux", Env: func(name string) (string, bool) {
	value, set := map[string]string{"CI": "true", "EMPTY": ""}[name]
	return value, set
}}

// suffixes stands in for the public suffix list.
func suffixes(name string) bool { return slices.Contains([]string{"com", "github.io"}, name) }

// lint reads flow rules, a line each from line 2 on, and gives the findings.
func lint(t *testing.T, rules ...string) []Finding {
	t.Helper()
	doc, err := Parse("f.yaml", []byte("rules:\n- "+strings.Join(rules, "\n- ")+"\n"), Options{MaxGlobStars: 4})
	if err != nil {
		t.Fatal(err)
	}
	return Lint(doc.Rules, linux, suffixes)
}

// codes gives "CODE line" of each finding.
func codes(findings []Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, fmt.Sprintf("%s %d", f.Code, f.Line))
	}
	return out
}

// flowRule makes a rule in flow style from its action and match block.
func flowRule(action, match string) string {
	return fmt.Sprintf("{match: {%s}, action: %s, reason: r}", match, action)
}

// netRule makes one with a network block alone.
func netRule(action, network string) string { return flowRule(action, "network: {"+network+"}") }

// TestLintCodes has each code that one rule alone can earn, and its nearest neighbours that do not.
func TestLintCodes(t *testing.T) {
	tests := []struct {
		name, rule string
		want       []string
	}{
		{"a clean allow", netRule("allow", "domains: [=a.example], ports: [443]"), nil},
		{"a clean deny", netRule("deny", "domains: [a.example]"), nil},
		{"no network", flowRule("deny", "tools: [bash]"), nil},
		{"disabled is not looked at", "{match: {network: {ips: [10.0.0.1/8]}}, action: deny, reason: r, enabled: false}", nil},

		{"inert by params", flowRule("deny", "params: {a: b}, network: {domains: [a.example]}"), []string{LintInert}},
		{"inert by paths", flowRule("deny", "paths: a, network: {domains: [a.example]}"), []string{LintInert}},
		{"inert by absent", flowRule("deny", "absent: a, network: {domains: [a.example]}"), []string{LintInert}},
		{"inert by argv", flowRule("deny", "argv: {args: a}, network: {domains: [a.example]}"), []string{LintInert}},
		{"inert by tools", flowRule("deny", "tools: [web_fetch], network: {domains: [a.example]}"), []string{LintInert}},
		{"tools that cover the shell", flowRule("deny", "tools: [web_fetch, 'b*'], network: {domains: [a.example]}"), nil},
		{"pwsh is the shell too", flowRule("deny", "tools: [pwsh], network: {domains: [a.example]}"), nil},
		{"agents are evaluated", flowRule("deny", "agents: [main], network: {domains: [a.example]}"), nil},
		{"another host is no fault of the rule", flowRule("deny", "when: {platform: win32}, network: {domains: [a.example]}"), nil},

		{"an allow of everything", netRule("allow", "ports: [443]"), []string{LintOverBroad}},
		{"an allow of every name", netRule("allow", "domains: ['*'], ports: [443]"), []string{LintOverBroad}},
		{"an allow of every address", netRule("allow", "ips: [0.0.0.0/0], ports: [443]"), []string{LintOverBroad}},
		{"every name in a network", netRule("allow", "domains: ['*'], ips: [10.0.0.0/8], ports: [443]"), nil},
		{"a deny of every name", netRule("deny", "domains: ['*']"), nil},
		{"a private literal", netRule("allow", "domains: [10.0.0.5], ports: [443]"), []string{LintUnopened}},
		{"a private literal with ips", netRule("allow", "domains: [10.0.0.5], ips: [10.0.0.5], ports: [443]"), nil},
		{"a public literal", netRule("allow", "domains: [1.1.1.1], ports: [443]"), nil},
		{"a private literal in a deny", netRule("deny", "domains: [10.0.0.5]"), nil},
		{"an allow with argv", flowRule("allow", "argv: {command: git}"), []string{LintPooledArgv}},
		{"a deny with argv", flowRule("deny", "argv: {command: git}"), nil},
		{"a double star that means a folder", flowRule("deny", "paths: 'src/**'"), nil},

		{"a deny with ips alone", netRule("deny", "ips: [10.0.0.0/8]"), []string{LintForcesLookup}},
		{"an ask with ips and ports", netRule("ask", "ips: [10.0.0.0/8], ports: [443]"), []string{LintForcesLookup}},
		{"a deny with ips and domains", netRule("deny", "ips: [10.0.0.0/8], domains: [a.example]"), nil},
		{"an allow with ips alone", netRule("allow", "ips: [10.0.0.0/8], ports: [443]"), nil},

		{"an allow without ports", netRule("allow", "domains: [=a.example]"), []string{LintAnyPort}},
		{"a deny without ports", netRule("deny", "domains: [=a.example]"), nil},
		{"an allow with every port says so", netRule("allow", "domains: [=a.example], ports: ['*']"), nil},

		{"an allow of a shared suffix", netRule("allow", "domains: [github.io], ports: [443]"), []string{LintSharedHosting}},
		{"an allow below a shared suffix", netRule("allow", "domains: ['*.github.io'], ports: [443]"), []string{LintSharedHosting}},
		{"an allow of one host under it", netRule("allow", "domains: [me.github.io], ports: [443]"), nil},
		{"an allow of exactly the suffix", netRule("allow", "domains: [=github.io], ports: [443]"), nil},
		{"a deny of a shared suffix", netRule("deny", "domains: [github.io]"), nil},
		{"each pattern", netRule("allow", "domains: [a.example, com, github.io], ports: [443]"), []string{LintSharedHosting, LintSharedHosting}},

		{"bits below the prefix", netRule("allow", "domains: [=a.example], ports: [443], ips: [10.0.0.1/8]"), []string{LintHostBits}},
		{"bits below a mapped prefix", netRule("allow", "domains: [=a.example], ports: [443], ips: ['::ffff:10.0.0.1/104']"), []string{LintHostBits}},
		{"no bits below the prefix", netRule("allow", "domains: [=a.example], ports: [443], ips: [10.0.0.0/8, 'fc00::/7', 10.0.0.1]"), nil},

		{"CFG-32 a range from 0", netRule("deny", "domains: [=a.example], ports: [0-1023]"), []string{LintRangeFromZero}},
		{"CFG-32 a range from 00", netRule("deny", "domains: [=a.example], ports: [00-1023]"), []string{LintRangeFromZero}},
		{"CFG-32 a range from 1", netRule("deny", "domains: [=a.example], ports: [1-1023]"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range lint(t, tt.rule) {
				got = append(got, f.Code)
				if f.Severity != SeverityWarning || f.File != "f.yaml" || f.Line != 2 || f.Col == 0 || f.Message == "" {
					t.Errorf("an incomplete finding: %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("lint %s = %q, want %q", tt.rule, got, tt.want)
			}
		})
	}
}

// TestLintShadowed: CFG-35, a rule that an earlier one always beats. Lint may miss one, but must not cry wolf.
func TestLintShadowed(t *testing.T) {
	tests := []struct {
		name, first, second string
		want                bool
	}{
		{"the same host", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [a.example], ports: [443]"), true},
		{"a subtree covers the exact host", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [=a.example], ports: [443]"), true},
		{"a subtree covers a host below", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [b.a.example], ports: [443]"), true},
		{"a subtree covers its subdomains", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: ['*.a.example'], ports: [443]"), true},
		{"subdomains do not cover the apex", netRule("deny", "domains: ['*.a.example']"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"the exact host does not cover the subtree", netRule("deny", "domains: [=a.example]"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a name that only ends alike", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [ba.example], ports: [443]"), false},
		{"one of two hosts", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [a.example, b.example], ports: [443]"), false},
		{"two hosts, each by another pattern", netRule("deny", "domains: [a.example, b.example]"), netRule("allow", "domains: [x.b.example, a.example], ports: [443]"), true},
		{"everything", netRule("deny", "domains: ['*']"), netRule("allow", "domains: [a.example], ports: [443]"), true},
		{"everything, by ports", netRule("deny", "ports: ['*']"), netRule("allow", "domains: [a.example], ports: [443]"), true},
		{"an allow of every name leaves literals", netRule("allow", "domains: ['*'], ports: [443]"), netRule("deny", "domains: [10.0.0.1], ports: [443]"), false},
		{"a deny of every name takes literals", netRule("deny", "domains: ['*']"), netRule("allow", "domains: [10.0.0.1], ports: [443]"), true},
		{"no hosts behind every host", netRule("deny", "domains: ['*']"), netRule("allow", "ports: [443]"), true},
		{"the same glob", netRule("deny", "domains: ['a*.example']"), netRule("allow", "domains: ['a*.example'], ports: [443]"), true},

		{"more ports", netRule("deny", "domains: [a.example], ports: [443]"), netRule("allow", "domains: [a.example], ports: [443, 444]"), false},
		{"fewer ports", netRule("deny", "domains: [a.example], ports: [400-500]"), netRule("allow", "domains: [a.example], ports: [443, 450-460]"), true},
		{"no ports behind some", netRule("deny", "domains: [a.example], ports: [443]"), netRule("deny", "domains: [a.example]"), false},
		{"ports behind an allow of the default ports", netRule("allow", "domains: [a.example]"), netRule("allow", "domains: [a.example], ports: [8443]"), false},
		{"an allow of the default ports twice", netRule("allow", "domains: [a.example]"), netRule("allow", "domains: [a.example]"), true},
		{"a deny behind an allow of the default ports", netRule("allow", "domains: [a.example]"), netRule("deny", "domains: [a.example]"), false},
		{"the mail port needs a rule that names it", netRule("allow", "domains: [a.example], ports: ['*']"), netRule("allow", "domains: [a.example], ports: [25]"), false},
		{"the DNS port in a range", netRule("allow", "domains: [a.example], ports: [1-1023]"), netRule("deny", "domains: [a.example], ports: [53]"), false},
		{"the mail port twice", netRule("allow", "domains: [a.example], ports: [25]"), netRule("allow", "domains: [a.example], ports: [25]"), true},
		{"a deny of all ports takes the mail port", netRule("deny", "domains: [a.example], ports: ['*']"), netRule("allow", "domains: [a.example], ports: [25]"), true},

		{"the same scheme", netRule("deny", "domains: [a.example], schemes: [http]"), netRule("allow", "domains: [a.example], schemes: [http], ports: [80]"), true},
		{"another scheme", netRule("deny", "domains: [a.example], schemes: [http]"), netRule("allow", "domains: [a.example], schemes: [https], ports: [443]"), false},
		{"no scheme behind one", netRule("deny", "domains: [a.example], schemes: [https]"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a scheme behind none", netRule("deny", "domains: [a.example]"), netRule("allow", "domains: [a.example], schemes: [https], ports: [443]"), true},

		{"the same addresses", netRule("deny", "domains: [a.example], ips: [10.0.0.0/8]"), netRule("allow", "domains: [a.example], ips: [10.0.0.0/8], ports: [443]"), true},
		{"other addresses", netRule("deny", "domains: [a.example], ips: [10.0.0.0/8]"), netRule("allow", "domains: [a.example], ips: [192.0.2.1], ports: [443]"), false},
		{"no addresses behind some", netRule("deny", "domains: [a.example], ips: [10.0.0.0/8]"), netRule("allow", "domains: [a.example], ports: [443]"), false},

		{"a disabled first", "{match: {network: {domains: [a.example]}}, action: deny, reason: r, enabled: false}", netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a disabled second", netRule("deny", "domains: [a.example]"), "{match: {network: {domains: [a.example]}}, action: deny, reason: r, enabled: false}", false},
		{"an inert first", flowRule("deny", "params: {a: b}, network: {domains: [a.example]}"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a first for agents", flowRule("deny", "agents: [main], network: {domains: [a.example]}"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a second for agents", netRule("deny", "domains: [a.example]"), flowRule("allow", "agents: [main], network: {domains: [a.example], ports: [443]}"), true},
		{"a first under a condition that holds", flowRule("deny", "when: {platform: linux}, network: {domains: [a.example]}"), netRule("allow", "domains: [a.example], ports: [443]"), false},
		{"a first for the shell", flowRule("deny", "tools: [bash], network: {domains: [a.example]}"), netRule("allow", "domains: [a.example], ports: [443]"), true},
		{"no network first", flowRule("deny", "tools: [bash]"), netRule("allow", "domains: [a.example], ports: [443]"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			findings := lint(t, tt.first, tt.second)
			got := slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == LintShadowed })
			if got != tt.want {
				t.Errorf("shadowed %v, want %v\n%s\n%s\nfindings: %q", got, tt.want, tt.first, tt.second, codes(findings))
			}
		})
	}
}

// A finding of a shadowed rule stands at that rule and names the one that takes its place.
func TestLintShadowedNamesTheRule(t *testing.T) {
	got := lint(t, netRule("deny", "domains: [b.example]"), netRule("deny", "domains: [a.example]"), netRule("deny", "domains: ['*']"), netRule("ask", "domains: [x.a.example]"))
	want := []Finding{{LintShadowed, SeverityWarning, "f.yaml", 5, 3, "the rule is never reached: the deny rule at line 3 matches first", "move it up, or remove it"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A rule of another file is named with its file.
func TestLintShadowedAcrossFiles(t *testing.T) {
	far := mustRules(t, netRule("ask", "domains: [x.a.example]"))
	near := mustRules(t, netRule("deny", "domains: [a.example]"))
	near[0].File = "near.yaml"
	got := Lint(append(near, far...), linux, nil)
	if want := "the rule is never reached: the deny rule at line 2 of near.yaml matches first"; len(got) != 1 || got[0].Message != want || got[0].File != "f.yaml" {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// Findings come in the order of file and line, whatever found them.
func TestLintOrder(t *testing.T) {
	parse := func(file, text string) []Rule {
		doc, err := Parse(file, []byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return doc.Rules
	}
	chain := append(parse("b.yaml", "rules:\n- "+netRule("allow", "domains: [=x.example]")+"\n- "+netRule("deny", "domains: [=x.example], ips: [10.0.0.1/8]")+"\n"),
		parse("a.yaml", "rules:\n- "+netRule("allow", "domains: [github.io]")+"\n")...)
	var got []string
	for _, f := range Lint(chain, linux, suffixes) {
		got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Code))
	}
	want := []string{"a.yaml:2 any-port", "a.yaml:2 shared-hosting", "b.yaml:2 any-port", "b.yaml:3 host-bits"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Positions of findings about a pattern are the pattern's.
func TestLintPatternPosition(t *testing.T) {
	text := "rules:\n- match:\n    network:\n      domains: [=a.example]\n      ports:\n      - 443\n      - 0-80\n  action: deny\n  reason: r\n"
	doc, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := Lint(doc.Rules, linux, nil)
	want := []Finding{{LintRangeFromZero, SeverityWarning, "f.yaml", 7, 9, `"0-80" starts at port 0, which no target has`, "start at 1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLintWithoutSuffixList(t *testing.T) {
	doc, err := Parse("f.yaml", []byte("rules:\n- "+netRule("allow", "domains: [com], ports: [443]")+"\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := Lint(doc.Rules, linux, nil); len(got) != 0 {
		t.Errorf("findings without a suffix list: %+v", got)
	}
}

func TestErrorFinding(t *testing.T) {
	got := ErrorFinding("/w/f.yaml", &ParseError{File: "f.yaml", Line: 3, Col: 4, What: "what", Hint: "hint"})
	want := Finding{LintError, SeverityError, "/w/f.yaml", 3, 4, "what", "hint"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Lint and the policy must agree about which rules a connection meets at all.
func TestConnectionsInert(t *testing.T) {
	tests := []struct{ rule, want string }{
		{netRule("deny", "domains: [a.example]"), ""},
		{flowRule("deny", "agents: [main], tools: ['ba*'], when: {platform: [win32, linux], env: {CI: ['false', 'tr*']}}, network: {domains: [a.example]}"), ""},
		{"{action: deny, reason: all}", "no network block: it judges tool calls only"},
		{"{match: {network: {domains: [a.example]}}, action: deny, reason: r, enabled: false}", "disabled"},
		{flowRule("deny", "params: {a: b}, network: {domains: [a.example]}"), "params stands beside network: it judges tool calls only"},
		{flowRule("deny", "paths: a, network: {domains: [a.example]}"), "paths stands beside network: it judges tool calls only"},
		{flowRule("deny", "absent: a, network: {domains: [a.example]}"), "absent stands beside network: it judges tool calls only"},
		{flowRule("deny", "argv: {args: a}, network: {domains: [a.example]}"), "argv stands beside network: it judges tool calls only"},
		{flowRule("deny", "tools: [web_fetch], network: {domains: [a.example]}"), "tools covers neither bash nor pwsh, which connections count as"},
		{flowRule("deny", "when: {platform: win32}, network: {domains: [a.example]}"), "when does not hold on this host"},
		{flowRule("deny", "when: {env: {CI: 'false'}}, network: {domains: [a.example]}"), "when does not hold on this host"},
		{flowRule("deny", "when: {env: {CI: 'true', UNSET: '*'}}, network: {domains: [a.example]}"), "when does not hold on this host"},
		{flowRule("deny", "when: {env: {EMPTY: '*'}}, network: {domains: [a.example]}"), ""},
	}
	for i, tt := range tests {
		doc, err := Parse("f.yaml", []byte("rules:\n- "+tt.rule+"\n"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := Connections(doc.Rules, linux)
		if len(got) != 1 || got[0].Inert != tt.want || got[0].Ref.Line != 2 || got[0].Action != netrule.Deny {
			t.Errorf("row %d %s: %+v, want inert %q", i, tt.rule, got, tt.want)
		}
	}
	if rules := Connections(mustRules(t, flowRule("deny", "when: {env: {CI: '*'}}, network: {domains: [a.example]}")), Host{}); rules[0].Inert == "" {
		t.Error("a variable is taken for set on a host without variables")
	}
}

func mustRules(t *testing.T, rules ...string) []Rule {
	t.Helper()
	doc, err := Parse("f.yaml", []byte("rules:\n- "+strings.Join(rules, "\n- ")+"\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return doc.Rules
}

func TestPlatform(t *testing.T) {
	for goos, want := range map[string]string{"linux": "linux", "windows": "win32", "darwin": "darwin", "solaris": "sunos", "illumos": "sunos"} {
		if got := Platform(goos); got != want || !slices.Contains(Platforms(), got) {
			t.Errorf("Platform(%q) = %q, want %q", goos, got, want)
		}
	}
}
