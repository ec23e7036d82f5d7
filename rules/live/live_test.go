//go:build unix

package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
func write(t *testing.T, path, text string) {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRules(t *testing.T, opts Options) *Rules {
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

func TestReloadTakesChanges(t *testing.T) {
	dir, file := workspace(t, denies("one"))
	r := load(t, Options{Workspace: dir})
	first := r.Current()
	if changed, err := r.Reload(); changed || err != nil || r.Current() != first {
		t.Errorf("Reload without a change = %v, %v", changed, err)
	}
	write(t, file, denies("one", "two"))
	if changed, err := r.Reload(); !changed || err != nil || reasons(r.Current().Chain) != "one two" {
		t.Errorf("Reload = %v, %v, rules %q", changed, err, reasons(r.Current().Chain))
	}
	if reasons(first.Chain) != "one" || first.Hash == r.Current().Hash {
		t.Error("the old snapshot has changed, or the hash has not")
	}
	write(t, file, "# none\nrules: []\n")
	if changed, err := r.Reload(); !changed || err != nil || len(r.Current().Chain) != 0 {
		t.Errorf("an intended empty set: Reload = %v, %v, rules %q", changed, err, reasons(r.Current().Chain))
	}
	if p, err := r.Policy(""); err != nil || p != r.Current().Policy {
		t.Errorf("Policy = %v, %v", p, err)
	}
	if p, err := r.Policy("/another"); err == nil || p != nil {
		t.Errorf("Policy of another workspace = %v, %v, want an error", p, err)
	}
}

// A file that appears takes its place in the chain without a restart.
func TestReloadAdoptsNewFiles(t *testing.T) {
	fallback := filepath.Join(t.TempDir(), "fallback.yaml")
	write(t, fallback, denies("fallback"))
	for name, tt := range map[string]struct {
		opts         Options
		before, want string
	}{
		"where there was none":      {Options{}, "", "new"},
		"in place of the fallback":  {Options{FallbackPath: fallback}, "fallback", "new"},
		"before a file of a parent": {Options{SearchUp: true}, "up", "new up"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, DefaultRulesFile), denies("up"))
			dir := filepath.Join(root, "work")
			must(t, os.Mkdir(dir, 0o755))
			opts := tt.opts
			opts.Workspace = dir
			r := load(t, opts)
			if got := reasons(r.Current().Chain); got != tt.before {
				t.Fatalf("before: %q, want %q", got, tt.before)
			}
			write(t, filepath.Join(dir, DefaultRulesFile), denies("new"))
			changed, err := r.Reload()
			if got := reasons(r.Current().Chain); err != nil || !changed || got != tt.want {
				t.Errorf("Reload = %v, %v, rules %q, want %q", changed, err, got, tt.want)
			}
		})
	}
}

