//go:build unix

package live

import (
	"path/filepath"
	"testing"

	"dshproxy/netrule"
)

// TestWorkspaces: one chain a folder, the one that was not used the longest given up, and never a union.
func TestWorkspaces(t *testing.T) {
	o := Options{Policy: netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}}}
	w := &Workspaces{Options: o, Max: 2}
	defer w.Close()
	a, _ := workspace(t, "rules:\n"+allowA)
	b, _ := workspace(t, "rules:\n"+allowB)
	c, _ := workspace(t, "rules: 1\n")
	decide := func(dir, host string) string {
		p, err := w.Policy(dir)
		if err != nil {
			return "error"
		}
		return p.Decide(netrule.Query{Target: target(t, "https://"+host+"/")}).Action.String()
	}
	for _, tt := range []struct{ dir, host, want string }{
		{a, "a.test", "allow"}, {a, "b.test", "deny"}, {b, "b.test", "allow"}, {b, "a.test", "deny"}, {c, "a.test", "error"}, {"relative", "a.test", "error"},
	} {
		if got := decide(tt.dir, tt.host); got != tt.want {
			t.Errorf("%s in %s: %s, want %s", tt.host, tt.dir, got, tt.want)
		}
	}
	first, err := w.Rules(b)
	must(t, err)
	if again, err := w.Rules(b); err != nil || again != first {
		t.Error("loaded twice")
	}
	_, err = w.Rules(a)
	must(t, err)
	d, _ := workspace(t, "rules: []\n")
	_, err = w.Rules(d) // b was not asked for the longest
	must(t, err)
	if again, err := w.Rules(b); err != nil || again == first {
		t.Errorf("b was kept beyond the limit: %v", err)
	}
	if n := len(w.all()); n != 2 {
		t.Errorf("%d are loaded", n)
	}
	write(t, filepath.Join(b, DefaultRulesFile), "rules:\n"+allowA)
	if changed, err := w.Reload(); !changed || err != nil {
		t.Error(changed, err)
	}
	if got := decide(b, "a.test"); got != "allow" {
		t.Errorf("after the reload: %s", got)
	}
}

// TestWorkspacesNarrow: being given up and coming back accepts nothing.
func TestWorkspacesNarrow(t *testing.T) {
	o := narrow(t, true)
	w := &Workspaces{Options: o, Max: 1}
	defer w.Close()
	a, file := workspace(t, "rules:\n"+allowA)
	b, _ := workspace(t, "rules: []\n")
	_, err := w.Rules(a)
	must(t, err)
	_, err = w.Rules(b)
	must(t, err)
	write(t, file, "rules:\n"+allowA+allowB)
	r, err := w.Rules(a)
	must(t, err)
	if got := verdict(t, r, "https://a.test/") + " " + verdict(t, r, "https://b.test/"); got != "allow allowed_by_rule deny not_allowed" {
		t.Errorf("got %s", got)
	}
}
