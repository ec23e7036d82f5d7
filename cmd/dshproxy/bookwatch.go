package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// bookEvery is how often the files that identities stand in are looked at.
const bookEvery = time.Second

// watchBook reads identities again when the settings file or a token file changes.
func (v *service) watchBook(ctx context.Context) {
	ticker := time.NewTicker(bookEvery)
	defer ticker.Stop()
	for seen := v.bookFiles(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := v.bookFiles(); now != seen {
			seen = now
			_, _ = v.reloadBook() // it has told the operator
		}
	}
}

// bookFiles is what stat says of those files.
func (v *service) bookFiles() string {
	var paths []string
	if path, err := configPath(v.app.config); err == nil && path != "" {
		paths = append(paths, path)
	}
	for _, t := range v.settings.identity.tokens {
		if t.entry.file != "" {
			paths = append(paths, t.entry.file)
		}
	}
	var out strings.Builder
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil {
			fmt.Fprintf(&out, "%q %d %d\n", p, info.Size(), info.ModTime().UnixNano())
		}
	}
	return out.String()
}

// reloadBook reads the settings again and takes the identities of them. Other keys need a restart, and are named. A file
// that does not load leaves the old identities.
func (v *service) reloadBook() (changed bool, err error) {
	var next settings
	err = next.load(v.app.config, v.app.flags)
	if err == nil {
		var ignored []string
		old := v.settings.table()
		for i, k := range next.table() {
			if !strings.HasPrefix(k.path, "identity.") && k.value.String() != old[i].value.String() {
				ignored = append(ignored, k.path)
			}
		}
		if len(ignored) > 0 {
			v.log.Warn("changed settings need a restart", "keys", strings.Join(ignored, " "))
		}
		book, bookErr := next.identityBook()
		if err = bookErr; err == nil {
			changed = !reflect.DeepEqual(book, v.book.Load())
			v.book.Store(book)
		}
	}
	if err != nil {
		v.log.Error("settings do not load; the old ones stay", "err", err)
		return false, err
	}
	if changed {
		v.log.Info("identities reloaded")
		v.server.PolicyChanged()
	}
	return changed, nil
}