// TestReloadKeepsLastGood: whatever becomes of the file, the loaded rules stay, the error shows, and it goes away once
// the file is back.
func TestReloadKeepsLastGood(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, file string)
		want  string // of the error, behind the file's name
	}{
		{"CFG-18 deleted", func(t *testing.T, file string) { must(t, os.Remove(file)) }, ": was loaded and is gone"},
		{"CFG-18 its folder deleted", func(t *testing.T, file string) { must(t, os.RemoveAll(filepath.Dir(file))) }, ": was loaded and is gone"},
		{"CFG-18 emptied", func(t *testing.T, file string) { write(t, file, "") }, ": the file holds no rules"},
		{"CFG-18 comments only", func(t *testing.T, file string) { write(t, file, "# gone\n") }, ": the file holds no rules"},
		{"CFG-18 null", func(t *testing.T, file string) { write(t, file, "~\n") }, ": the file holds no rules"},
		{"CFG-18 an empty mapping", func(t *testing.T, file string) { write(t, file, "{}\n") }, ": the file holds no rules"},
		{"CFG-18 rules is null", func(t *testing.T, file string) { write(t, file, "rules:\n") }, ":1:7: rules must be a list, not null"},
		{"CFG-07 cut within a rule", func(t *testing.T, file string) { write(t, file, denies("one", "two")[:40]) }, ": near "},
		{"CFG-07 cut behind the key", func(t *testing.T, file string) { write(t, file, "rules:\n") }, ":1:7: rules must be a list, not null"},
		{"CFG-23 broken", func(t *testing.T, file string) { write(t, file, "rules: [\n") }, ": near 1: invalid YAML"},
		{"CFG-23 one bad rule", func(t *testing.T, file string) { write(t, file, denies("one")+"- {action: deny}\n") }, ":3:3: rule 2.reason must be a non-empty string"},
		{"CFG-23 too many rules", func(t *testing.T, file string) { write(t, file, denies("a", "b", "c", "d")) }, ":5:3: the rule count exceeds maxRules 3"},
		{"CFG-18 unreadable: a folder in its place", func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Mkdir(file, 0o755)) }, ": not a regular file"},
		{"CFG-18 unreadable: a link to itself", func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Symlink("rules.yaml", file)) }, ": "},
		{"CFG-21 a named pipe in its place", func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, syscall.Mkfifo(file, 0o644)) }, ": not a regular file"},
		{"CFG-19 a link out of the workspace", func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Symlink("/dev/null", file)) }, ": path escapes from parent"},
		{"CFG-37 over maxRuleBytes", func(t *testing.T, file string) { write(t, file, denies("one")+strings.Repeat("#", 4096)) }, ": larger than 4096 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, file := workspace(t, denies("one", "two"))
			r := load(t, Options{Workspace: dir, MaxBytes: 4096, Parse: rules.Options{MaxRules: 3}})
			good := r.Current()
			tt.spoil(t, file)
			for range 2 { // a second try is no better than the first
				changed, err := r.Reload()
				if changed || err == nil || !strings.HasPrefix(err.Error(), file+tt.want) {
					t.Errorf("Reload = %v, %v, want %s%s", changed, err, file, tt.want)
				}
				if r.Current() != good || r.LastError() == "" {
					t.Errorf("the loaded rules are %q, the last error %q", reasons(r.Current().Chain), r.LastError())
				}
			}
			must(t, os.RemoveAll(file))
			write(t, file, denies("one", "two"))
			if changed, err := r.Reload(); changed || err != nil || r.LastError() != "" {
				t.Errorf("Reload of the file as it was = %v, %v, last error %q", changed, err, r.LastError())
			}
		})
	}
}

// A file of up to maxRuleBytes loads, one byte more does not.
func TestMaxRuleBytes(t *testing.T) {
	text := denies("one")
	dir, _ := workspace(t, text)
	load(t, Options{Workspace: dir, MaxBytes: int64(len(text))})
	if err := newRules(t, Options{Workspace: dir, MaxBytes: int64(len(text)) - 1}).Load(); err == nil || !strings.Contains(err.Error(), "larger than ") {
		t.Errorf("error = %v, want one about the size", err)
	}
}

// TestReplacedFiles has the ways in which deployments change a file that a watch on the old inode does not see.
func TestReplacedFiles(t *testing.T) {
	t.Run("CFG-15 rename", func(t *testing.T) {
		dir, file := workspace(t, denies("one"))
		r := load(t, Options{Workspace: dir})
		write(t, file, denies("two"))
		checkReload(t, r, "two")
	})
	t.Run("CFG-16 ConfigMap", func(t *testing.T) {
		// A mounted ConfigMap: rules.yaml -> ..data/rules.yaml, ..data -> a dated folder; an update swaps ..data.
		dir := t.TempDir()
		dsh := filepath.Join(dir, ".dsh")
		write(t, filepath.Join(dsh, "..2026_01_01", "rules.yaml"), denies("one"))
		write(t, filepath.Join(dsh, "..2026_01_02", "rules.yaml"), denies("two"))
		must(t, os.Symlink("..2026_01_01", filepath.Join(dsh, "..data")))
		must(t, os.Symlink("..data/rules.yaml", filepath.Join(dsh, "rules.yaml")))
		r := load(t, Options{Workspace: dir})
		if got := reasons(r.Current().Chain); got != "one" {
			t.Fatalf("rules %q, want one", got)
		}
		must(t, os.Symlink("..2026_01_02", filepath.Join(dsh, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dsh, "..data_tmp"), filepath.Join(dsh, "..data")))
		must(t, os.RemoveAll(filepath.Join(dsh, "..2026_01_01")))
		checkReload(t, r, "two")
	})
	t.Run("CFG-17 same size and time", func(t *testing.T) {
		dir, file := workspace(t, denies("one"))
		r := load(t, Options{Workspace: dir})
		sameSizeAndTime(t, file, denies("two"))
		checkReload(t, r, "two")
	})
	t.Run("CFG-22 through a hard link", func(t *testing.T) {
		dir, file := workspace(t, denies("one"))
		other := filepath.Join(t.TempDir(), "other.yaml")
		must(t, os.Link(file, other))
		r := load(t, Options{Workspace: dir})
		must(t, os.WriteFile(other, []byte(denies("two")), 0o644))
		checkReload(t, r, "two")
	})
}

