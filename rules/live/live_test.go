//go:build unix

package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// denies is a rule file with a deny rule for each reason, about the host of that name.
func denies(reasons ...string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, r := range reasons {
		fmt.Fprintf(&b, "- {match: {network: {domains: [%s.example]}}, action: deny, reason: %s}\n", r, r)
	}
	return b.String()
}

// write puts a file in place by a rename, as editors do, so that no reader sees half of it.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRules(t testing.TB, opts Options) *Rules {
	t.Helper()
	r, err := New(opts)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

func load(t *testing.T, opts Options) *Rules {
	t.Helper()
	r := newRules(t, opts)
	must(t, r.Load())
	return r
}

// workspace makes a workspace with a rule file and gives both paths.
func workspace(t *testing.T, text string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, DefaultRulesFile)
	write(t, file, text)
	return dir, file
}

func reasons(all []rules.Rule) string {
	var out []string
	for _, r := range all {
		out = append(out, r.Reason)
	}
	return strings.Join(out, " ")
}

func target(t *testing.T, text string) netrule.Target {
	t.Helper()
	parsed, err := netrule.ParseURL(text)
	must(t, err)
	return parsed
}

// verdict is what the loaded policy says of a target by name.
func verdict(t *testing.T, r *Rules, text string) string {
	t.Helper()
	d := r.Current().Policy.Decide(netrule.Query{Target: target(t, text)})
	return d.Action.String() + " " + d.Code.String()
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		opts Options
		want string
	}{
		{Options{Workspace: "relative"}, `workspace "relative" is not absolute`},
		{Options{}, `workspace "" is not absolute`},
		{Options{Workspace: "/w", RulesFile: "/r.yaml", SearchUp: true}, "searchUp needs a relative rulesFile"},
	}
	for _, tt := range tests {
		if _, err := New(tt.opts); err == nil || err.Error() != tt.want {
			t.Errorf("New(%+v) error = %v, want %s", tt.opts, err, tt.want)
		}
	}
}

func TestBeforeLoad(t *testing.T) {
	r := newRules(t, Options{Workspace: t.TempDir()})
	if r.Current() != nil || r.LastError() != "" {
		t.Errorf("Current = %v, LastError = %q before the first load", r.Current(), r.LastError())
	}
	if p, err := r.Policy(""); err == nil || p != nil {
		t.Errorf("Policy = %v, %v before the first load, want an error", p, err)
	}
	if changed, err := r.Reload(); changed || err == nil {
		t.Errorf("Reload = %v, %v before the first load, want an error", changed, err)
	}
	if _, err := r.Allow(AllowRequest{Target: netrule.Target{Host: "a.example"}}); err == nil {
		t.Error("Allow works before the first load")
	}
}

