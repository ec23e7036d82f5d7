//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

const (
	allowAll = "rules:\n  - match: {}\n    action: allow\n    reason: all\n"
	denyX    = "  - match: { tools: [x] }\n    action: deny\n    reason: no x\n"
	denyY    = "  - match: { tools: [y] }\n    action: deny\n    reason: no y\n"
)

// TestNarrowFallback: no file that nobody accepted takes the operator's fallback out of force.
func TestNarrowFallback(t *testing.T) {
	for name, text := range map[string]string{
		"empty set": "rules: []\n", "nothing": "", "allows": allowAll, "allows the host": "rules:\n" + allowA,
	} {
		for _, before := range []bool{false, true} {
			o := narrow(t, before)
			o.Policy.Mode = netrule.AllowAll
			o.FallbackPath = filepath.Join(t.TempDir(), "fallback.yaml")
			write(t, o.FallbackPath, "rules:\n"+denyA+denyX)
			file := filepath.Join(o.Workspace, DefaultRulesFile)
			if !before {
				write(t, file, text)
			}
			r := load(t, o)
			if before {
				write(t, file, text)
				_, err := r.Reload()
				must(t, err)
			}
			if got := verdicts(t, r, "a.test:443") + " " + tool(t, r, "x"); got != "deny deny" {
				t.Errorf("%s, served %v: %s", name, before, got)
			}
			if before {
				// An operator who allows a host has not accepted the file either.
				if _, err := r.Allow(allowOf(t, "https://a.test")); err == nil || !strings.Contains(err.Error(), "run dshproxy trust first") {
					t.Errorf("%s: allow: %v", name, err)
				}
			}
			reviewed, err := r.Review()
			must(t, err)
			must(t, r.Accept(reviewed))
			_, err = r.Reload()
			must(t, err)
			if got := tool(t, r, "x"); got == "deny" {
				t.Errorf("%s, served %v: accepted, and the fallback still holds", name, before)
			}
		}
	}
}

// TestManagedReloadsAlone: whatever becomes of the workspace's files, managed rules and the user's settings are taken, the
// workspace's last good rules stay, and the failure is told.
func TestManagedReloadsAlone(t *testing.T) {
	spoil := map[string]func(t *testing.T, file string){
		"broken":  func(t *testing.T, file string) { write(t, file, "rules: [") },
		"deleted": func(t *testing.T, file string) { must(t, os.Remove(file)) },
		"emptied": func(t *testing.T, file string) { write(t, file, "") },
		"a pipe":  func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, syscall.Mkfifo(file, 0o644)) },
		"a link": func(t *testing.T, file string) {
			must(t, os.Remove(file))
			must(t, os.Symlink("/etc/passwd", file))
		},
		"too large": func(t *testing.T, file string) { write(t, file, "rules: [] #"+strings.Repeat("x", 1<<16)) },
	}
	for name, spoiled := range spoil {
		for _, narrowly := range []bool{false, true} {
			o := narrow(t, true)
			o.Narrow, o.Dialects, o.MaxBytes = narrowly, []Dialect{DSH, ClaudeSettings}, 1<<15
			o.Places.ClaudeUser = t.TempDir()
			managed, settings := filepath.Join(t.TempDir(), "m.yaml"), filepath.Join(o.Places.ClaudeUser, "settings.json")
			write(t, managed, "rules: []\n")
			write(t, settings, "{}")
			o.Managed = []string{managed}
			file := filepath.Join(o.Workspace, DefaultRulesFile)
			write(t, file, "rules:\n"+allowA+denyX+toolX)
			r := load(t, o)
			spoiled(t, file)
			write(t, managed, "rules:\n"+denyA)
			changed, err := r.Reload()
			if !changed || err == nil || !strings.Contains(err.Error(), file) || r.LastError() == "" {
				t.Errorf("%s: Reload = %v, %v", name, changed, err)
			}
			if got := verdicts(t, r, "a.test:443") + " " + tool(t, r, "x"); got != "deny deny" {
				t.Errorf("%s: %s", name, got)
			}
			write(t, settings, `{"permissions": {"deny": ["y"]}}`)
			write(t, managed, "rules: [") // and one of theirs keeps none of the others
			if changed, err = r.Reload(); !changed || !strings.Contains(err.Error(), managed) {
				t.Errorf("%s: Reload = %v, %v", name, changed, err)
			}
			if got := verdicts(t, r, "a.test:443") + " " + tool(t, r, "x") + " " + tool(t, r, "y"); got != "deny deny deny" {
				t.Errorf("%s: settings beside a broken file: %s", name, got)
			}
			if changed, err := r.Reload(); changed || err == nil {
				t.Errorf("%s: again: %v, %v", name, changed, err)
			}
		}
	}
}

