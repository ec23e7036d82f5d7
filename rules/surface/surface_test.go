package surface

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"dshproxy/netrule"
)

func TestDefaults(t *testing.T) {
	if r := Evaluate(Options{}, "constructor", "x"); r.Matched() || r.Rule != (Rule{"constructor", "x", netrule.Ask}) {
		t.Errorf("%+v", r)
	}
	deny := netrule.Deny
	if r := Evaluate(Options{Default: &deny}, "bash", "x"); r.Rule.Action != netrule.Deny {
		t.Errorf("%+v", r)
	}
	var zero Rule
	if zero.Action != netrule.Deny {
		t.Error("the zero rule does not deny")
	}
}

func TestHome(t *testing.T) {
	o := Options{Home: "/home/u"}
	for pattern, want := range map[string]bool{"~/x/*": true, "$HOME/x/*": true, "~x/*": false, "/home/u/x/*": true} {
		if got := o.match(pattern, "/home/u/x/y"); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}

// FuzzWildcard holds the matcher to the regular expression that defines it.
func FuzzWildcard(f *testing.F) {
	for _, s := range []string{"git *", "*a*b", "a?c", "**", "x*\n"} {
		f.Add(s, "git status\n", true)
		f.Add(s, "aXb", false)
	}
	f.Fuzz(func(t *testing.T, pattern, value string, current bool) {
		if len(pattern) > 40 || len(value) > 80 || strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(value, "") != value {
			return
		}
		text := regexp.QuoteMeta(pattern)
		if current {
			text = "(?s)^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(text) + "$"
		} else {
			text = "^" + strings.ReplaceAll(text, `\*`, "[^\\n\\r\\x{2028}\\x{2029}]*") + "$"
		}
		if strings.Contains(pattern, `\`) {
			return // QuoteMeta writes a backslash in two characters, which the replacement above would cut
		}
		got, _ := wildcard(pattern, value, current, math.MaxInt)
		if want := regexp.MustCompile(text).MatchString(value); got != want {
			t.Fatalf("%q on %q (current %v): %v, want %v", pattern, value, current, got, want)
		}
	})
}
