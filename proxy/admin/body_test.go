package admin

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	deep := func(n int) string {
		return `{"tool":"x","args":` + strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) + `}`
	}
	tests := []struct{ body, err string }{
		{``, ""},
		{"\n", ""},
		{`{"tool":"x","args":{"a":{"b":1,"B":2}},"env":{"k":"v"}}`, ""},
		{`{"agent":["a","b"],"args":{"list":[{"a":1},{"a":1}]}}`, ""},
		{deep(maxDepth - 2), ""},
		{deep(maxDepth), "the body is nested more than 512 deep"},
		{`{"args":` + strings.Repeat("[", 1<<20), "the body is nested more than 512 deep"},
		{`{"tool":"x","tool":"y"}`, `the key "tool" stands twice`},
		{`{"tool":"x","\u0074ool":"y"}`, `the key "tool" stands twice`},
		{`{"args":{"a":1,"A":2}}`, `the key "a" stands twice`},
		{`{"args":{"a":{"b":1,"b":2}}}`, `the key "b" stands twice`},
		{`{"args":{"a":[{"b":1,"b":2}]}}`, `the key "b" stands twice`},
		{`{"Tool":"x"}`, `unknown key "Tool"`},
		{`{"tool":"x","":1}`, `unknown key ""`},
		{`{"tool":{}}`, `"tool": a value of the wrong type or out of range: object`},
		{"{\"tool\":\"\xff\"}", "the body is no UTF-8"},
		{`{} x`, "something follows the JSON object"},
		{`{}]`, "something follows the JSON object"},
		{`"x"`, "the body must be a JSON object"},
		{`null`, "the body must be a JSON object"},
		{`{"tool":"x"`, "the body is no JSON: unexpected EOF"},
		{`{"tool":}`, "the body is no JSON:"},
		{`{"tool" "x"}`, "the body is no JSON:"},
		{`{]`, "the body is no JSON:"},
	}
	for _, tt := range tests {
		var c Call
		err := decode([]byte(tt.body), &c)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err)) {
			t.Errorf("%.60s: %v, want %q", tt.body, err, tt.err)
		}
	}
}

// FuzzDecode: what is taken is what encoding/json takes, with no key that the two could read differently.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"tool":"x","args":{"a":[1,{"b":null}]},"agent":["a"]}`, `{"tool":"x","tool":"y"}`, `[`, `{"args":{"a":1,"A":2}}`, "{\"\xff\":1}", `{}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c, plain Call
		if err := decode(body, &c); err != nil || len(strings.TrimSpace(string(body))) == 0 {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("taken, but no JSON: %q", body)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(body, &keys); err != nil {
			t.Fatalf("taken, but no object: %q: %v", body, err)
		}
		for k := range keys {
			switch k {
			case "tool", "args", "cwd", "agent", "platform", "env":
			default:
				t.Fatalf("unknown key %q in %q", k, body)
			}
		}
		if err := json.Unmarshal(body, &plain); err != nil || plain.Tool != c.Tool || string(plain.Args) != string(c.Args) {
			t.Fatalf("%q: %+v, encoding/json has %+v, %v", body, c, plain, err)
		}
	})
}
