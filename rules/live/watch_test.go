//go:build unix

package live

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