// TestAcceptedDeletion: a file that is gone stays in force until somebody accepts that.
func TestAcceptedDeletion(t *testing.T) {
	o := narrow(t, true)
	o.Policy.Mode = netrule.AllowAll
	file := filepath.Join(o.Workspace, DefaultRulesFile)
	write(t, file, "rules:\n"+denyA)
	r := load(t, o)
	must(t, os.Remove(file))
	if _, err := r.Reload(); err == nil || verdicts(t, r, "a.test:443") != "deny" {
		t.Errorf("a deletion counts by itself: %v", err)
	}
	other := o
	other.AcceptAtStart = false
	command := load(t, other)
	if got := verdicts(t, command, "a.test:443"); got != "deny" {
		t.Errorf("for a command: %s", got)
	}
	reviewed, err := command.Review()
	must(t, err)
	if len(reviewed.Changes) != 1 || reviewed.Changes[0].New != "" {
		t.Errorf("%+v", reviewed.Changes)
	}
	must(t, command.Accept(reviewed))
	if changed, err := r.Reload(); !changed || err != nil || verdicts(t, r, "a.test:443") != "allow" {
		t.Errorf("accepted: %v, %v, %s", changed, err, verdicts(t, r, "a.test:443"))
	}
	write(t, file, "rules:\n"+denyA)
	_, err = r.Reload()
	must(t, err)
	must(t, os.Remove(file)) // it was never accepted, so nobody has to accept that it is gone
	if _, err = r.Reload(); err != nil || verdicts(t, r, "a.test:443") != "allow" {
		t.Errorf("a file that nobody accepted: %v", err)
	}
}

// TestNarrowSearchUp: files that nobody accepted do not shadow each other, in any dialect.
func TestNarrowSearchUp(t *testing.T) {
	o := narrow(t, false)
	o.SearchUp, o.Policy.Mode = true, netrule.AllowAll
	o.Baseline = rules.Baseline()
	parent := o.Workspace
	far, mid, near := filepath.Join(parent, DefaultRulesFile), filepath.Join(parent, "a", DefaultRulesFile), filepath.Join(parent, "a/b", DefaultRulesFile)
	o.Workspace = filepath.Join(parent, "a/b")
	write(t, far, "rules:\n"+denyX+denyA)
	write(t, mid, "rules:\n"+denyY)
	write(t, near, allowAll)
	r := load(t, o)
	if got := tool(t, r, "x") + " " + tool(t, r, "y") + " " + tool(t, r, "z") + " " + verdicts(t, r, "a.test:443"); got != "deny deny passthrough deny" {
		t.Errorf("nothing accepted: %s", got)
	}
	v, err := r.Current().Judge(rules.Call{Tool: "x", Args: []byte("{}"), Workspace: "/w"}, true)
	must(t, err)
	if v.Rule.File != far || v.Rule.Index != 2 || v.Rule.Line != 2 {
		t.Errorf("by %+v", v.Rule)
	}
	reviewed, err := r.Review()
	must(t, err)
	must(t, r.Accept(reviewed))
	r = load(t, o)
	if got := tool(t, r, "x") + " " + tool(t, r, "y"); got != "allow allow" {
		t.Errorf("accepted, the nearest file does not come first: %s", got)
	}
	write(t, mid, "rules:\n"+denyY+denyB)
	_, err = r.Reload()
	must(t, err)
	if got := tool(t, r, "x") + " " + tool(t, r, "y") + " " + verdicts(t, r, "b.test:443"); got != "allow deny deny" {
		t.Errorf("one of three changed: %s", got)
	}

	o = narrow(t, false)
	o.Dialects, o.Places.PiUser = []Dialect{PiPermission}, t.TempDir()
	write(t, filepath.Join(o.Places.PiUser, "pi-permissions.jsonc"), `{"tools": {"*": "allow"}}`)
	write(t, filepath.Join(o.Workspace, ".pi/agent/pi-permissions.jsonc"), `{"tools": {"x": "deny"}}`)
	write(t, filepath.Join(o.Workspace, ".pi/extensions/pi-permission-system/config.json"), `{"permission": {"x": "allow"}}`)
	if got := tool(t, load(t, o), "x"); got != "deny" {
		t.Errorf("permission files: %s", got)
	}
}

