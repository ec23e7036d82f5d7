package decisionlog

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"dshproxy/netrule"
)

// TestSchemaHasNoMore: every key of the schema is one that a line can have, and its words are those of the types. The
// reverse, no line with more than the schema says, is what every validated line shows.
func TestSchemaHasNoMore(t *testing.T) {
	type object struct {
		Enum       []string
		Properties map[string]struct {
			Enum       []string
			Properties map[string]any
			Items      struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
	var schema struct {
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(Schema), &schema); err != nil {
		t.Fatal(err)
	}
	full := fullDecision()
	closed, good, bad := Close{Duration: time.Second, SNI: "a.test"}, Reload{OK: true, Policy: "x"}, Reload{Error: "y"}
	tool := Tool{Tool: "bash", Cwd: "/w", Rule: full.Decision.Rule, Unparsed: true, DryRun: true, Policy: "x"}
	for name, adders := range map[string][]func([]byte) []byte{
		"tool": {tool.Append}, "decision": {full.appendTo}, "close": {closed.appendTo}, "reload": {good.appendTo, bad.appendTo},
	} {
		written := map[string]any{}
		for _, add := range adders {
			if err := json.Unmarshal(add(nil), &written); err != nil {
				t.Fatal(err)
			}
		}
		properties := schema.Defs[name].Properties
		if len(properties) == 0 {
			t.Errorf("the schema has no %s", name)
		}
		for key, p := range properties {
			if written[key] == nil {
				t.Errorf("%s.%s is in the schema and in no line", name, key)
			}
			below, _ := written[key].(map[string]any)
			for k := range p.Properties {
				if below[k] == nil {
					t.Errorf("%s.%s.%s is in the schema and in no line", name, key, k)
				}
			}
		}
	}
	decision := schema.Defs["decision"].Properties
	classes := []string{netrule.ClassUnknown.String()}
	for _, c := range netrule.Classes() {
		classes = append(classes, c.String())
	}
	if got := decision["addresses"].Items.Properties["class"].Enum; !slices.Equal(got, classes) {
		t.Errorf("classes %v, want %v", got, classes)
	}
	for word, known := range map[string]func(string) bool{
		"action": func(s string) bool { _, ok := netrule.ParseAction(s); return ok },
		"mode":   func(s string) bool { _, ok := netrule.ParseMode(s); return ok },
	} {
		words := append(schema.Defs[word].Enum, decision[word].Enum...)
		if len(words) != 3 || slices.ContainsFunc(words, func(s string) bool { return !known(s) }) {
			t.Errorf("%s: words %v", word, words)
		}
	}
}
