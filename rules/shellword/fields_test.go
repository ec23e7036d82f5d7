package shellword

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// TestFields: expansions that are known split words, join them, or make them go away.
func TestFields(t *testing.T) {
	values := map[string][]string{"one": {"a"}, "two": {"a", "b"}, "none": nil}
	expand := func(part syntax.WordPart, quoted bool) ([]string, bool) {
		p, ok := part.(*syntax.ParamExp)
		if !ok {
			return nil, false
		}
		fields, known := values[p.Param.Value]
		if quoted && len(fields) > 1 && p.Param.Value != "two" {
			fields = []string{strings.Join(fields, " ")}
		}
		return fields, known
	}
	for text, want := range map[string][]string{
		"x": {"x"}, "$one": {"a"}, "x${one}y": {"xay"}, "$two": {"a", "b"}, "x${two}y": {"xa", "by"}, "$none": nil, "x$none": {"x"}, `"$none"`: nil, `""`: {""}, `''$none`: {""}, "$other": {"$other"}, "$(x)": {"$(x)"}, `"${two}z"`: {"a", "bz"}, `\$one`: {"$one"}, `'$one'`: {"$one"},
	} {
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := Fields(file.Stmts[0].Cmd.(*syntax.CallExpr).Args[0], text, expand); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestANSI(t *testing.T) {
	for text, want := range map[string]string{
		`a\0b`: "a", `a\x00b`: "a", `\x72m`: "rm", `\162m`: "rm", `\u0072`: "r", `\U00000072`: "r", `\xc3\xa9`: "é", `\u00e9`: "é", `\e\E\a`: "\x1b\x1b\a", `\cA`: "\x01", `\z`: `\z`, `\xg`: `\xg`, `\\n`: `\n`, `\`: `\`, `\'\"`: `'"`,
	} {
		if got := ANSI(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEndComments(t *testing.T) {
	for text, want := range map[string]string{
		"a #b\\\nc": "a #b \nc", "#\\\nc": "# \nc", "a;#b\\\nc": "a;#b \nc", "a#b\\\nc": "a#b\\\nc", "a \\\nc": "a \\\nc", "a #b\nc \\\nd": "a #b\nc \\\nd", "": "", "a \\\n#b\\\nc": "a \\\n#b \nc",
	} {
		if got := EndComments(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