const denyB = "  - match: { network: { domains: [b.test] } }\n    action: deny\n    reason: no b\n"

// TestNarrowNamedFiles: whoever names it, a file that the program may write is the workspace's.
func TestNarrowNamedFiles(t *testing.T) {
	const text, wide = "rules:\n" + toolX + denyY, "rules:\n" + toolX + "  - match: {}\n    action: allow\n    reason: all\n"
	for name, make := range map[string]func(t *testing.T, o *Options) string{
		"rulesFile": func(_ *testing.T, o *Options) string {
			o.RulesFile = filepath.Join(o.Workspace, "conf/r.yaml")
			return o.RulesFile
		},
		"fallbackPath": func(_ *testing.T, o *Options) string {
			o.FallbackPath = filepath.Join(o.Workspace, "conf/f.yaml")
			return o.FallbackPath
		},
		"a link to the workspace": func(t *testing.T, o *Options) string {
			o.RulesFile = filepath.Join(t.TempDir(), "r.yaml")
			must(t, os.Symlink(filepath.Join(o.Workspace, "conf/r.yaml"), o.RulesFile))
			return filepath.Join(o.Workspace, "conf/r.yaml")
		},
		"a folder that is a link to the workspace": func(t *testing.T, o *Options) string {
			dir := filepath.Join(t.TempDir(), "d")
			must(t, os.Symlink(o.Workspace, dir))
			o.FallbackPath = filepath.Join(dir, "conf/r.yaml")
			return filepath.Join(o.Workspace, "conf/r.yaml")
		},
		"a way back out of a link": func(t *testing.T, o *Options) string {
			must(t, os.Mkdir(filepath.Join(o.Workspace, "sub"), 0o755))
			dir := filepath.Join(t.TempDir(), "d")
			must(t, os.Symlink(filepath.Join(o.Workspace, "sub"), dir))
			o.RulesFile = dir + "/../conf/r.yaml"
			return filepath.Join(o.Workspace, "conf/r.yaml")
		},
		"the workspace is a link": func(t *testing.T, o *Options) string {
			dir := filepath.Join(t.TempDir(), "d")
			must(t, os.Symlink(o.Workspace, dir))
			o.RulesFile = filepath.Join(o.Workspace, "conf/r.yaml")
			o.Workspace = dir
			return o.RulesFile
		},
	} {
		o := narrow(t, true)
		file := make(t, &o)
		write(t, file, text)
		r := load(t, o)
		if got := tool(t, r, "x") + " " + tool(t, r, "y") + " " + tool(t, r, "z"); got != "allow deny passthrough" {
			t.Errorf("%s: at the start: %s", name, got)
		}
		write(t, file, wide)
		if changed, err := r.Reload(); !changed || err != nil {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
		if got := tool(t, r, "x") + " " + tool(t, r, "y") + " " + tool(t, r, "z"); got != "allow deny passthrough" {
			t.Errorf("%s: after a change: %s", name, got)
		}
		reviewed, err := r.Review()
		must(t, err)
		must(t, r.Accept(reviewed))
		_, err = r.Reload()
		must(t, err)
		if got := tool(t, r, "y"); got != "allow" {
			t.Errorf("%s: accepted: %s", name, got)
		}
	}
	o := narrow(t, true)
	o.Managed = []string{filepath.Join(o.Workspace, "m.yaml")}
	write(t, o.Managed[0], "rules: []\n")
	if err := newRules(t, o).Load(); err == nil || !strings.Contains(err.Error(), "a managed file in the workspace") {
		t.Errorf("managed: %v", err)
	}
	o.Narrow = false
	load(t, o)
	o = narrow(t, true)
	o.Trust.Dir = filepath.Join(o.Workspace, ".state")
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "in the workspace") {
		t.Errorf("the record: %v", err)
	}
	// A user whose home is the workspace: the settings count, and are the program's to change.
	o = narrow(t, true)
	o.Dialects, o.Places.ClaudeUser = []Dialect{ClaudeSettings}, filepath.Join(o.Workspace, ".claude")
	settings := filepath.Join(o.Workspace, ".claude/settings.json")
	write(t, settings, `{"permissions": {"deny": ["x"]}}`)
	r := load(t, o)
	write(t, settings, `{"permissions": {"allow": ["x"]}}`)
	_, err := r.Reload()
	must(t, err)
	if got := tool(t, r, "x"); got != "deny" {
		t.Errorf("the user's settings in the workspace: %s", got)
	}
}

