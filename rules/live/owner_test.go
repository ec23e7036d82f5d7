//go:build unix

package live

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
