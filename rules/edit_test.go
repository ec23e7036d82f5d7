package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// wanted is the rule that the tests insert, and wantedBlock how it is written in block style.
var wanted = NewRule{Host: "api.example.com", Port: 443, Reason: "asked for"}

func wantedBlock(indent string) string {
	return indent + `- match: { network: { domains: ["=api.example.com"], ports: [443] } }` + "\n" +
		indent + "  action: allow\n" +
		indent + `  reason: "asked for"` + "\n"
}

const wantedFlow = `{ "match": { "network": { "domains": ["=api.example.com"], "ports": [443] } }, "action": "allow", "reason": "asked for" }`

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func TestInsertRule(t *testing.T) {
	deny := "- action: deny\n"
	block, flat := wantedBlock("  "), wantedBlock("")
	tests := []struct{ name, old, want string }{
		{"indented list", "rules:\n  " + deny + "    reason: r\n", "rules:\n" + block + "  " + deny + "    reason: r\n"},
		{"list that is not indented", "rules:\n" + deny + "  reason: r\n", "rules:\n" + flat + deny + "  reason: r\n"},
		{"deeply indented list", "rules:\n        " + deny + "          reason: r\n", "rules:\n" + wantedBlock("        ") + "        " + deny + "          reason: r\n"},
		{"no line end at the end", "rules:\n- {action: deny, reason: r}", "rules:\n" + flat + "- {action: deny, reason: r}"},
		{
			"comments above the first rule", "# head\n\nrules: # ours\n\n  # about the first\n  " + deny + "    reason: r # why\n# foot\n",
			"# head\n\nrules: # ours\n" + block + "\n  # about the first\n  " + deny + "    reason: r # why\n# foot\n",
		},
		{"blanks at line ends", "# head \nrules: \n  " + deny + "    reason: r \n \n", "# head \nrules: \n" + block + "  " + deny + "    reason: r \n \n"},
		{"CRLF", crlf("# head\nrules:\n  " + deny + "    reason: r\n"), crlf("# head\nrules:\n" + block + "  " + deny + "    reason: r\n")},
		{"BOM", "\ufeffrules:\n  " + deny + "    reason: r\n", "\ufeffrules:\n" + block + "  " + deny + "    reason: r\n"},
		{"BOM and CRLF", "\ufeff" + crlf("rules:\n  "+deny+"    reason: r\n"), "\ufeff" + crlf("rules:\n"+block+"  "+deny+"    reason: r\n")},
		{"document marker", "---\nrules:\n  " + deny + "    reason: r\n...\n", "---\nrules:\n" + block + "  " + deny + "    reason: r\n...\n"},
		{"quoted key", "\"rules\":\n  " + deny + "    reason: r\n", "\"rules\":\n" + block + "  " + deny + "    reason: r\n"},
		{"letters outside ASCII", "# é😀\nrules: # é\n  " + deny + "    reason: é\n", "# é😀\nrules: # é\n" + block + "  " + deny + "    reason: é\n"},

		{"empty file", "", "rules:\n" + block},
		{"blank line", "\n", "\nrules:\n" + block},
		{"BOM alone", "\ufeff", "\ufeff\nrules:\n" + block},
		{"comment only", "# none yet\n", "# none yet\nrules:\n" + block},
		{"comment without a line end", "# none yet", "# none yet\nrules:\n" + block},
		{"comment only, CRLF", "# none yet\r\n", "# none yet\r\n" + crlf("rules:\n"+block)},
		{"document marker alone", "---\n", "---\nrules:\n" + block},

		{"empty list", "rules: []\n", "rules:\n" + block},
		{"empty list without a line end", "rules: []", "rules:\n" + strings.TrimSuffix(block, "\n")},
		{"empty list, CRLF", "# head\r\nrules: []\r\n", "# head\r\n" + crlf("rules:\n"+block)},
		{"empty list with a comment", "rules: [] # none\n", "rules:\n" + strings.TrimSuffix(block, "\n") + " # none\n"},
		{"empty list below a blank at a line end", "# head \nrules: []\n# foot \n", "# head \nrules:\n" + block + "# foot \n"},
		{"empty list with a blank inside", "rules: [ ]\n", "rules: [ " + wantedFlow + "  ]\n"},
		{"empty list on a line of its own", "rules:\n  []\n", "rules:\n  [ " + wantedFlow + " ]\n"},

		{"flow list", "rules: [{action: deny, reason: r}] # c\n", "rules: [ " + wantedFlow + ",{action: deny, reason: r}] # c\n"},
		{"flow list over lines", "rules: [ # c\n  {action: deny, reason: r}\n]\n", "rules: [ " + wantedFlow + ", # c\n  {action: deny, reason: r}\n]\n"},
		{"JSON", `{"rules": [{"action": "deny", "reason": "r"}]}`, `{"rules": [ ` + wantedFlow + `,{"action": "deny", "reason": "r"}]}`},
		{"JSON over lines", "{\n  \"rules\": [\n    {\"action\": \"deny\", \"reason\": \"r\"}\n  ]\n}\n", "{\n  \"rules\": [ " + wantedFlow + ",\n    {\"action\": \"deny\", \"reason\": \"r\"}\n  ]\n}\n"},
		{"JSON, empty list", `{"rules": []}`, `{"rules": [ ` + wantedFlow + ` ]}`},
		{"JSON with a BOM", "\ufeff" + `{"rules": [{"action": "deny", "reason": "r"}]}`, "\ufeff" + `{"rules": [ ` + wantedFlow + `,{"action": "deny", "reason": "r"}]}`},
		{"JSON with a BOM, empty list", "\ufeff" + `{"rules": []}`, "\ufeff" + `{"rules": [ ` + wantedFlow + ` ]}`},
		{"JSON below a blank line, empty list", "\n{\"rules\": []}\n", "\n{\"rules\": [ " + wantedFlow + " ]}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := InsertRule("f.yaml", []byte(tt.old), wanted, Options{})
			if err != nil {
				t.Fatalf("InsertRule(%q): %v", tt.old, err)
			}
			if string(got) != tt.want {
				t.Errorf("InsertRule(%q)\ngot:  %q\nwant: %q", tt.old, got, tt.want)
			}
			checkInsertion(t, []byte(tt.old), got, wanted, Options{})
			again, err := InsertRule("f.yaml", got, wanted, Options{})
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("a second time: %q, %v, want no change", again, err)
			}
		})
	}
}