// TestDiscovery makes /up/work with rule files at some places and looks which are loaded, in which order.
func TestDiscovery(t *testing.T) {
	const here, up, other, fallback = "up/work/.dsh/rules.yaml", "up/.dsh/rules.yaml", "up/work/conf/r.yaml", "fallback.yaml"
	tests := []struct {
		name  string
		files []string
		opts  Options
		want  string // reasons, which are the names of the files; or an error
	}{
		{"nothing", nil, Options{}, ""},
		{"the workspace's file", []string{here, up, fallback}, Options{}, "here"},
		{"parents are not searched unless asked", []string{up}, Options{}, ""},
		{"searchUp, nearest first", []string{here, up}, Options{SearchUp: true}, "here up"},
		{"searchUp over a gap", []string{up}, Options{SearchUp: true}, "up"},
		{"another name", []string{here, other}, Options{RulesFile: "conf/r.yaml"}, "other"},
		{"an absolute file", []string{here, other}, Options{RulesFile: "/up/work/conf/r.yaml"}, "other"},
		{"an absolute file that is missing", []string{here}, Options{RulesFile: "/up/work/conf/r.yaml"}, "error: up/work/conf/r.yaml: no such file or directory"},
		{"the fallback", []string{fallback}, Options{FallbackPath: "/fallback.yaml"}, "fallback"},
		{"the fallback is never added", []string{here, fallback}, Options{FallbackPath: "/fallback.yaml"}, "here"},
		{"the fallback stands behind parents", []string{up, fallback}, Options{SearchUp: true, FallbackPath: "/fallback.yaml"}, "up"},
		{"the fallback must exist", nil, Options{FallbackPath: "/fallback.yaml"}, "error: fallback.yaml: no such file or directory"},
		{"the fallback must exist even when it is not needed", []string{here}, Options{FallbackPath: "/fallback.yaml"}, "error: fallback.yaml: no such file or directory"},
		{"no way out by the name", []string{up}, Options{RulesFile: "../.dsh/rules.yaml"}, "error: up/.dsh/rules.yaml: path escapes from parent"},
	}
	names := map[string]string{here: "here", up: "up", other: "other", fallback: "fallback"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.MkdirAll(filepath.Join(root, "up/work"), 0o755))
			for _, f := range tt.files {
				write(t, filepath.Join(root, f), denies(names[f]))
			}
			opts := tt.opts
			opts.Workspace = filepath.Join(root, "up/work")
			for _, p := range []*string{&opts.RulesFile, &opts.FallbackPath} {
				if strings.HasPrefix(*p, "/") {
					*p = filepath.Join(root, *p)
				}
			}
			r := newRules(t, opts)
			got := ""
			if err := r.Load(); err != nil {
				got = "error: " + strings.ReplaceAll(err.Error(), root+"/", "")
			} else {
				got = reasons(r.Current().Chain)
				checkFiles(t, r.Current(), root)
			}
			if got != tt.want {
				t.Errorf("loaded %q, want %q", got, tt.want)
			}
		})
	}
}

// checkFiles: every rule names its file, absolute, and the snapshot lists it.
func checkFiles(t *testing.T, s *Snapshot, root string) {
	t.Helper()
	for _, rule := range s.Chain {
		listed := slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == rule.File && f.Rules == 1 && !f.Managed })
		if !strings.HasPrefix(rule.File, root) || !listed {
			t.Errorf("rule %q of %s, which is not among %v", rule.Reason, rule.File, s.Files)
		}
	}
	if len(s.Files) != len(s.Chain) || s.Hash == "" {
		t.Errorf("files %v and hash %q of %d rules", s.Files, s.Hash, len(s.Chain))
	}
}