// TestNarrowIgnoreBad: a start accepts no file that it drops, and keeps what was accepted of it.
func TestNarrowIgnoreBad(t *testing.T) {
	for name, text := range map[string]string{"syntax": "rules: [", "field": "ruels: []\n", "rule": "rules:\n- {action: deny}\n"} {
		o := narrow(t, true)
		o.IgnoreBad, o.Policy.Mode = true, netrule.AllowAll
		file := filepath.Join(o.Workspace, DefaultRulesFile)
		write(t, file, "rules:\n"+denyX+denyA)
		load(t, o)
		write(t, file, text)
		r := load(t, o)
		if got := tool(t, r, "x") + " " + verdicts(t, r, "a.test:443") + " " + verdicts(t, r, "b.test:443"); got != "deny deny deny" {
			t.Errorf("%s: %s", name, got)
		}
		rec, _, err := o.Trust.load(o.Workspace)
		must(t, err)
		if len(rec.Files) != 1 || !strings.Contains(rec.Files[0].Text, "no x") {
			t.Errorf("%s: the record is %+v", name, rec.Files)
		}
		if changed, err := r.Reload(); changed || err != nil {
			t.Errorf("%s: Reload = %v, %v", name, changed, err)
		}
		write(t, file, allowAll)
		_, err = r.Reload()
		must(t, err)
		if got := tool(t, r, "x") + " " + verdicts(t, r, "b.test:443"); got != "deny allow" {
			t.Errorf("%s: mended: %s", name, got)
		}
		o.IgnoreBad = false
		write(t, file, text)
		if err := newRules(t, o).Load(); err == nil {
			t.Errorf("%s: loads", name)
		}
		if again, _, err := o.Trust.load(o.Workspace); err != nil || fmt.Sprint(again.Files) != fmt.Sprint(rec.Files) {
			t.Errorf("%s: a start that failed changed the record: %v", name, err)
		}
	}
}

