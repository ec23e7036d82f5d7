package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dshproxy/rules"
	"dshproxy/rules/tree"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// printedSchema is what dshproxy schema prints, compiled; the compiler checks it against the meta-schema.
func printedSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	var out, errOut strings.Builder
	if code := run(context.Background(), []string{"schema", name}, stdio{strings.NewReader(""), &out, &errOut}); code != 0 {
		t.Fatalf("schema %s ends with %d: %s", name, code, errOut.String())
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name+".json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// jsonOf is a YAML text as JSON, the way an editor reads it.
func jsonOf(t *testing.T, text string) any {
	t.Helper()
	root, err := tree.Parse("f.yaml", []byte(text), 100_000)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if root == nil {
		return nil
	}
	var value func(n *yaml.Node) any
	value = func(n *yaml.Node) any {
		switch v := tree.Resolve(n); v.Kind {
		case tree.Map:
			out := map[string]any{}
			for i := 0; i+1 < len(v.Node.Content); i += 2 {
				out[tree.KeyText(tree.Deref(v.Node.Content[i]))] = value(v.Node.Content[i+1])
			}
			return out
		case tree.List:
			out := []any{}
			for _, c := range v.Node.Content {
				out = append(out, value(c))
			}
			return out
		case tree.Number:
			return json.Number(v.Text)
		case tree.Bool:
			return v.Text == "true"
		case tree.Null:
			return nil
		default:
			return v.Text
		}
	}
	return value(root)
}

// TestSettingsSchemaHasEveryKey: the table and the schema have the same keys, each with its sentence.
func TestSettingsSchemaHasEveryKey(t *testing.T) {
	var s settings
	s.setDefaults()
	schema := map[string]string{}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for name, v := range m["properties"].(map[string]any) {
			p := v.(map[string]any)
			if _, group := p["properties"]; group {
				walk(prefix+name+".", p)
				continue
			}
			schema[prefix+name], _ = p["description"].(string)
		}
	}
	walk("", s.schema())
	for _, k := range s.table() {
		if k.doc == "" || !strings.HasPrefix(schema[k.path], k.doc) {
			t.Errorf("%s: the schema says %q, the table %q", k.path, schema[k.path], k.doc)
		}
		delete(schema, k.path)
	}
	if len(schema) != 0 {
		t.Errorf("keys that no table has: %v", schema)
	}
}

// settingTexts are values of every kind, good and bad.
var settingTexts = []string{
	`true`, `"true"`, `yes`, `0`, `1`, `-1`, `1.0`, `1.5`, `443`, `70000`, `99999999999`, `"1"`,
	`[]`, `{}`, `null`, `""`, `text`, `any`, `"*"`, `off`, `[a, b]`, `[""]`, `[1]`, `[[a]]`, `[null]`, `[true]`,
	`5s`, `1h30m`, `1.5h`, `.5s`, `1.s`, `5`, `5 s`, `-5s`, `5d`,
	`64KiB`, `64 KiB`, `1B`, `1KB`, `1.5MiB`, `4TiB`, `4Ti`,
	`10.0.0.0/8`, `[10.0.0.0/8, "fd00::/8"]`, `"10.0.0.0/8,fd00::/8"`, `10.0.0.0`,
	`[443, "8000-9000"]`, `"80,443"`, `[any]`, `[70000]`, `[0]`, `[a-b]`, `any,443`,
	`["127.0.0.1:0", "unix:/run/x"]`, `["[::1]:80"]`, `[nothing]`, `["unix:"]`,
	`[{address: "127.0.0.1:1", name: a, protocols: [http], tls: {cert: c, key: k, clientCA: a}, proxyProtocol: 10.0.0.0/8}]`, `[{address: "127.0.0.1:1", tls: {cert: c}}]`, `[{address: "127.0.0.1:1", protocols: ftp}]`,
	`[{address: "unix:/x", group: 12}]`, `[{address: "unix:/x", group: staff}]`, `[{address: "unix:/x", group: 1x}]`,
	`[{name: a, token: 0123456789abcdef, expires: "2027-01-31T18:00:00Z", agents: ci, workspace: /w, listener: proxy}]`, `[{name: a, tokenFile: /t, agents: [a, b]}]`, `[{name: a}]`, `[{name: a, token: t, tokenFile: f}]`, `[{name: a, token: t, agents: []}]`, `[{name: a, token: t, expires: tomorrow}]`,
	`[{uid: 1000}]`, `[{uid: -1}]`, `[{san: a.test, name: a}]`, `[{san: a, cn: b}]`, `[{prefix: 10.0.0.0/8}]`, `[{prefix: 10.0.0.1}]`, `[{listener: proxy}]`, `[{listener: ""}]`,
	`[{address: "unix:/x", name: a, mode: "0660"}]`, `[{address: "unix:/x", mode: 0o660}]`, `[{address: "unix:/x", mode: 0660}]`, `[{name: a}]`, `[{address: "unix:/x", mode: rw}]`,
	`dsh`, `"dsh,claude-settings"`, `[dsh, pi-permission]`, `[dsh, dsh]`,
	`[{address: "unix:/x", nmae: a}]`, `[{address: 1}]`, `[{address: "unix:/x", name: [a]}]`,
}