func TestFallbackMustParse(t *testing.T) {
	dir, _ := workspace(t, denies("here"))
	fallback := filepath.Join(t.TempDir(), "fallback.yaml")
	write(t, fallback, "ruels: []\n")
	err := newRules(t, Options{Workspace: dir, FallbackPath: fallback}).Load()
	if want := fallback + `:1:1: unknown field "ruels" in the document`; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// TestManaged: what the managed layer denies no workspace opens, and the other way round.
func TestManaged(t *testing.T) {
	dir, _ := workspace(t, `rules:
- {match: {network: {domains: [evil.example]}}, action: allow, reason: the workspace wants it}
- {match: {network: {domains: [private.example]}}, action: deny, reason: the workspace does not want it}
`)
	managed := filepath.Join(t.TempDir(), "managed.yaml")
	write(t, managed, `rules:
- {match: {network: {domains: [evil.example]}}, action: deny, reason: managed}
- {match: {network: {domains: [private.example, good.example]}}, action: allow, reason: managed}
`)
	r := load(t, Options{Workspace: dir, Managed: []string{managed}, Policy: netrule.Options{DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}}})
	for host, want := range map[string]string{"https://evil.example": "deny denied_by_rule", "https://private.example": "deny denied_by_rule", "https://good.example": "allow allowed_by_rule", "https://other.example": "deny not_allowed"} {
		if got := verdict(t, r, host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	s := r.Current()
	if reasons(s.Managed) != "managed managed" || len(s.Chain) != 2 || !s.Files[0].Managed || s.Files[0].Path != managed || s.Files[1].Managed {
		t.Errorf("managed %q, files %+v", reasons(s.Managed), s.Files)
	}
	must(t, os.Remove(managed))
	if changed, err := r.Reload(); changed || err == nil || r.Current() != s {
		t.Errorf("Reload without the managed file = %v, %v, want the last good state", changed, err)
	}
	if err := newRules(t, Options{Workspace: dir, Managed: []string{managed}}).Load(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load without the managed file: %v", err)
	}
}

// CFG-37: maxRules counts over the chain.
func TestMaxRules(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, DefaultRulesFile), denies("c", "d"))
	dir := filepath.Join(root, "work")
	write(t, filepath.Join(dir, DefaultRulesFile), denies("a", "b"))
	load(t, Options{Workspace: dir, SearchUp: true, Parse: rules.Options{MaxRules: 4}})
	err := newRules(t, Options{Workspace: dir, SearchUp: true, Parse: rules.Options{MaxRules: 3}}).Load()
	if want := filepath.Join(root, DefaultRulesFile) + ":3:3: the rule count exceeds maxRules 3"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// TestBadFile: CFG-23, the default is not to start.
func TestBadFile(t *testing.T) {
	dir, file := workspace(t, "rules:\n- {action: maybe, reason: r}\n")
	r := newRules(t, Options{Workspace: dir})
	err := r.Load()
	var pe *rules.ParseError
	if !errors.As(err, &pe) || pe.File != file || pe.Line != 2 {
		t.Errorf("CFG-23: Load error = %v, want one at %s:2", err, file)
	}
	if r.Current() != nil {
		t.Error("CFG-23: something is loaded in spite of the error")
	}
}

// TestIgnoreBad: the bad file alone is dropped, and then nothing is allowed by mode until it is mended.
func TestIgnoreBad(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "work")
	bad := filepath.Join(dir, DefaultRulesFile)
	write(t, bad, "rules: [\n")
	write(t, filepath.Join(root, DefaultRulesFile), denies("far")+"- {match: {network: {domains: [good.example], ports: [443]}}, action: allow, reason: good}\n")
	r := load(t, Options{Workspace: dir, SearchUp: true, IgnoreBad: true, Policy: netrule.Options{
		Mode: netrule.AllowAll, Unlisted: netrule.Ask, Loopback: true, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}},
	}})
	check := func(when string, want map[string]string) {
		t.Helper()
		for host, w := range want {
			if got := verdict(t, r, host); got != w {
				t.Errorf("%s, %s: %s, want %s", when, host, got, w)
			}
		}
	}
	check("dropped", map[string]string{
		"https://far.example": "deny denied_by_rule", "https://good.example": "allow allowed_by_rule",
		"https://other.example": "deny not_allowed", "http://localhost": "deny not_allowed", "http://127.0.0.1": "deny not_allowed",
	})
	s := r.Current()
	if len(s.Warnings) != 2 || !strings.Contains(s.Warnings[0], bad) || len(s.Files) != 1 {
		t.Errorf("warnings %q, files %v", s.Warnings, s.Files)
	}
	if changed, err := r.Reload(); changed || err != nil {
		t.Errorf("Reload of the same = %v, %v", changed, err)
	}
	write(t, bad, denies("near"))
	if changed, err := r.Reload(); !changed || err != nil {
		t.Fatalf("Reload of the mended file = %v, %v", changed, err)
	}
	check("mended", map[string]string{
		"https://near.example": "deny denied_by_rule", "https://far.example": "deny denied_by_rule",
		"https://other.example": "allow allowed_by_mode", "http://localhost": "allow allowed_by_mode",
	})
	if warnings := r.Current().Warnings; len(warnings) != 0 {
		t.Errorf("warnings stay: %q", warnings)
	}
}

// A file that somebody named must load, whatever badFilePolicy says: only what was found in a workspace may be dropped.
func TestIgnoreBadIsForDiscoveredFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.yaml")
	write(t, file, "rules: [\n")
	for name, opts := range map[string]Options{
		"managed":            {Managed: []string{file}},
		"absolute rulesFile": {RulesFile: file},
		"fallbackPath":       {FallbackPath: file},
	} {
		opts.Workspace, opts.IgnoreBad = t.TempDir(), true
		if err := newRules(t, opts).Load(); err == nil {
			t.Errorf("a bad file loads as %s", name)
		}
	}
}
