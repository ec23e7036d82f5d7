//go:build unix

package live

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// anyPort is network.defaultPorts any.
var anyPort = []netrule.PortRange{{Lo: 1, Hi: 65535}}

func allowOf(t *testing.T, text string) AllowRequest {
	t.Helper()
	return AllowRequest{Target: target(t, text)}
}

const allowedBlock = "- match: { network: { domains: [\"=api.example\"], ports: [443] } }\n  action: allow\n  reason: \"allowed with dshproxy allow\"\n"

func TestAllow(t *testing.T) {
	old := "# ours\r\nrules: # all\r\n# the first\r\n- {match: {network: {domains: [example]}}, action: deny, reason: no} # c\r\n"
	dir, file := workspace(t, old)
	must(t, os.Chmod(file, 0o600))
	r := load(t, Options{Workspace: dir})
	got, err := r.Allow(allowOf(t, "https://api.example"))
	must(t, err)
	want := strings.Replace(old, "# all\r\n", "# all\r\n"+strings.ReplaceAll(allowedBlock, "\n", "\r\n"), 1)
	if read(t, file) != want {
		t.Errorf("the file is\n%q\nwant\n%q", read(t, file), want)
	}
	if !got.Written || got.File != file || got.Verdict.Code != netrule.CodeAllowedByRule || got.Verdict.Rule.Index != 0 {
		t.Errorf("result %+v", got)
	}
	if wantDiff := "+" + strings.ReplaceAll(strings.TrimSuffix(allowedBlock, "\n"), "\n", "\n+") + "\n"; got.Diff != wantDiff {
		t.Errorf("diff %q, want %q", got.Diff, wantDiff)
	}
	if len(got.Overrides) != 1 || got.Overrides[0].Reason != "no" || got.Overrides[0].Index != 1 || got.Overrides[0].Line != 7 {
		t.Errorf("overrides %+v, want the deny rule where it stands now", got.Overrides)
	}
	if v := verdict(t, r, "https://api.example"); v != "allow allowed_by_rule" {
		t.Errorf("the loaded policy says %s", v)
	}
	for _, other := range []string{"https://www.api.example", "http://api.example", "https://api.example:8443"} {
		if v := verdict(t, r, other); v != "deny denied_by_rule" {
			t.Errorf("%s: %s, want it denied as before", other, v)
		}
	}
	checkFolder(t, filepath.Dir(file), "rules.yaml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode has become %v, %v", info.Mode(), err)
	}
	if changed, err := r.Reload(); changed || err != nil {
		t.Errorf("Reload behind Allow = %v, %v, want nothing new", changed, err)
	}
	again, err := r.Allow(allowOf(t, "https://api.example"))
	if err != nil || again.Written || again.Diff != "" || read(t, file) != want {
		t.Errorf("a second time: %+v, %v, want nothing written", again, err)
	}
	req := allowOf(t, "https://api.example")
	req.Remove = true
	removed, err := r.Allow(req)
	if err != nil || !removed.Written || read(t, file) != old || removed.Verdict.Code != netrule.CodeDeniedByRule {
		t.Errorf("removed: %+v, %v\n%q", removed, err, read(t, file))
	}
	if removed, err = r.Allow(req); err != nil || removed.Written {
		t.Errorf("removed twice: %+v, %v", removed, err)
	}
}

// checkFolder: no temporary file stays.
func checkFolder(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func TestAllowCreatesTheFile(t *testing.T) {
	dir := t.TempDir()
	r := load(t, Options{Workspace: dir})
	got, err := r.Allow(allowOf(t, "api.example"))
	must(t, err)
	file := filepath.Join(dir, DefaultRulesFile)
	if !got.Written || got.File != file || got.Verdict.Action != netrule.Allow {
		t.Errorf("result %+v", got)
	}
	want := "rules:\n  - match: { network: { domains: [\"=api.example\"] } }\n    action: allow\n    reason: \"allowed with dshproxy allow\"\n"
	if read(t, file) != want {
		t.Errorf("the file is %q, want %q", read(t, file), want)
	}
}

// The rule goes to the file that judges: the nearest that is loaded.
func TestAllowChoosesTheFile(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "work")
	must(t, os.Mkdir(dir, 0o755))
	up, near := filepath.Join(root, DefaultRulesFile), filepath.Join(dir, DefaultRulesFile)
	write(t, up, denies("api"))
	r := load(t, Options{Workspace: dir, SearchUp: true})
	if got, err := r.Allow(allowOf(t, "https://one.example")); err != nil || got.File != up {
		t.Errorf("File = %s, %v, want %s", got.File, err, up)
	}
	write(t, near, denies("near"))
	_, err := r.Reload()
	must(t, err)
	if got, err := r.Allow(allowOf(t, "https://api.example")); err != nil || got.File != near || got.Verdict.Action != netrule.Allow {
		t.Errorf("File = %s, verdict %v, %v, want %s and allow", got.File, got.Verdict.Action, err, near)
	}
	absolute := filepath.Join(root, "absolute.yaml")
	write(t, absolute, "rules: []\n")
	r = load(t, Options{Workspace: dir, RulesFile: absolute})
	if got, err := r.Allow(allowOf(t, "https://api.example")); err != nil || got.File != absolute {
		t.Errorf("File = %s, %v, want %s", got.File, err, absolute)
	}
}