// fineTexts are wrong for some key in a way that is too fine for a schema: valid, and they do not load.
var fineTexts = []string{
	`"dsh,dsh"`, `"0"`, `9999999999h`, `99999999999999999999`, `"99999999999999999999"`, `[10.0.0.1/8]`, `[10.0.0.0/99]`, `10.0.0.1/8`,
	`["9-8"]`, `["70000"]`, `["0"]`, `["::1:80"]`, `["a:99999"]`, `["a:01"]`, `[{address: "unix:/x", mode: "7777"}]`,
	`[{address: "unix:/x", mode: 9}]`, `[{address: "127.0.0.1:1", mode: "0660"}]`, `[{prefix: 10.0.0.1/8}]`, `[{name: a, token: t, expires: "2027-02-31T18:00:00Z"}]`,
}

// TestSettingsSchemaIsTheDecoders: for each key and each text, what loads is valid, and what is valid loads unless it is too
// fine for a schema. A key of a new type is tested the day it is added.
func TestSettingsSchemaIsTheDecoders(t *testing.T) {
	schema := printedSchema(t, "settings")
	var s settings
	s.setDefaults()
	used := map[string]bool{}
	for _, k := range s.table() {
		loads := 0
		for _, value := range slices.Concat(settingTexts, fineTexts) {
			text := value
			parts := strings.Split(k.path, ".")
			for _, part := range slices.Backward(parts) {
				text = "{" + part + ": " + text + "}"
			}
			root, err := tree.Parse("f.yaml", []byte(text), 1000)
			if err != nil {
				t.Fatal(err)
			}
			s.setDefaults()
			err = s.decode("f.yaml", root, "")
			invalid := schema.Validate(jsonOf(t, text))
			switch {
			case err == nil && invalid != nil:
				t.Errorf("%s loads and is not valid: %v", text, invalid)
			case err != nil && invalid == nil && !slices.Contains(fineTexts, value):
				t.Errorf("%s is valid and does not load: %v", text, err)
			case err != nil && invalid == nil:
				used[value] = true
			case err == nil:
				loads++
			}
		}
		if loads == 0 {
			if words := k.value.schema()["enum"]; words == nil {
				t.Errorf("%s: no text loads; add some for its type", k.path)
			}
		}
	}
	for _, value := range fineTexts {
		if !used[value] {
			t.Errorf("%s is not too fine for the schema", value)
		}
	}
	if err := schema.Validate(jsonOf(t, "{ask: {hold: true}}")); err == nil {
		t.Error("a key of a later version is valid")
	}
}

