package live

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	pollEvery = 500 * time.Millisecond
	hashEvery = 5 * time.Second // for edits that leave size and times as they were
	hashPause = time.Second     // between two hashes, however often the files change
)

// Watch polls the files until ctx ends and reloads on a change. done is told of every attempt that found one, good or
// bad; a failure is told once, until it changes.
func (r *Rules) Watch(ctx context.Context, done func(changed bool, err error)) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	w := r.watch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.look(done)
	}
}

// watch is what has been seen of the files.
type watch struct {
	rules     *Rules
	signature string
	hashed    time.Time
	lastErr   string
}

func (r *Rules) watch() *watch { return &watch{rules: r, signature: r.signature(), hashed: time.Now()} }

// look reloads when the files look changed, or have not been hashed for long.
func (w *watch) look(done func(changed bool, err error)) {
	next, since := w.rules.signature(), time.Since(w.hashed)
	if since < hashPause || next == w.signature && since < hashEvery {
		return
	}
	w.signature, w.hashed = next, time.Now()
	changed, err := w.rules.Reload()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if changed || text != w.lastErr {
		done(changed, err)
	}
	w.lastErr = text
}

// signature is what stat says of every place a rule file may be.
func (r *Rules) signature() string {
	out := ""
	for _, p := range r.places() {
		info, err := os.Stat(p)
		if err != nil {
			out += fmt.Sprintf("%q: none\n", p)
			continue
		}
		out += fmt.Sprintf("%q: %d %d %v\n", p, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return out
}

// places gives every path that a reload looks at.
func (r *Rules) places() []string {
	var paths []string
	for _, s := range r.sources() {
		paths = append(paths, s.path)
	}
	if r.opts.Narrow {
		paths = append(paths, r.opts.Trust.path(r.opts.Workspace))
	}
	return paths
}
