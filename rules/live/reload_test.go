//go:build unix

package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules"
)

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
