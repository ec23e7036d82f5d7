package rules

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"dshproxy/rules/tree"
)

// FuzzParse: a hostile file gives a document or an error that names the file, the same one each time, and never a panic.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(badDir, "*.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, false)
	}
	for _, s := range []string{
		"", "rules: []", "\ufeffrules: [{action: deny, reason: r}]\r\n", "rules:\r- {action: ask, reason: r}\r",
		`{"rules": [{"match": {"network": {"domains": ["*.a.example"], "ips": ["10.0.0.0/8"], "ports": ["80-90"], "schemes": ["https"]}}, "action": "allow", "reason": "r"}]}`,
		"rules:\n- match: &m {params: {a: ['!x', 1.0, true]}, paths: src/**, when: {env: {CI: '*'}, platform: linux}, argv: {args: [-rf], pipeline: 'a|b'}}\n  action: deny\n  reason: r\n- {match: *m, action: deny, reason: r}\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	schema := compiledSchema(f)
	f.Fuzz(func(t *testing.T, text []byte, regex bool) {
		opts := Options{Regex: regex}
		doc, err := Parse("f.yaml", text, opts)
		again, errAgain := Parse("f.yaml", text, opts)
		if (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("two readings differ: %v and %v", err, errAgain)
		}
		if err != nil {
			checkParseError(t, doc, err)
			return
		}
		checkDocument(t, doc, len(text))
		if got, want := describeAll(again.Rules), describeAll(doc.Rules); got != want {
			t.Errorf("two readings differ:\n%s\n%s", got, want)
		}
		root, err := tree.Parse("f.yaml", text, 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(jsonValue(root)); err != nil {
			t.Errorf("it loads, and is not valid by the schema: %v", err)
		}
	})
}

func checkParseError(t *testing.T, doc *Document, err error) {
	t.Helper()
	var pe *ParseError
	switch {
	case !errors.As(err, &pe):
		t.Fatalf("error %T %v is no *ParseError", err, err)
	case pe.File != "f.yaml" || pe.What == "":
		t.Errorf("error %#v names no file, or no fault", pe)
	case pe.Line < 0 || pe.Col < 0 || pe.Line == 0 && pe.Col > 0:
		t.Errorf("error %#v has no sensible position", pe)
	case doc != nil:
		t.Error("a document comes with the error")
	}
}

// checkDocument tests what every loaded rule has.
func checkDocument(t *testing.T, doc *Document, size int) {
	t.Helper()
	for i := range doc.Rules {
		r := &doc.Rules[i]
		if r.File != "f.yaml" || r.Reason == "" || r.Line < 1 || r.Col < 1 || r.Line > size+1 {
			t.Errorf("rule %d is incomplete: %+v", i+1, r)
		}
		if n := r.Match.Network; n != nil && len(n.Hosts)+len(n.Addrs)+len(n.Ports)+len(n.Schemes) != len(n.Positions) {
			t.Errorf("rule %d: a pattern has no position, or a position no pattern: %+v", i+1, n)
		}
	}
	// What was read is also what a connection is judged by: none of it may panic.
	Connections(doc.Rules, Host{})
	Lint(doc.Rules, Host{}, func(string) bool { return true })
}