func checkReload(t *testing.T, r *Rules, want string) {
	t.Helper()
	changed, err := r.Reload()
	if got := reasons(r.Current().Chain); !changed || err != nil || got != want {
		t.Errorf("Reload = %v, %v, rules %q, want %q", changed, err, got, want)
	}
}

// sameSizeAndTime rewrites a file in place so that stat tells no difference.
func sameSizeAndTime(t *testing.T, file, text string) {
	t.Helper()
	info, err := os.Stat(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(text), 0o644))
	must(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	if again, err := os.Stat(file); err != nil || again.Size() != info.Size() || !again.ModTime().Equal(info.ModTime()) {
		t.Fatalf("the edit shows: %v", err)
	}
}

// CFG-19: no link leads out of the workspace, neither at the file nor above it; inside of it they are followed.
func TestLinksOutOfTheWorkspace(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "rules.yaml"), denies("outside"))
	links := map[string]struct{ at, to string }{
		"absolute":       {".dsh/rules.yaml", filepath.Join(outside, "rules.yaml")},
		"relative":       {".dsh/rules.yaml", "../../../../../.." + filepath.Join(outside, "rules.yaml")},
		"of the folder":  {".dsh", outside},
		"to a device":    {".dsh/rules.yaml", "/dev/zero"},
		"to the process": {".dsh/rules.yaml", "/proc/self/environ"},
	}
	for name, link := range links {
		t.Run("CFG-19 "+name, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, link.at)
			must(t, os.MkdirAll(filepath.Dir(at), 0o755))
			must(t, os.Symlink(link.to, at))
			r := newRules(t, Options{Workspace: dir})
			if err := r.Load(); err == nil {
				t.Errorf("loads %q through a link to %s", reasons(r.Current().Chain), link.to)
			}
		})
	}
	t.Run("CFG-19 inside", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "policy", "r.yaml"), denies("inside"))
		must(t, os.Mkdir(filepath.Join(dir, ".dsh"), 0o755))
		must(t, os.Symlink("../policy/r.yaml", filepath.Join(dir, DefaultRulesFile)))
		if got := reasons(load(t, Options{Workspace: dir}).Current().Chain); got != "inside" {
			t.Errorf("rules %q, want those behind the link", got)
		}
	})
}

// The folder is held: what is put in its place later is another folder.
func TestHeldFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "work")
	write(t, filepath.Join(dir, DefaultRulesFile), denies("one"))
	r := load(t, Options{Workspace: dir})
	must(t, os.Rename(dir, filepath.Join(root, "moved")))
	write(t, filepath.Join(dir, DefaultRulesFile), denies("impostor"))
	if changed, err := r.Reload(); changed || err != nil || reasons(r.Current().Chain) != "one" {
		t.Errorf("Reload = %v, %v, rules %q, want those of the folder that was there", changed, err, reasons(r.Current().Chain))
	}
	r.Close()
	checkReload(t, r, "impostor") // after Close the path is opened anew
}

