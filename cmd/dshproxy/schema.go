package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"dshproxy/proxy/decisionlog"
	"dshproxy/rules"

	"github.com/spf13/cobra"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema rules|settings|records|tests",
		Short: "A JSON Schema of a file format, for editors and checks",
		Long: "Prints the JSON Schema (draft 2020-12) of rule files, the settings file, the lines of the decision log, or *_test.yaml files.\n" +
			"Editors with the YAML language server complete and check a file that begins with\n\n" +
			"  # yaml-language-server: $schema=rules.schema.json",
		Example:   "  dshproxy schema rules >.dsh/rules.schema.json",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"rules", "settings", "records", "tests"},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "rules":
				return printSchema(a.io.out, rules.Schema())
			case "settings":
				a.settings.setDefaults()
				return printSchema(a.io.out, a.settings.schema())
			case "records":
				_, err := io.WriteString(a.io.out, decisionlog.Schema)
				return err
			case "tests":
				return printSchema(a.io.out, testSchema())
			default:
				return usageError("rules, settings, records or tests", "no schema is called %q", args[0])
			}
		},
	}
}

func printSchema(w io.Writer, schema map[string]any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(schema)
}

// schemaHead makes a schema the root of a document. An empty file is valid where null is.
func schemaHead(schema map[string]any, id, title string) map[string]any {
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["$id"] = id
	schema["title"] = title
	return schema
}

func objectSchema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

// schema is that of the settings file: the table, with the parts of each path below one another. The defaults of s stand in
// the descriptions.
func (s *settings) schema() map[string]any {
	root := objectSchema()
	for _, k := range s.table() {
		at := root
		parts := strings.Split(k.path, ".")
		for _, part := range parts[:len(parts)-1] {
			properties := at["properties"].(map[string]any)
			if properties[part] == nil {
				properties[part] = objectSchema()
			}
			at = properties[part].(map[string]any)
		}
		v := k.value.schema()
		v["description"] = k.doc
		if d := k.value.String(); d != "" && d != "[]" {
			v["description"] = fmt.Sprintf("%s (default %s)", k.doc, d)
		}
		at["properties"].(map[string]any)[parts[len(parts)-1]] = v
	}
	root["type"] = []string{"object", "null"}
	return schemaHead(root, "dshproxy-settings/v1", "The settings of dshproxy")
}

// described is a type with a schema of its own.
type described interface{ schema() map[string]any }

// constrained is a struct type whose fields do not say everything.
type constrained interface{ constrain(schema map[string]any) }

// typeSchema is the schema of what the YAML library decodes into a type. The tag doc of a field is its description;
// `need:"yes"` makes it required.
func typeSchema(t reflect.Type) map[string]any {
	if d, ok := reflect.Zero(t).Interface().(described); ok {
		return d.schema()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem())
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.Interface:
		return map[string]any{} // anything
	case reflect.String:
		// The library takes the text of any scalar for a string.
		return map[string]any{"type": []string{"string", "number", "boolean"}}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	default:
		panic("no schema for " + t.String())
	}
}

func structSchema(t reflect.Type) map[string]any {
	s := objectSchema()
	var required []string
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		p := typeSchema(f.Type)
		p["description"] = f.Tag.Get("doc")
		s["properties"].(map[string]any)[name] = p
		if f.Tag.Get("need") == "yes" {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if c, ok := reflect.Zero(t).Interface().(constrained); ok {
		c.constrain(s)
	}
	return s
}

func testSchema() map[string]any {
	return schemaHead(typeSchema(reflect.TypeFor[testFile]()), "dshproxy-tests/v1", "Tests of a policy, for dshproxy test")
}
