package rules

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dshproxy/rules/tree"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// compiledSchema is the schema as an editor reads it: the compiler checks it against the meta-schema.
func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("rules.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// jsonValue is a YAML node as the JSON that a schema judges.
func jsonValue(n *yaml.Node) any {
	if n == nil {
		return nil
	}
	v := tree.Resolve(n)
	switch v.Kind {
	case tree.Map:
		out := map[string]any{}
		for i := 0; i+1 < len(v.Node.Content); i += 2 {
			out[tree.KeyText(tree.Deref(v.Node.Content[i]))] = jsonValue(v.Node.Content[i+1])
		}
		return out
	case tree.List:
		out := []any{}
		for _, c := range v.Node.Content {
			out = append(out, jsonValue(c))
		}
		return out
	case tree.Number:
		if _, err := strconv.ParseFloat(v.Text, 64); err != nil || strings.HasSuffix(v.Text, "Infinity") || v.Text == "NaN" {
			return 1.5 // JSON has no such number; any that is no integer will do
		}
		return json.Number(v.Text)
	case tree.Bool:
		return v.Text == "true"
	case tree.Null:
		return nil
	default:
		return v.Text
	}
}

// beyondSchema are the bad files whose fault a schema cannot say, by the reason why.
var beyondSchema = map[string][]string{
	"a cap of the settings":             {"tools-glob-stars", "argv-pipeline-glob", "domain-stars", "ip-glob-stars"},
	"globs or regular expressions":      {"params-glob", "params-negated-glob", "argv-anyarg-glob", "paths-glob", "when-env-glob", "paths-absolute"},
	"an order of numbers or characters": {"port-range-reversed", "tools-glob-reversed"},
	"the spelling of hosts":             {"domain-bad-punycode", "domain-class-first", "domain-class-unclosed", "domain-class-whole", "domain-empty-label", "domain-exact-wildcard", "domain-hyphen", "domain-idna-wildcard", "domain-ipv6", "domain-long-label", "domain-number-address", "domain-template"},
	"the spelling of addresses":         {"ip-octet", "ip-prefix-length-6", "ip-prefix-length", "ip-prefix-octet"},
}

// TestSchemaRefusesBadFiles: what is wrong by its shape shows in an editor, and the rest is on a list. Files that are no
// YAML, or no tree, have no shape.
func TestSchemaRefusesBadFiles(t *testing.T) {
	s := compiledSchema(t)
	beyond := slices.Concat(slices.Collect(maps.Values(beyondSchema))...)
	files, err := filepath.Glob(filepath.Join(badDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	refused := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		root, err := tree.Parse(file, text, nodesPerRule)
		if err != nil {
			if slices.Contains(beyond, name) {
				t.Errorf("%s is on the list and no tree", name)
			}
			continue
		}
		// Whether a text is a regular expression is a setting, so no schema says how those are written.
		listed := slices.Contains(beyond, name) || strings.HasPrefix(name, "regex-")
		switch err := s.Validate(jsonValue(root)); {
		case err == nil && !listed:
			t.Errorf("%s is valid by the schema; if that cannot be helped, list it", name)
		case err != nil && slices.Contains(beyond, name):
			t.Errorf("%s is refused by the schema: take it off the list", name)
		case err != nil:
			refused++
		}
	}
	if refused < 60 {
		t.Errorf("only %d files refused by the schema", refused)
	}
}

// TestSchemaTakesWhatLoads: the schema is never stricter than Parse. FuzzParse tests the same with hostile files.
func TestSchemaTakesWhatLoads(t *testing.T) {
	s := compiledSchema(t)
	texts := []string{
		"", "# nothing\n", "rules: []", "rules: [{action: deny, reason: r, tags: t, enabled: false, description: d, match: {}}]",
		"rules: [{action: deny, reason: r, match: {tools: '[!a]\\*', params: {a: '', b: [1, true, '!x']}, absent: [], when: {env: {}, platform: []}}}]",
		"rules: [{action: deny, reason: r, match: {argv: {args: [], pipeline: 'a|b'}, network: {ports: ['*', 443, '007-9', 443.0], domains: ['=[::1]', true, .a.test, 'a..', 'x*.y'], ips: [' 10.* ', '::ffff:1.2.3.*', '[12].0.0.1']}}}]",
	}
	for _, file := range []string{"baseline.yaml", "../docker/rules.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	vectors, err := os.ReadFile("../testdata/vectors/rules.json")
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct{ Vectors []struct{ Rules string } }
	if err := json.Unmarshal(vectors, &corpus); err != nil {
		t.Fatal(err)
	}
	fixed := len(texts)
	for _, v := range corpus.Vectors {
		texts = append(texts, v.Rules)
	}
	loaded := 0
	for i, text := range texts {
		for _, regex := range []bool{false, true} {
			if _, err := Parse("f.yaml", []byte(text), Options{Regex: regex, MaxGlobStars: 9}); err != nil {
				if i < fixed && !regex {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			loaded++
			root, err := tree.Parse("f.yaml", []byte(text), 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(jsonValue(root)); err != nil {
				t.Errorf("%q loads and is not valid: %v", text, err)
			}
		}
	}
	if loaded < 400 {
		t.Errorf("only %d texts load", loaded)
	}
}

// TestSchemaHasEveryKey: each key of the table is read, described, and in the schema with its own properties.
func TestSchemaHasEveryKey(t *testing.T) {
	var walk func(prefix string, m *mapping, s map[string]any)
	walk = func(prefix string, m *mapping, s map[string]any) {
		properties := s["properties"].(map[string]any)
		if len(properties) != len(m.fields) || s["additionalProperties"] != false {
			t.Errorf("%s: %d properties for %d keys", prefix, len(properties), len(m.fields))
		}
		for _, f := range m.fields {
			p, ok := properties[f.name].(map[string]any)
			if !ok || p["description"] != f.doc || !strings.HasSuffix(f.doc, ".") {
				t.Errorf("%s%s: no property that says %q as a sentence", prefix, f.name, f.doc)
				continue
			}
			switch f.shape {
			case shapeRules:
				walk(prefix+f.name+"[].", f.sub, p["items"].(map[string]any))
			case shapeMapping:
				walk(prefix+f.name+".", f.sub, p)
			default:
			}
		}
	}
	walk("", document(), Schema())
}