// CFG-19: a managed file counts only if nobody else can change it, by whatever path it is reached.
func TestCheckOwner(t *testing.T) {
	type place struct {
		path string
		mode os.FileMode
	}
	tests := []struct {
		name   string
		places []place // folders end in a slash
		links  [][2]string
		uid    int // of the last place; 0 leaves it
		want   string
	}{
		{"private", []place{{"d/", 0o755}, {"d/f", 0o600}}, nil, 0, ""},
		{"world-writable file", []place{{"d/", 0o755}, {"d/f", 0o666}}, nil, 0, "is writable by others (mode 0666)"},
		{"group-writable file", []place{{"d/", 0o755}, {"d/f", 0o664}}, nil, 0, "is writable by others (mode 0664)"},
		{"world-writable folder", []place{{"d/f", 0o600}, {"d/", 0o777}}, nil, 0, "is writable by others (mode 0777)"},
		{"a folder further up", []place{{"d/f", 0o600}, {"d/", 0o755}, {"./", 0o775}}, nil, 0, "is writable by others (mode 0775)"},
		{"a sticky folder", []place{{"d/f", 0o600}, {"d/", 0o777 | os.ModeSticky}}, nil, 0, ""},
		{"a sticky bit on the file", []place{{"d/", 0o755}, {"d/f", 0o666 | os.ModeSticky}}, nil, 0, "is writable by others (mode 0666)"},
		{"another user's file", []place{{"d/", 0o755}, {"d/f", 0o600}}, nil, 12345, "belongs to user 12345"},
		{"another user's folder", []place{{"d/f", 0o600}, {"d/", 0o755}}, nil, 12345, "belongs to user 12345"},
		{"a link in a safe folder", []place{{"e/", 0o755}, {"e/g", 0o600}, {"d/", 0o755}}, [][2]string{{"d/f", "../e/g"}}, 0, ""},
		{"a link into an unsafe folder", []place{{"e/g", 0o600}, {"e/", 0o777}, {"d/", 0o755}}, [][2]string{{"d/f", "../e/g"}}, 0, "is writable by others"},
		{"a link in an unsafe folder", []place{{"e/", 0o755}, {"e/g", 0o600}, {"d/", 0o777}}, [][2]string{{"d/f", "../e/g"}}, 0, "is writable by others"},
		{
			"a link to a link in an unsafe folder",
			[]place{{"e/", 0o755}, {"e/g", 0o600}, {"w/", 0o777}, {"d/", 0o755}},
			[][2]string{{"w/h", "../e/g"}, {"d/f", "../w/h"}},
			0, "is writable by others",
		},
		{
			"a folder that is a link in an unsafe folder",
			[]place{{"e/", 0o755}, {"e/f", 0o600}, {"w/", 0o777}},
			[][2]string{{"w/h", "../e"}, {"d", "w/h"}},
			0, "is writable by others",
		},
		{"missing", nil, nil, 0, "no such file or directory"},
	}
	for _, tt := range tests {
		t.Run("CFG-19 "+tt.name, func(t *testing.T) {
			if tt.uid != 0 && os.Getuid() != 0 {
				t.Skip("only root can give files away")
			}
			root := t.TempDir()
			for _, p := range tt.places {
				path := filepath.Join(root, p.path)
				if strings.HasSuffix(p.path, "/") {
					must(t, os.MkdirAll(path, 0o755))
				} else {
					write(t, path, denies("managed"))
				}
				must(t, os.Chmod(path, p.mode))
				t.Cleanup(func() { os.Chmod(path, 0o755) })
			}
			if tt.uid != 0 {
				must(t, os.Chown(filepath.Join(root, tt.places[len(tt.places)-1].path), tt.uid, -1))
			}
			for _, l := range tt.links {
				must(t, os.Symlink(l[1], filepath.Join(root, l[0])))
			}
			err := CheckOwner(filepath.Join(root, "d/f"))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("CheckOwner = %v, want %q", err, tt.want)
			}
		})
	}
}

// The test of ownership is made on every load, not only the first.
func TestManagedOwnerOnReload(t *testing.T) {
	dir, _ := workspace(t, denies("one"))
	managed := filepath.Join(t.TempDir(), "managed.yaml")
	write(t, managed, denies("managed"))
	r := load(t, Options{Workspace: dir, Managed: []string{managed}})
	must(t, os.Chmod(managed, 0o666))
	if changed, err := r.Reload(); changed || err == nil || !strings.Contains(err.Error(), "writable by others") {
		t.Errorf("CFG-19: Reload = %v, %v, want a refusal", changed, err)
	}
	must(t, os.Chmod(managed, 0o644))
	must(t, os.Chmod(filepath.Join(dir, DefaultRulesFile), 0o666))
	if _, err := r.Reload(); err != nil {
		t.Errorf("a workspace's file may belong to anybody: %v", err)
	}
}

// CFG-21: nothing but a regular file is read, and no open or read waits.
func TestNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o644))
	for _, path := range []string{fifo, dir, "/dev/zero", "/dev/null", "/dev/tty"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		for name, opts := range map[string]Options{"rulesFile": {RulesFile: path}, "fallbackPath": {FallbackPath: path}, "managed": {Managed: []string{path}}} {
			opts.Workspace = t.TempDir()
			if err := newRules(t, opts).Load(); err == nil {
				t.Errorf("CFG-21: %s loads as %s", path, name)
			}
		}
	}
	if err := newRules(t, Options{Workspace: t.TempDir(), RulesFile: "/proc/self/mem"}).Load(); err == nil {
		t.Error("CFG-21: /proc/self/mem loads")
	}
}

const stability = 200 * time.Millisecond