// TestAcceptedTextIsMarked: lines of a text that is not on disk say so, for calls and connections and in each dialect.
func TestAcceptedTextIsMarked(t *testing.T) {
	o := narrow(t, true)
	o.Dialects = Dialects()
	write(t, filepath.Join(o.Workspace, DefaultRulesFile), "rules:\n"+denyA+denyX)
	write(t, filepath.Join(o.Workspace, ".claude/settings.json"), `{"permissions": {"deny": ["y", "WebFetch(domain:b.test)"]}}`)
	write(t, filepath.Join(o.Workspace, ".pi/agent/pi-permissions.jsonc"), `{"tools": {"*": "allow", "z": "deny"}}`)
	r := load(t, o)
	for _, mark := range []bool{false, true} {
		if mark {
			write(t, filepath.Join(o.Workspace, DefaultRulesFile), "# moved\nrules: []\n")
			write(t, filepath.Join(o.Workspace, ".claude/settings.json"), "{}")
			write(t, filepath.Join(o.Workspace, ".pi/agent/pi-permissions.jsonc"), `{"tools": {"*": "allow"}}`)
			_, err := r.Reload()
			must(t, err)
		}
		for _, name := range []string{"x", "y", "z"} {
			v, err := r.Current().Judge(rules.Call{Tool: name, Args: []byte("{}"), Workspace: "/w"}, true)
			must(t, err)
			if strings.HasSuffix(v.Reason, acceptedMark) != mark || strings.HasSuffix(v.Rule.Reason, acceptedMark) != mark || v.Action != netrule.Deny {
				t.Errorf("%s, changed %v: %q by %+v", name, mark, v.Reason, v.Rule)
			}
		}
		for _, host := range []string{"a.test", "b.test"} {
			d := r.Current().Policy.Decide(netrule.Query{Target: target(t, "https://"+host)})
			if strings.HasSuffix(d.Rule.Reason, acceptedMark) != mark || d.Action != netrule.Deny {
				t.Errorf("%s, changed %v: %+v", host, mark, d)
			}
		}
	}
}

// TestNothingWidens edits a narrow workspace at random, as a program in it may, and accepts nothing: no verdict about a
// call or a connection is ever wider than at the start.
func TestNothingWidens(t *testing.T) {
	const rounds, edits = 30, 12
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
		o := narrow(t, true)
		o.Dialects, o.SearchUp, o.IgnoreBad = Dialects(), true, rnd.IntN(2) == 0
		o.Policy.Mode = netrule.Mode(rnd.IntN(3))
		o.Baseline = rules.Baseline()
		parent := o.Workspace
		o.Workspace = filepath.Join(parent, "w")
		must(t, os.Mkdir(o.Workspace, 0o755))
		o.FallbackPath = pick("", filepath.Join(t.TempDir(), "f.yaml"), filepath.Join(o.Workspace, "f.yaml"))
		if o.FallbackPath != "" {
			write(t, o.FallbackPath, randomFile(rnd))
		}
		files := []string{
			filepath.Join(o.Workspace, DefaultRulesFile), filepath.Join(parent, DefaultRulesFile), filepath.Join(o.Workspace, "f.yaml"),
			filepath.Join(o.Workspace, ".claude/settings.json"), filepath.Join(o.Workspace, ".claude/settings.local.json"), filepath.Join(o.Workspace, ".pi/agent/pi-permissions.jsonc"),
			filepath.Join(o.Workspace, ".pi/extensions/pi-permission-system/config.json"),
		}
		for _, f := range files {
			if rnd.IntN(2) == 0 {
				write(t, f, contentFor(rnd, f))
			}
		}
		r := load(t, o)
		start := widths(t, r)
		for range edits {
			f := pick(files...)
			must(t, os.RemoveAll(f))
			switch rnd.IntN(9) {
			case 8: // half-written, or spoiled
				text := []byte(contentFor(rnd, f))
				text = text[:rnd.IntN(len(text)+1)]
				for range rnd.IntN(4) {
					if len(text) > 0 {
						text[rnd.IntN(len(text))] = byte(rnd.IntN(256))
					}
				}
				write(t, f, string(text))
			case 0: // it is gone
			case 1:
				must(t, os.MkdirAll(f, 0o755))
			case 2:
				must(t, os.MkdirAll(filepath.Dir(f), 0o755))
				must(t, os.Symlink(pick(files...), f))
			case 3:
				write(t, f, pick("", "{}", "rules: [", "~", "rules:\n", "\x00", "[]", "rules: []\n"))
			default:
				write(t, f, contentFor(rnd, f))
			}
			running := r
			if _, err := r.Reload(); err == nil && rnd.IntN(3) == 0 {
				// What another command sees.
				other := o
				other.AcceptAtStart = false
				running = newRules(t, other)
				if running.Load() != nil {
					continue
				}
			}
			for i, w := range widths(t, running) {
				if w.width > start[i].width {
					t.Fatalf("seed %d: after a change of %s, %s is wider: %d, before %d", seed, f, w.what, w.width, start[i].width)
				}
			}
		}
	}
}

type width struct {
	what  string
	width int
}