// An address in special-use space needs ips, which the request has to bring.
func TestAllowPrivate(t *testing.T) {
	dir, file := workspace(t, "rules: []\n")
	r := load(t, Options{Workspace: dir, Policy: netrule.Options{DefaultPorts: anyPort}})
	req := allowOf(t, "https://db.example:5432")
	req.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	got, err := r.Allow(req)
	must(t, err)
	if got.Verdict.Action != netrule.Allow || !slices.Equal(got.Verdict.Kept(), req.Addrs) || !strings.Contains(read(t, file), `ips: ["10.0.0.5"]`) {
		t.Errorf("verdict %+v, file %q", got.Verdict, read(t, file))
	}
	if again, err := r.Allow(req); err != nil || again.Written {
		t.Errorf("a second time: %+v, %v", again, err)
	}
}

// TestAllowUnderManaged: managed denies hold; what is reported as overridden is what really is.
func TestAllowUnderManaged(t *testing.T) {
	dir, _ := workspace(t, denies("api"))
	managed := filepath.Join(t.TempDir(), "managed.yaml")
	write(t, managed, denies("api"))
	before := read(t, managed)
	r := load(t, Options{Workspace: dir, Managed: []string{managed}})
	got, err := r.Allow(allowOf(t, "https://api.example"))
	must(t, err)
	if got.Verdict.Action != netrule.Deny || got.Verdict.Rule.Layer != "managed" || read(t, managed) != before {
		t.Errorf("verdict %v by %+v, want the managed rule to hold", got.Verdict.Action, got.Verdict.Rule)
	}
	if len(got.Overrides) != 1 || got.Overrides[0].Layer != "workspace" {
		t.Errorf("overrides %+v, want the workspace's deny rule alone", got.Overrides)
	}
}

// TestAllowRefuses: nothing is written, and the loaded rules stay.
func TestAllowRefuses(t *testing.T) {
	tests := []struct {
		name  string
		opts  Options
		spoil func(t *testing.T, dir, file string)
	}{
		{"a file that is a link", Options{}, func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, filepath.Join(dir, "real.yaml")))
			must(t, os.Symlink("../real.yaml", file))
		}},
		{"a file that became bad", Options{}, func(t *testing.T, _, file string) { write(t, file, "rules: [\n") }},
		{"a file that became a folder", Options{}, func(t *testing.T, _, file string) { must(t, os.Remove(file)); must(t, os.Mkdir(file, 0o755)) }},
		{"a file that became too large", Options{MaxBytes: 200}, func(t *testing.T, _, file string) { write(t, file, denies("x")+strings.Repeat("#", 200)) }},
		{"a chain that is full", Options{Parse: rules.Options{MaxRules: 1}}, func(*testing.T, string, string) {}},
		{"a file that would grow too large", Options{MaxBytes: int64(len(denies("x"))) + 10}, func(*testing.T, string, string) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, file := workspace(t, denies("x"))
			opts := tt.opts
			opts.Workspace = dir
			r := load(t, opts)
			tt.spoil(t, dir, file)
			before, _ := os.ReadFile(file)
			got, err := r.Allow(allowOf(t, "https://api.example"))
			if err == nil || got.Written {
				t.Errorf("Allow = %+v, %v, want an error and nothing written", got, err)
			}
			if after, _ := os.ReadFile(file); string(after) != string(before) {
				t.Errorf("the file has become %q", after)
			}
			if reasons(r.Current().Chain) != "x" {
				t.Errorf("the loaded rules have become %q", reasons(r.Current().Chain))
			}
		})
	}
}

func TestAllowRefusesNoHost(t *testing.T) {
	dir, _ := workspace(t, denies("x"))
	if got, err := load(t, Options{Workspace: dir}).Allow(AllowRequest{}); err == nil {
		t.Errorf("Allow of nothing = %+v", got)
	}
}

// CFG-19: the program inside owns the workspace. It must not get the operator's edit to land anywhere else.
func TestAllowStaysInTheWorkspace(t *testing.T) {
	t.Run("the folder became a link", func(t *testing.T) {
		dir, outside := t.TempDir(), t.TempDir()
		r := load(t, Options{Workspace: dir})
		must(t, os.Symlink(outside, filepath.Join(dir, ".dsh")))
		if got, err := r.Allow(allowOf(t, "https://api.example")); err == nil {
			t.Errorf("Allow = %+v, want a refusal", got)
		}
		checkFolder(t, outside)
	})
	t.Run("the temporary file is a link already", func(t *testing.T) {
		dir, file := workspace(t, denies("x"))
		victim := filepath.Join(dir, ".dsh", "victim")
		write(t, victim, "precious\n")
		must(t, os.Symlink("victim", filepath.Join(dir, ".dsh", fmt.Sprintf(".rules.yaml.%d.tmp", os.Getpid()))))
		r := load(t, Options{Workspace: dir})
		_, err := r.Allow(allowOf(t, "https://api.example"))
		if got := read(t, victim); got != "precious\n" {
			t.Errorf("another file was overwritten with %q (%v)", got, err)
		}
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the rule file has become %v, %v", info.Mode(), err)
		}
	})
}

// Edits that come at the same time, from the page and the command line, must not lose one another.
func TestAllowAtTheSameTime(t *testing.T) {
	dir, file := workspace(t, "rules: []\n")
	r := load(t, Options{Workspace: dir})
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		req := allowOf(t, fmt.Sprintf("https://h%d.example", i))
		wg.Go(func() {
			if _, err := r.Allow(req); err != nil {
				t.Errorf("Allow %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if host := fmt.Sprintf("=h%d.example", i); !strings.Contains(read(t, file), host) {
			t.Errorf("the rule for %s is lost", host)
		}
	}
	if len(r.Current().Chain) != n {
		t.Errorf("%d rules are loaded, want %d", len(r.Current().Chain), n)
	}
}