// TestHalfWritten: CFG-07, a file that is being written parses as a shorter policy without its last denials. It must not
// be taken, and the whole one must.
func TestHalfWritten(t *testing.T) {
	for name, rest := range map[string]struct{ text, want string }{
		"CFG-07 completed":    {denies("one", "two", "three"), "one two three"},
		"CFG-07 as it was":    {denies("one", "two"), "one two"},
		"CFG-07 broken":       {"rules: [", "one two"},
		"CFG-07 another half": {denies("one") + "- {", "one two"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, file := workspace(t, denies("one", "two"))
				r := load(t, Options{Workspace: dir, Stability: stability})
				must(t, os.WriteFile(file, []byte(denies("one")), 0o644)) // in place, as a careless writer does
				done := make(chan error)
				go func() {
					_, err := r.Reload()
					done <- err
				}()
				synctest.Wait() // Reload has read once and waits for the stability interval to pass
				if got := reasons(r.Current().Chain); got != "one two" {
					t.Errorf("meanwhile the rules are %q", got)
				}
				must(t, os.WriteFile(file, []byte(rest.text), 0o644))
				err := <-done
				if got := reasons(r.Current().Chain); got != rest.want {
					t.Errorf("rules %q, want %q (%v)", got, rest.want, err)
				}
			})
		})
	}
}

// A file that never stops changing cannot hold a reload for ever, and is not taken.
func TestEverChangingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, file := workspace(t, denies("one"))
		r := load(t, Options{Workspace: dir, Stability: stability})
		done := make(chan error)
		write(t, file, denies("zero"))
		go func() {
			_, err := r.Reload()
			done <- err
		}()
		for i := 0; ; i++ {
			synctest.Wait() // the reload waits between two reads
			select {
			case err := <-done:
				if err == nil || reasons(r.Current().Chain) != "one" {
					t.Errorf("error %v, rules %q, want the last good ones", err, reasons(r.Current().Chain))
				}
				return
			default:
				if i > 1000 {
					t.Fatal("the reload never ends")
				}
			}
			write(t, file, denies(fmt.Sprintf("x%d", i)))
			time.Sleep(stability) // on the fake clock: lets exactly one more read happen
		}
	})
}

// TestAtomicSnapshot: CFG-25, a reader sees one state or the other, never a mixture, and never one that changes under it.
func TestAtomicSnapshot(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "work")
	near, far := filepath.Join(dir, DefaultRulesFile), filepath.Join(root, DefaultRulesFile)
	write(t, far, denies("v0", "v0"))
	write(t, near, denies("v0", "v0", "v0"))
	r := load(t, Options{Workspace: dir, SearchUp: true})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					checkUnmixed(t, r.Current())
				}
			}
		})
	}
	for i := 1; i <= 200; i++ {
		// Both files are changed before the one reload, so that every loaded state is of one version.
		v := fmt.Sprintf("v%d", i)
		write(t, far, denies(v, v))
		write(t, near, denies(v, v, v))
		if changed, err := r.Reload(); !changed || err != nil {
			t.Errorf("CFG-25: Reload %d = %v, %v", i, changed, err)
		}
	}
	close(stop)
	readers.Wait()
}

func checkUnmixed(t *testing.T, s *Snapshot) {
	version := s.Chain[0].Reason
	for _, rule := range s.Chain {
		if rule.Reason != version {
			t.Errorf("CFG-25: mixed: %q", reasons(s.Chain))
		}
	}
	layer := s.Policy.Layers()[0]
	if len(layer.Rules) != 5 || len(s.Chain) != 5 || layer.Rules[4].Ref.Reason != version {
		t.Errorf("CFG-25: the policy is not that of the rules")
	}
	d := s.Policy.Decide(netrule.Query{Target: netrule.Target{Scheme: netrule.SchemeHTTPS, Host: version + ".example", Port: 443}})
	if d.Code != netrule.CodeDeniedByRule || d.Rule.Reason != version {
		t.Errorf("CFG-25: the policy of %s says %v", version, d.Code)
	}
}

// watchEvent is one call of Watch's callback.
type watchEvent struct {
	changed bool
	err     error
}