// TestEnumsLoad: each word of an enum loads, and the schema has them.
func TestEnumsLoad(t *testing.T) {
	var s settings
	s.setDefaults()
	found := 0
	for _, k := range s.table() {
		words, _ := k.value.schema()["enum"].([]string)
		for _, w := range words {
			found++
			if err := k.value.set(w); err != nil {
				t.Errorf("%s: %q is in the schema: %v", k.path, w, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d words in all", found)
	}
}

// TestCasesSchemaIsTheDecoders: what a test file may hold, by the schema and by the decoder.
func TestCasesSchemaIsTheDecoders(t *testing.T) {
	schema := printedSchema(t, "tests")
	for f := range reflect.TypeFor[policyCase]().Fields() {
		if f.Tag.Get("yaml") == "" || !strings.HasSuffix(f.Tag.Get("doc"), ".") {
			t.Errorf("%s has no key or no sentence", f.Name)
		}
	}
	const good, valid = true, true
	tests := []struct {
		text         string
		loads, valid bool
	}{
		{"cases: [{target: a.test, expect: allow}]", good, valid},
		{"cases: [{name: 1, target: a.test, resolve: [10.0.0.1], agents: [ci, 7], env: {CI: true}, platform: linux, expect: deny, code: not_allowed, rule: 1}]", good, valid},
		{"cases: [{call: {tool: bash, args: {command: [x, {y: null}]}, cwd: /w}, expect: passthrough, code: passthrough}]", good, valid},
		{"cases: []", !good, !valid},
		{"{}", !good, !valid},
		{"cases: {}", !good, !valid},
		{"cases: [{target: a.test, expekt: allow}]", !good, !valid},
		{"cases: [{target: a.test, expect: yes}]", !good, !valid},
		{"cases: [{target: a.test}]", !good, !valid},
		{"cases: [{expect: allow}]", !good, !valid},
		{"cases: [{target: a.test, call: {tool: x}, expect: allow}]", !good, !valid},
		{"cases: [{call: {tool: bash, arg: {}}, expect: allow}]", !good, !valid},
		{"cases: [{call: {args: {command: ls}}, expect: allow}]", !good, !valid},
		{"cases: [{call: {tool: bash, args: [ls]}, expect: allow}]", !good, !valid},
		{"cases: [{call: {tool: bash}, platform: plan9, expect: allow}]", !good, !valid},
		{"cases: [{target: a.test, resolve: 10.0.0.1, expect: allow}]", !good, !valid},
		{"cases: [{target: a.test, env: [CI], expect: allow}]", !good, !valid},
		{"cases: [{target: a.test, rule: first, expect: allow}]", !good, !valid},
		{"cases: [{target: [a.test], expect: allow}]", !good, !valid},
	}
	for _, tt := range tests {
		file := filepath.Join(t.TempDir(), "x_test.yaml")
		placeFile(t, file, tt.text)
		dir := t.TempDir()
		placeFile(t, filepath.Join(dir, ".dsh", "rules.yaml"), "rules: []\n")
		var out, errOut strings.Builder
		run(context.Background(), []string{"test", "--workspace", dir, file}, stdio{strings.NewReader(""), &out, &errOut})
		if ran := strings.Contains(out.String(), " passed, "); ran != tt.loads {
			t.Errorf("%s: runs %v, want %v\n%s", tt.text, ran, tt.loads, errOut.String())
		}
		if err := schema.Validate(jsonOf(t, tt.text)); (err == nil) != tt.valid {
			t.Errorf("%s: valid %v, want %v: %v", tt.text, err == nil, tt.valid, err)
		}
	}
}

// shippedYAML are the YAML texts of the repository: files, the blocks of the documents, the files of the scripts.
func shippedYAML(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(pattern string, each func(file string, text []byte)) {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: nothing there: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			each(strings.TrimPrefix(file, "../../"), text)
		}
	}
	whole := func(file string, text []byte) { out[file] = string(text) }
	read("docker/rules.yaml", whole)
	read("docker/proxy.yaml", whole)
	read("rules/baseline.yaml", whole)
	read("*.md", func(file string, text []byte) {
		for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			out[fmt.Sprintf("%s block %d", file, i+1)] = string(m[1])
		}
	})
	read("testdata/script/*.txtar", func(file string, text []byte) {
		for _, f := range txtar.Parse(text).Files {
			if strings.HasSuffix(f.Name, ".yaml") {
				out[file+" "+f.Name] = string(f.Data)
			}
		}
	})
	return out
}

// TestShippedFilesAreValid: every rule file, settings file and test file of the repository that loads is valid.
func TestShippedFilesAreValid(t *testing.T) {
	ruleSchema, settingsSchema, testsSchema := printedSchema(t, "rules"), printedSchema(t, "settings"), printedSchema(t, "tests")
	count := map[string]int{}
	for name, text := range shippedYAML(t) {
		root, err := tree.Parse(name, []byte(text), 100_000)
		if err != nil {
			continue
		}
		check := func(kind string, schema *jsonschema.Schema) {
			count[kind]++
			if err := schema.Validate(jsonOf(t, text)); err != nil {
				t.Errorf("%s loads and is no valid file of %s: %v", name, kind, err)
			}
		}
		if doc, err := rules.Parse(name, []byte(text), rules.Options{}); err == nil && doc.HasRules {
			check("rules", ruleSchema)
		}
		var s settings
		s.setDefaults()
		if root != nil && s.decode(name, root, "") == nil {
			check("settings", settingsSchema)
		}
		d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
		d.KnownFields(true)
		var cases testFile
		if d.Decode(&cases) == nil && len(cases.Cases) > 0 && wellFormed(cases.Cases) {
			check("tests", testsSchema)
		}
	}
	for kind, least := range map[string]int{"rules": 20, "settings": 3, "tests": 8} {
		if count[kind] < least {
			t.Errorf("%d files of %s, want %d", count[kind], kind, least)
		}
	}
}

func wellFormed(cases []policyCase) bool {
	for _, c := range cases {
		if (c.Call == nil) == (c.Target == "") || !slices.Contains(verdictWords(), c.Expect) {
			return false
		}
	}
	return true
}

// TestDocumentsNameEveryKey: RULES.md has each key of the format, and the documents name no setting that there is not.
func TestDocumentsNameEveryKey(t *testing.T) {
	reference, err := os.ReadFile("../../RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for name, p := range properties {
			keys[name] = true
			walk(p)
		}
		if m["items"] != nil {
			walk(m["items"])
		}
	}
	walk(rules.Schema())
	if len(keys) < 20 {
		t.Errorf("the format has only the keys %v", keys)
	}
	for name := range keys {
		if !regexp.MustCompile("`" + name + "\\b|\\b" + name + ":").Match(reference) {
			t.Errorf("RULES.md does not name %s", name)
		}
	}
	var s settings
	known, groups := slices.Clone(later), map[string]bool{}
	for _, k := range s.table() {
		known = append(known, k.path)
		group, _, _ := strings.Cut(k.path, ".")
		groups[group] = true
	}
	found := 0
	for _, document := range []string{"README.md", "RULES.md", "SECURITY.md"} {
		text, err := os.ReadFile("../../" + document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([a-z]+)\\.([A-Za-z0-9.]+)").FindAllStringSubmatch(string(text), -1) {
			path := m[1] + "." + m[2]
			if !groups[m[1]] || slices.Contains([]string{"test", "yaml", "json", "md"}, m[2]) {
				continue
			}
			found++
			if !slices.ContainsFunc(known, func(k string) bool { return k == path || strings.HasSuffix(k, ".") && strings.HasPrefix(path, k) }) {
				t.Errorf("%s names the setting %s, which there is not", document, path)
			}
		}
	}
	if found == 0 {
		t.Error("no document names a setting")
	}
}

// TestSchemaCommandUsage: one known name.
func TestSchemaCommandUsage(t *testing.T) {
	for _, args := range [][]string{{"schema"}, {"schema", "rule"}, {"schema", "rules", "tests"}} {
		var out, errOut strings.Builder
		if code := run(context.Background(), args, stdio{strings.NewReader(""), &out, &errOut}); code != exitUsage || out.Len() > 0 {
			t.Errorf("%v ends with %d and prints %q, want %d and nothing", args, code, out.String(), exitUsage)
		}
	}
}