// checkInsertion tests what every insertion must keep: the new rule first, the old ones behind it as they were, and no
// byte of the old text lost, the brackets of an empty list excepted.
func checkInsertion(t *testing.T, old, edited []byte, n NewRule, opts Options) {
	t.Helper()
	before, err := Parse("f.yaml", old, opts)
	if err != nil {
		t.Fatalf("a file that does not parse was edited: %v\n%q", err, old)
	}
	after, err := Parse("f.yaml", edited, opts)
	if err != nil {
		t.Fatalf("the edited file does not parse: %v\n%q", err, edited)
	}
	if len(after.Rules) == 0 || !isExactAllow(&after.Rules[0], n) {
		t.Fatalf("the first rule is not the new one:\n%s", describeAll(after.Rules))
	}
	if bytes.Equal(old, edited) {
		return
	}
	if got, want := describeAll(after.Rules[1:]), describeAll(before.Rules); got != want {
		t.Errorf("the old rules have changed\ngot:  %s\nwant: %s", got, want)
	}
	if lost := lostBytes(old, edited); len(bytes.TrimSpace(lost)) > 0 && !bytes.Equal(bytes.TrimSpace(lost), []byte("[]")) || len(lost) > len(" []") {
		t.Errorf("the edit lost %q\nold: %q\nnew: %q", lost, old, edited)
	}
}