// watching runs Watch in a synctest bubble, whose clock stands in for the poll interval, until the test ends.
func watching(t *testing.T, opts Options, test func(t *testing.T, r *Rules, next func() watchEvent, quiet func())) {
	synctest.Test(t, func(t *testing.T) {
		r := load(t, opts)
		ctx, cancel := context.WithCancel(t.Context())
		events, ended := make(chan watchEvent, 100), make(chan struct{})
		go func() {
			defer close(ended)
			r.Watch(ctx, func(changed bool, err error) { events <- watchEvent{changed, err} })
		}()
		synctest.Wait()
		next := func() watchEvent {
			t.Helper()
			select {
			case e := <-events:
				return e
			case <-time.After(time.Minute): // fake
				t.Fatal("Watch does not see the change")
				return watchEvent{}
			}
		}
		quiet := func() {
			t.Helper()
			select {
			case e := <-events:
				t.Errorf("Watch reports %+v without a change", e)
			case <-time.After(time.Minute): // fake
			}
		}
		test(t, r, next, quiet)
		cancel()
		<-ended
	})
}

func TestWatch(t *testing.T) {
	dir, file := workspace(t, denies("one"))
	watching(t, Options{Workspace: dir, Stability: time.Millisecond}, func(t *testing.T, r *Rules, next func() watchEvent, quiet func()) {
		expect := func(what string, wantChanged, wantErr bool, rules string) {
			t.Helper()
			e := next()
			if got := reasons(r.Current().Chain); e.changed != wantChanged || (e.err != nil) != wantErr || got != rules {
				t.Errorf("%s: %+v, rules %q, want changed %v, an error %v, rules %q", what, e, got, wantChanged, wantErr, rules)
			}
			quiet() // said once
		}
		quiet()
		write(t, file, denies("one", "two"))
		expect("CFG-15 rename", true, false, "one two")
		write(t, file, "rules: [\n")
		expect("CFG-23 bad file", false, true, "one two")
		write(t, file, "rules:\n- {action: deny}\n")
		expect("CFG-23 bad in another way", false, true, "one two")
		write(t, file, denies("one", "two"))
		expect("mended", false, false, "one two")
		must(t, os.Remove(file))
		expect("CFG-18 deleted", false, true, "one two")
		write(t, file, denies("three"))
		expect("back", true, false, "three")
		sameSizeAndTime(t, file, strings.Replace(denies("three"), "three", "seven", 2))
		expect("CFG-17 same size and time", true, false, "seven")
	})
}

func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	dsh := filepath.Join(dir, ".dsh")
	write(t, filepath.Join(dsh, "..1", "rules.yaml"), denies("one"))
	write(t, filepath.Join(dsh, "..2", "rules.yaml"), denies("two"))
	must(t, os.Symlink("..1", filepath.Join(dsh, "..data")))
	must(t, os.Symlink("..data/rules.yaml", filepath.Join(dsh, "rules.yaml")))
	watching(t, Options{Workspace: dir}, func(t *testing.T, r *Rules, next func() watchEvent, quiet func()) {
		must(t, os.Symlink("..2", filepath.Join(dsh, "tmp")))
		must(t, os.Rename(filepath.Join(dsh, "tmp"), filepath.Join(dsh, "..data")))
		if e := next(); !e.changed || reasons(r.Current().Chain) != "two" {
			t.Errorf("CFG-16: %+v, rules %q", e, reasons(r.Current().Chain))
		}
	})
}

// Every file that may come to count is watched: managed ones, parents, and a file that is not there yet.
func TestWatchEveryPlace(t *testing.T) {
	root := t.TempDir()
	dir, managed := filepath.Join(root, "work"), filepath.Join(root, "managed.yaml")
	must(t, os.Mkdir(dir, 0o755))
	write(t, managed, denies("m"))
	watching(t, Options{Workspace: dir, SearchUp: true, Managed: []string{managed}}, func(t *testing.T, r *Rules, next func() watchEvent, quiet func()) {
		quiet()
		write(t, filepath.Join(root, DefaultRulesFile), denies("up"))
		if e := next(); !e.changed || reasons(r.Current().Chain) != "up" {
			t.Errorf("a parent's file: %+v, rules %q", e, reasons(r.Current().Chain))
		}
		write(t, filepath.Join(dir, DefaultRulesFile), denies("near"))
		if e := next(); !e.changed || reasons(r.Current().Chain) != "near up" {
			t.Errorf("the workspace's file: %+v, rules %q", e, reasons(r.Current().Chain))
		}
		write(t, managed, denies("m", "n"))
		if e := next(); !e.changed || reasons(r.Current().Managed) != "m n" {
			t.Errorf("the managed file: %+v, rules %q", e, reasons(r.Current().Managed))
		}
	})
}

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
