//go:build unix

package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

const (
	allowA = "  - match: { network: { domains: [a.test] } }\n    action: allow\n    reason: a\n"
	allowB = "  - match: { network: { domains: [b.test] } }\n    action: allow\n    reason: b\n"
	denyA  = "  - match: { network: { domains: [a.test] } }\n    action: deny\n    reason: no a\n"
	toolX  = "  - match: { tools: [x] }\n    action: allow\n    reason: x\n"
)

// narrow gives options for a workspace whose changes must be accepted.
func narrow(t *testing.T, accept bool) Options {
	t.Helper()
	return Options{
		Workspace: t.TempDir(), Narrow: true, AcceptAtStart: accept, Trust: Trust{filepath.Join(t.TempDir(), "trust")},
		Policy: netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}},
	}
}

// verdicts gives what a snapshot says to a connection and to a tool call.
func verdicts(t *testing.T, r *Rules, authority string) string {
	t.Helper()
	target, err := netrule.ParseConnect(authority)
	must(t, err)
	return r.Current().Policy.Decide(netrule.Query{Target: target}).Action.String()
}

func tool(t *testing.T, r *Rules, name string) string {
	t.Helper()
	v, err := r.Current().Judge(rules.Call{Tool: name, Args: []byte("{}"), Workspace: "/w"}, true)
	must(t, err)
	if v.Passthrough {
		return "passthrough"
	}
	return v.Action.String()
}

// TestNarrow: what a program writes into its rules narrows at once and opens nothing, until somebody accepts it (CFG-20).
func TestNarrow(t *testing.T) {
	o := narrow(t, true)
	file := filepath.Join(o.Workspace, ".dsh/rules.yaml")
	write(t, file, "rules:\n"+allowA+toolX)
	r := load(t, o)
	expect := func(what string, want map[string]string) {
		t.Helper()
		for authority, action := range want {
			if got := verdicts(t, r, authority); got != action {
				t.Errorf("%s: %s is %s, want %s", what, authority, got, action)
			}
		}
	}
	expect("at the start", map[string]string{"a.test:443": "allow", "b.test:443": "deny"})
	if got := tool(t, r, "x"); got != "allow" {
		t.Errorf("x is %s", got)
	}

	write(t, file, "rules:\n"+allowB+allowA)
	if changed, err := r.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	expect("with an allow more", map[string]string{"a.test:443": "allow", "b.test:443": "deny"})
	if got := tool(t, r, "x"); got != "passthrough" {
		t.Errorf("an allow rule that is gone still allows: %s", got)
	}
	if s := r.Current(); s.Pending == nil || !strings.Contains(strings.Join(s.Warnings, "\n"), "dshproxy trust") {
		t.Errorf("nobody is told: %q", s.Warnings)
	}

	write(t, file, "rules:\n"+denyA+allowB)
	_, err := r.Reload()
	must(t, err)
	expect("with a denial", map[string]string{"a.test:443": "deny", "b.test:443": "deny"})

	reviewed, err := r.Review()
	must(t, err)
	if len(reviewed.Changes) != 1 || !strings.Contains(reviewed.Changes[0].Old, "reason: a\n") || !strings.Contains(reviewed.Changes[0].New, "no a") {
		t.Fatalf("%+v", reviewed)
	}
	write(t, file, "rules:\n"+allowA+allowB) // after the review: not what was accepted
	must(t, r.Accept(reviewed))
	_, err = r.Reload()
	must(t, err)
	expect("accepted before the last change", map[string]string{"a.test:443": "deny", "b.test:443": "allow"})

	reviewed, err = r.Review()
	must(t, err)
	// Another process accepts; the running one sees it.
	other := o
	other.AcceptAtStart = false
	must(t, load(t, other).Accept(reviewed))
	if changed, err := r.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	expect("accepted", map[string]string{"a.test:443": "allow", "b.test:443": "allow"})
	if r.Current().Pending != nil {
		t.Error("still pending")
	}
}