// isExactAllow reports whether a rule does all that n asks for: an enabled rule for that host, without any condition.
func isExactAllow(r *Rule, n NewRule) bool {
	doc, err := Parse("f.yaml", []byte("rules: ["+n.flow()+"]"), Options{})
	if err != nil {
		return false
	}
	bare := *r
	bare.Reason, bare.Description, bare.Tags = doc.Rules[0].Reason, "", nil
	return describe(&bare) == describe(&doc.Rules[0])
}

// lostBytes gives what one contiguous change took out of the old text.
func lostBytes(old, edited []byte) []byte {
	head := 0
	for head < len(old) && head < len(edited) && old[head] == edited[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(edited)-head && old[len(old)-1-tail] == edited[len(edited)-1-tail] {
		tail++
	}
	return old[head : len(old)-tail]
}

// Only a rule that does the same counts as already there, and only at the head: behind another it may never be reached.
func TestInsertRuleAlreadyThere(t *testing.T) {
	network := "network: {domains: [=api.example.com], ports: [443]}"
	tests := []struct {
		name, rule string
		there      bool
	}{
		{"the same", "{match: {" + network + "}, action: allow, reason: r}", true},
		{"in other words", "{action: allow, reason: other words, tags: [t], description: d, match: {network: {ports: 443, domains: =api.example.com}}}", true},
		{"empty dimensions", "{match: {tools: [], when: {}, " + network + "}, action: allow, reason: r}", true},
		{"disabled", "{match: {" + network + "}, action: allow, reason: r, enabled: false}", false},
		{"deny", "{match: {" + network + "}, action: deny, reason: r}", false},
		{"another port", "{match: {network: {domains: [=api.example.com], ports: [444]}}, action: allow, reason: r}", false},
		{"no port", "{match: {network: {domains: [=api.example.com]}}, action: allow, reason: r}", false},
		{"a scheme too", "{match: {network: {domains: [=api.example.com], ports: [443], schemes: [http]}}, action: allow, reason: r}", false},
		{"addresses too", "{match: {network: {domains: [=api.example.com], ports: [443], ips: [10.0.0.1]}}, action: allow, reason: r}", false},
		{"subdomains too", "{match: {network: {domains: [api.example.com], ports: [443]}}, action: allow, reason: r}", false},
		{"for an agent", "{match: {agents: [main], " + network + "}, action: allow, reason: r}", false},
		{"for a tool", "{match: {tools: [bash], " + network + "}, action: allow, reason: r}", false},
		{"for a platform", "{match: {when: {platform: win32}, " + network + "}, action: allow, reason: r}", false},
		{"under a variable", "{match: {when: {env: {CI: '1'}}, " + network + "}, action: allow, reason: r}", false},
		{"with params", "{match: {params: {a: b}, " + network + "}, action: allow, reason: r}", false},
		{"with argv", "{match: {argv: {args: b}, " + network + "}, action: allow, reason: r}", false},
		{"second", "{action: deny, reason: r}, {match: {" + network + "}, action: allow, reason: r}", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old := []byte("rules: [" + tt.rule + "]\n")
			got, err := InsertRule("f.yaml", old, wanted, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if there := bytes.Equal(got, old); there != tt.there {
				t.Errorf("taken for already there: %v, want %v", there, tt.there)
			}
			checkInsertion(t, old, got, wanted, Options{})
		})
	}
}

func TestInsertRuleRefuses(t *testing.T) {
	tests := []struct{ name, old, want string }{
		{"syntax error", "rules: [\n", "f.yaml: near 1: invalid YAML: did not find expected node content"},
		{"unknown key", "ruels: []\n", `f.yaml:1:1: unknown field "ruels" in the document`},
		{"rules is null", "rules:\n", "f.yaml:1:7: rules must be a list, not null"},
		{"one bad rule among others", "rules:\n  - {action: deny, reason: r}\n  - {action: deny}\n", "f.yaml:3:5: rule 2.reason must be a non-empty string"},
		{"two documents", "rules: []\n---\n", "f.yaml:2:1: invalid YAML: a second document"},
		{"no mapping", "- a\n", "f.yaml:1:1: the document must be a mapping, not a list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := InsertRule("f.yaml", []byte(tt.old), wanted, Options{})
			if err == nil || err.Error() != tt.want || got != nil {
				t.Errorf("InsertRule = %q, %v, want %s", got, err, tt.want)
			}
			got, err = RemoveRule("f.yaml", []byte(tt.old), wanted, Options{})
			if err == nil || err.Error() != tt.want || got != nil {
				t.Errorf("RemoveRule = %q, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// Where an edit in place could not be told from damage, the file is left alone and the user is told.
func TestInsertRuleNotInPlace(t *testing.T) {
	tests := []struct{ name, old string }{
		{"CR only", "rules:\r- action: deny\r  reason: r\r"},
		{"a stray CR", "rules:\n- action: deny\n  reason: r\r\n\r"},
		{"an anchor on the list", "rules: &all\n- action: deny\n  reason: r\n"},
		{"a tag on the list", "rules: !!seq\n- action: deny\n  reason: r\n"},
		{"an explicit key", "? rules\n: - action: deny\n    reason: r\n"},
		{"null", "~\n"},
		{"an empty mapping", "{}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := InsertRule("f.yaml", []byte(tt.old), wanted, Options{})
			if !errors.Is(err, errNotEditable) || got != nil {
				t.Errorf("InsertRule(%q) = %q, %v, want %v", tt.old, got, err, errNotEditable)
			}
		})
	}
}

// Characters that a YAML 1.1 parser counts as line ends must not send the edit astray: the workspace's file is hostile.
func TestInsertRuleLineSeparators(t *testing.T) {
	for _, old := range []string{
		"\u2028rules: []\n# c\n", "\u0085rules: []\n# c\n", "rules:\r\n\u2028 []\n\n", "# \u2029\nrules:\n- {action: deny, reason: r}\n", "rules: # \u2028\n- {action: deny, reason: \"a\u2028b\"}\n",
	} {
		t.Run(fmt.Sprintf("%+q", old), func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("InsertRule(%+q) panics: %v", old, p)
				}
			}()
			got, err := InsertRule("f.yaml", []byte(old), wanted, Options{})
			if err == nil {
				checkInsertion(t, []byte(old), got, wanted, Options{})
			}
		})
	}
}

func TestInsertRuleKinds(t *testing.T) {
	tests := []struct {
		name string
		rule NewRule
		want string
	}{
		{"a name", NewRule{Host: "a.example", Reason: "r"}, `allow "r" network=[domains =a.example]`},
		{"a port", NewRule{Host: "a.example", Port: 22, Reason: "r"}, `allow "r" network=[domains =a.example ports 22]`},
		{
			"addresses",
			NewRule{Host: "db.corp.test", Port: 5432, IPs: []string{"10.0.0.5", "fd00::5"}, Reason: "r"},
			`allow "r" network=[domains =db.corp.test ips 10.0.0.5 ips fd00::5 ports 5432]`,
		},
		{"an IPv4 literal", NewRule{Host: "10.0.0.5", IPs: []string{"10.0.0.5"}, Reason: "r"}, `allow "r" network=[domains =10.0.0.5 ips 10.0.0.5]`},
		{"an IPv6 literal", NewRule{Host: "fd00::5", Reason: "r"}, `allow "r" network=[domains =fd00::5]`},
		{"a reason with everything", NewRule{Host: "a.example", Reason: "\"q\" \\ : # é\n\tx"}, `allow "\"q\" \\ : # é\n\tx" network=[domains =a.example]`},
	}
	for _, tt := range tests {
		for _, old := range []string{"", "rules: []\n", "rules:\n- {action: deny, reason: last}\n", `{"rules": []}`} {
			got, err := InsertRule("f.yaml", []byte(old), tt.rule, Options{})
			if err != nil {
				t.Errorf("%s into %q: %v", tt.name, old, err)
				continue
			}
			doc, err := Parse("f.yaml", got, Options{})
			if err != nil || describe(&doc.Rules[0]) != tt.want {
				t.Errorf("%s into %q: %v\ngot:  %s\nwant: %s", tt.name, old, err, describeAll(doc.Rules), tt.want)
			}
		}
	}
	for _, bad := range []NewRule{{Host: "", Reason: "r"}, {Host: "*.a.example", Reason: "r"}, {Host: "a b", Reason: "r"}, {Host: "a.example"}, {Host: "a.example", IPs: []string{"x"}, Reason: "r"}} {
		if got, err := InsertRule("f.yaml", []byte("rules: []\n"), bad, Options{}); err == nil {
			t.Errorf("InsertRule(%+v) = %q, want an error", bad, got)
		}
	}
}

func TestRemoveRule(t *testing.T) {
	block := wantedBlock("  ")
	deny := "  - action: deny\n    reason: r\n"
	tests := []struct{ name, old, want string }{
		{"first", "rules:\n" + block + deny, "rules:\n" + deny},
		{"last", "rules:\n" + deny + block, "rules:\n" + deny},
		{"last, no line end", "rules:\n" + deny + strings.TrimSuffix(block, "\n"), "rules:\n" + deny},
		{"between", "rules:\n" + deny + block + deny, "rules:\n" + deny + deny},
		{"the first of two", "rules:\n" + block + deny + block, "rules:\n" + deny + block},
		{"the only one", "# head\nrules: # ours\n" + block + "# foot\n", "# head\nrules: [] # ours\n# foot\n"},
		{"the only one, quoted key", "\"rules\":\n" + block, "\"rules\": []\n"},
		{"the only one, a blank before the colon", "rules :\n" + block, "rules : []\n"},
		{"comments of the others", "rules:\n  # one\n" + deny + "  # two\n" + block + "  # three\n" + deny, "rules:\n  # one\n" + deny + "  # two\n  # three\n" + deny},
		{"not indented", "rules:\n" + wantedBlock("") + "- {action: deny, reason: r}\n", "rules:\n- {action: deny, reason: r}\n"},
		{"CRLF and BOM", "\ufeff" + crlf("rules:\n"+block+deny), "\ufeff" + crlf("rules:\n"+deny)},
		{"another reason", "rules:\n" + strings.Replace(block, "asked for", "by hand", 1) + deny, "rules:\n" + deny},
		{"not there", "rules:\n" + deny, "rules:\n" + deny},
		{"not there, empty file", "", ""},
		{"disabled is another rule", "rules:\n" + block + deny + "    enabled: false\n", "rules:\n" + deny + "    enabled: false\n"},
		{
			"a condition makes another rule", "rules:\n  - match: {when: {platform: linux}, network: {domains: [=api.example.com], ports: [443]}}\n    action: allow\n    reason: r\n",
			"rules:\n  - match: {when: {platform: linux}, network: {domains: [=api.example.com], ports: [443]}}\n    action: allow\n    reason: r\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := RemoveRule("f.yaml", []byte(tt.old), wanted, Options{})
			if err != nil {
				t.Fatalf("RemoveRule(%q): %v", tt.old, err)
			}
			if string(got) != tt.want {
				t.Errorf("RemoveRule(%q)\ngot:  %q\nwant: %q", tt.old, got, tt.want)
			}
		})
	}
}

// What was inserted can be taken out again, byte for byte.
func TestRemoveRuleUndoesInsert(t *testing.T) {
	for _, old := range []string{
		"rules:\n  - {action: deny, reason: r}\n", "rules:\n- {action: deny, reason: r}", "# head\nrules: # c\n\n  # first\n  - action: deny\n    reason: r\n# foot\n",
		"\ufeff" + crlf("rules:\n  - {action: deny, reason: r}\n"), "rules: []\n", "# head\r\nrules: []\r\n# foot\r\n",
	} {
		edited, err := InsertRule("f.yaml", []byte(old), wanted, Options{})
		if err != nil {
			t.Errorf("InsertRule(%q): %v", old, err)
			continue
		}
		back, err := RemoveRule("f.yaml", edited, wanted, Options{})
		if err != nil || string(back) != old {
			t.Errorf("RemoveRule after InsertRule = %q, %v, want %q", back, err, old)
		}
	}
}

// A rule whose text goes over more lines than the tree tells must not leave a part behind that another rule takes up.
func TestRemoveRuleLeavesNoRest(t *testing.T) {
	match := "  - match: {network: {domains: [=api.example.com], ports: [443]}}\n    action: allow\n"
	tests := []struct{ name, old string }{
		{"a plain reason over two lines", "rules:\n  - action: deny\n    reason: the first\n" + match + "    reason: the second,\n      continued\n"},
		{"a block reason", "rules:\n  - action: deny\n    reason: |\n      the first\n" + match + "    reason: |\n      the second\n"},
		{"a quoted reason over two lines", "rules:\n  - action: deny\n    reason: the first\n" + match + "    reason: \"the second,\n      continued\"\n"},
		{"a flow match over lines", "rules:\n  - action: deny\n    reason: the first\n  - action: allow\n    reason: r\n    match: {\n      network: {domains: [=api.example.com], ports: [443]}\n    }\n"},
		{"a dash on a line of its own", "rules:\n  - action: deny\n    reason: the first\n  -\n    match: {network: {domains: [=api.example.com], ports: [443]}}\n    action: allow\n    reason: r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, err := Parse("f.yaml", []byte(tt.old), Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := RemoveRule("f.yaml", []byte(tt.old), wanted, Options{})
			if err != nil {
				return // left alone is right too
			}
			after, err := Parse("f.yaml", got, Options{})
			if err != nil || describeAll(after.Rules) != describe(&before.Rules[0]) {
				t.Errorf("left over: %v\n%s\nwant: %s\nin %q", err, describeAll(after.Rules), describe(&before.Rules[0]), got)
			}
		})
	}
}

