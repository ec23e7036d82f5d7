package jsonc

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	v, err := Parse("f.json", []byte("{ // note\n  \"a\": [1, \"x\\u00e9\", true, null,],\n  \"b\": {}\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := v.Get("a")
	if a == nil || a.Kind != List || len(a.Items) != 4 || a.Line != 2 || a.Col != 8 {
		t.Fatalf("a: %+v", a)
	}
	if x := a.Items[1]; x.Kind != String || x.Text != "xé" || x.Line != 2 || x.Col != 12 {
		t.Errorf("item: %+v", x)
	}
	if v.Get("b").Kind != Map || v.Get("c") != nil || a.Get("x") != nil {
		t.Error("keys")
	}
	for _, empty := range []string{"", " \n", "// only a comment\n", "/* a */"} {
		if v, err := Parse("f", []byte(empty)); v != nil || err != nil {
			t.Errorf("%q: %v %v", empty, v, err)
		}
	}
}

// TestLastComment: a comment needs no line end behind it, and ends no value that is not whole.
func TestLastComment(t *testing.T) {
	for text, want := range map[string]bool{"{} // x": true, "{\"a\": 1} //": true, "{}\n// x": true, "// x": true, "{} /* x": false, "{ // }": false, "{} // x\n}": false, "{} / x": false} {
		if _, err := Parse("f", []byte(text)); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{":                          "f.json:1:2: no JSON: parsing value: unexpected EOF",
		"{\"a\": 1,\n \"a\": 2}":     `f.json:2:2: the key "a" stands here twice`,
		"{\"a\": 1} x":               "f.json:1:10: no JSON: invalid character 'x' after top-level value",
		"[01]":                       "f.json:1:2: no JSON: invalid literal: 01",
		strings.Repeat("[", 100_000): "f.json: too many brackets",
	} {
		if _, err := Parse("f.json", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.20q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// FuzzParse: what the standard library takes is taken, with the same strings.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":["b",1,null]}`, `[[],{}]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, "// c\n1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse("f", b)
		var want any
		if json.Unmarshal(b, &want) != nil || err != nil && strings.Contains(err.Error(), "twice") {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if s, ok := want.(string); ok && v.Text != s {
			t.Fatalf("%q: %q, want %q", b, v.Text, s)
		}
	})
}