// TestNarrowNewFile: files that appear narrow, at any place where rules are looked for, and in any dialect.
func TestNarrowNewFile(t *testing.T) {
	o := narrow(t, true)
	parent := o.Workspace
	o.Workspace = filepath.Join(parent, "sub")
	o.SearchUp = true
	o.Dialects = Dialects()
	write(t, filepath.Join(parent, ".dsh/rules.yaml"), "rules:\n"+allowA)
	must(t, os.MkdirAll(o.Workspace, 0o755))
	r := load(t, o)
	write(t, filepath.Join(o.Workspace, ".dsh/rules.yaml"), "rules:\n"+allowB)
	write(t, filepath.Join(o.Workspace, ".claude/settings.json"), `{"permissions": {"allow": ["WebFetch(domain:c.test)", "Bash"], "deny": ["WebFetch(domain:a.test)"]}}`)
	write(t, filepath.Join(o.Workspace, ".pi/agent/pi-permissions.jsonc"), `{"tools": {"*": "allow"}}`)
	_, err := r.Reload()
	must(t, err)
	for authority, want := range map[string]string{"a.test:443": "deny", "b.test:443": "deny", "c.test:443": "deny"} {
		if got := verdicts(t, r, authority); got != want {
			t.Errorf("%s is %s, want %s", authority, got, want)
		}
	}
	if got := tool(t, r, "bash"); got == "allow" {
		t.Error("a settings file that was not accepted allows")
	}
}

// TestNarrowCommand: a command that was never started accepts nothing by itself.
func TestNarrowCommand(t *testing.T) {
	o := narrow(t, false)
	write(t, filepath.Join(o.Workspace, ".dsh/rules.yaml"), "rules:\n"+allowA+toolX)
	r := load(t, o)
	if got := verdicts(t, r, "a.test:443") + " " + tool(t, r, "x"); got != "deny passthrough" {
		t.Errorf("before: %s", got)
	}
	reviewed, err := r.Review()
	must(t, err)
	must(t, r.Accept(reviewed))
	r = load(t, o)
	if got := verdicts(t, r, "a.test:443") + " " + tool(t, r, "x"); got != "allow allow" {
		t.Errorf("after: %s", got)
	}
}

// TestNarrowAllow: allowing a host accepts that rule and nothing that stands beside it.
func TestNarrowAllow(t *testing.T) {
	o := narrow(t, true)
	file := filepath.Join(o.Workspace, ".dsh/rules.yaml")
	write(t, file, "rules:\n"+toolX)
	r := load(t, o)
	write(t, file, "rules:\n"+allowB)
	_, err := r.Reload()
	must(t, err)
	result, err := r.Allow(AllowRequest{Target: target(t, "a.test:443")})
	must(t, err)
	if !result.Written || result.Verdict.Action != netrule.Allow {
		t.Fatalf("%+v", result)
	}
	for authority, want := range map[string]string{"a.test:443": "allow", "b.test:443": "deny"} {
		if got := verdicts(t, r, authority); got != want {
			t.Errorf("%s is %s, want %s", authority, got, want)
		}
	}
	result, err = r.Allow(AllowRequest{Target: target(t, "a.test:443"), Remove: true})
	must(t, err)
	if got := verdicts(t, r, "a.test:443"); !result.Written || got != "deny" {
		t.Errorf("removed: %v, %s", result.Written, got)
	}
}

// TestTrustRecord: a record that is no record, or that others may write, is refused.
func TestTrustRecord(t *testing.T) {
	o := narrow(t, false)
	write(t, filepath.Join(o.Workspace, ".dsh/rules.yaml"), "rules:\n"+allowA)
	r := load(t, o)
	reviewed, err := r.Review()
	must(t, err)
	must(t, r.Accept(reviewed))
	path := o.Trust.path(o.Workspace)
	good, err := os.ReadFile(path)
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the record has mode %04o", info.Mode().Perm())
	}
	for name, spoiled := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"no JSON":           {"x", 0o600},
		"another workspace": {strings.Replace(string(good), o.Workspace, "/elsewhere", 1), 0o600},
		"writable":          {string(good), 0o666},
	} {
		must(t, os.WriteFile(path, []byte(spoiled.text), 0o600))
		must(t, os.Chmod(path, spoiled.mode))
		if err := newRules(t, o).Load(); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
}