// widths gives how wide verdicts are: deny, ask, nothing said, allow.
func widths(t *testing.T, r *Rules) []width {
	t.Helper()
	var out []width
	s := r.Current()
	for _, authority := range []string{"a.test:443", "b.test:443", "x.a.test:80", "10.0.0.1:443", "localhost:8080", "c.test:22"} {
		parsed, err := netrule.ParseConnect(authority)
		must(t, err)
		q := netrule.Query{Target: parsed}
		out = append(out, width{authority, int(s.Policy.Decide(q).Action)})
		for _, addrs := range [][]netip.Addr{netrule.LocalhostAddrs(), {netip.MustParseAddr("1.1.1.1")}} {
			d := s.Policy.DecideAddrs(q, addrs, nil)
			out = append(out, width{fmt.Sprint(authority, addrs), int(d.Action)})
			for i := range addrs {
				kept := 0
				if d.Action == netrule.Allow && i < len(d.Addrs) && d.Addrs[i].Kept {
					kept = 1
				}
				out = append(out, width{fmt.Sprint(authority, " dials ", addrs[i]), kept})
			}
		}
	}
	for _, c := range [][2]string{
		{"x", "{}"},
		{"y", "{}"},
		{"bash", `{"command": "rm x"}`},
		{"bash", `{"command": "git push; ls"}`},
		{"bash", `{"command": "curl https://a.test/"}`},
		{"read", `{"path": ".env"}`},
		{"edit", `{"path": "src/a"}`},
		{"web_fetch", `{"url": "https://a.test/"}`},
		{"web_fetch", `{"url": "https://b.test/"}`},
		{"web_search", `{"query": "a"}`},
		{"bash", `{"command": "mkfs /dev/x"}`},
	} {
		v, err := s.Judge(rules.Call{Tool: c[0], Args: json.RawMessage(c[1]), Workspace: "/w"}, true)
		must(t, err)
		out = append(out, width{c[0] + c[1], v.strictness()})
	}
	return out
}

// contentFor makes a file that loads, of the language of its place.
func contentFor(r *rand.Rand, path string) string {
	action := func() string { return []string{"allow", "deny", "ask"}[r.IntN(3)] }
	switch filepath.Base(path) {
	case "settings.json", "settings.local.json":
		list := func() string {
			all := []string{`"Bash"`, `"Bash(rm *)"`, `"Bash(git *)"`, `"Bash(ls)"`, `"x"`, `"y"`, `"Read(.env)"`, `"Edit(src/**)"`, `"WebFetch(domain:a.test)"`, `"WebFetch"`}
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return strings.Join(all[:r.IntN(4)], ",")
		}
		return fmt.Sprintf(`{"permissions": {"allow": [%s], "ask": [%s], "deny": [%s]}, "sandbox": {"network": {"allowedDomains": [%s], "strictAllowlist": %v}}}`,
			list(), list(), list(), []string{"", `"*"`, `"a.test"`, `"*.a.test","b.test:443"`}[r.IntN(4)], r.IntN(3) == 0)
	case "pi-permissions.jsonc":
		return fmt.Sprintf(`{"defaultPolicy": {"tools": %q}, "tools": {"x": %q, "read": %q}, "bash": {"*": %q, "rm *": %q}}`, action(), action(), action(), action(), action())
	case "config.json":
		return fmt.Sprintf(`{"permission": {"*": %q, "y": %q, "bash": {"*": %q, "git *": %q}, "path": {"*.env": %q}}}`, action(), action(), action(), action(), action())
	default:
		return randomFile(r)
	}
}

// randomFile makes a rule file for connections and calls.
func randomFile(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString(randomRules(r))
	for range r.IntN(5) {
		match := []string{"", "tools: [x]", "tools: [y]", "tools: [bash], argv: { command: rm }", "tools: [bash]", "paths: [.env]", "tools: [web_fetch]"}[r.IntN(7)]
		fmt.Fprintf(&b, "  - match: { %s }\n    action: %s\n    reason: t\n", match, []string{"allow", "deny", "ask"}[r.IntN(3)])
	}
	return b.String()
}
