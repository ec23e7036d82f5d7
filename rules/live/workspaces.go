package live

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"dshproxy/netrule"
)

// DefaultMaxWorkspaces is how many workspaces are kept loaded.
const DefaultMaxWorkspaces = 512

// Workspaces keeps the rules of several workspaces loaded: each is read when it is first asked for, and beyond Max the one
// that was not asked for the longest is given up. It is safe for concurrent use.
type Workspaces struct {
	// Options are those of every workspace, but for the folder.
	Options Options
	// Max is how many are kept; 0 means DefaultMaxWorkspaces.
	Max int

	mu     sync.Mutex
	loaded map[string]*list.Element
	recent list.List // of *member, the most recently used first
	seen   map[string]bool
}

type member struct {
	dir   string
	rules *Rules
	err   error
	tried time.Time // of a load that failed
}

// retryLoad is how long a failed load stands before it is tried again.
const retryLoad = time.Second

// Rules gives the rules of a folder, which must be absolute. A folder whose rules do not load is an error each time.
func (w *Workspaces) Rules(dir string) (*Rules, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("workspace %q is not absolute", dir)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded == nil {
		w.loaded, w.seen = map[string]*list.Element{}, map[string]bool{}
	}
	e := w.loaded[dir]
	if e == nil {
		e = w.recent.PushFront(&member{dir: dir})
		w.loaded[dir] = e
		w.shrink()
	}
	w.recent.MoveToFront(e)
	one := e.Value.(*member)
	if one.rules == nil && time.Since(one.tried) > retryLoad {
		one.rules, one.err = w.load(dir)
		one.tried = time.Now()
	}
	return one.rules, one.err
}

func (w *Workspaces) load(dir string) (*Rules, error) {
	o := w.Options
	o.Workspace = dir
	// What was given up and comes back has not been started again: changes since then are not accepted by that.
	o.AcceptAtStart = o.AcceptAtStart && !w.seen[dir]
	r, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := r.Load(); err != nil {
		r.Close()
		return nil, err
	}
	w.seen[dir] = true
	return r, nil
}

func (w *Workspaces) shrink() {
	limit := w.Max
	if limit <= 0 {
		limit = DefaultMaxWorkspaces
	}
	for w.recent.Len() > limit {
		e := w.recent.Back()
		one := w.recent.Remove(e).(*member)
		delete(w.loaded, one.dir)
		if one.rules != nil {
			one.rules.Close()
		}
	}
}

// Policy gives the policy of a folder.
func (w *Workspaces) Policy(dir string) (*netrule.Policy, error) {
	r, err := w.Rules(dir)
	if err != nil {
		return nil, err
	}
	return r.Current().Policy, nil
}

// all gives what is loaded.
func (w *Workspaces) all() []*Rules {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Rules
	for e := w.recent.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*member).rules; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// Reload reads every loaded workspace again. The errors of those that keep their old rules are joined.
func (w *Workspaces) Reload() (changed bool, err error) {
	var failed []error
	for _, r := range w.all() {
		c, err := r.Reload()
		changed = changed || c
		if err != nil {
			failed = append(failed, err)
		}
	}
	return changed, errors.Join(failed...)
}

// Watch polls the files of every loaded workspace until ctx ends, as Rules.Watch does.
func (w *Workspaces) Watch(ctx context.Context, done func(changed bool, err error)) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	watched := map[*Rules]*watch{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		all := w.all()
		next := make(map[*Rules]*watch, len(all))
		for _, r := range all {
			one := watched[r]
			if one == nil {
				one = r.watch()
			}
			next[r] = one
			one.look(done)
		}
		watched = next
	}
}

// Close lets everything go.
func (w *Workspaces) Close() {
	for _, r := range w.all() {
		r.Close()
	}
}