func TestRemoveRuleFlow(t *testing.T) {
	got, err := RemoveRule("f.yaml", []byte("rules: ["+wantedFlow+"]\n"), wanted, Options{})
	if !errors.Is(err, errNotEditable) {
		t.Errorf("RemoveRule from a flow list = %q, %v, want %v", got, err, errNotEditable)
	}
}

// FuzzInsertRule: whatever file parses, an edit puts the new rule first, keeps the old ones in order and every byte of
// the old text, and a second edit does nothing.
func FuzzInsertRule(f *testing.F) {
	for _, s := range []string{
		"", "# c", "rules: []\n", "rules: [] # c\n", "rules:\n  - action: deny\n    reason: r\n", "rules:\n- {action: deny, reason: r}", "\ufeffrules:\r\n- {action: ask, reason: r}\r\n",
		`{"rules": [{"action": "deny", "reason": "r"}]}`, "rules: [ {action: deny, reason: r} ]\n", "---\nrules: # c\n\n # d\n - match: &m {tools: [a]}\n   action: deny\n   reason: |\n    x\n - {match: *m, action: ask, reason: y}\n",
		"rules:\n  -\n    action: deny\n    reason: r\n", "\"rules\" : []", "rules: [\n]", "rules:\n  - match: {network: {domains: [\"=api.example.com\"], ports: [443]}}\n    action: allow\n    reason: r\n",
	} {
		f.Add(s, "asked for")
	}
	f.Fuzz(func(t *testing.T, text, reason string) {
		n := wanted
		n.Reason = reason
		old := []byte(text)
		edited, err := InsertRule("f.yaml", old, n, Options{})
		if string(old) != text {
			t.Fatal("the input was written to")
		}
		if err != nil {
			if edited != nil {
				t.Errorf("an error and a text: %v", err)
			}
			return
		}
		checkInsertion(t, old, edited, n, Options{})
		again, err := InsertRule("f.yaml", edited, n, Options{})
		if err != nil || !bytes.Equal(again, edited) {
			t.Errorf("a second time: %q, %v, want no change of %q", again, err, edited)
		}
	})
}
