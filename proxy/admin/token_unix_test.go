//go:build unix

package admin

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTokenRefused: a file that somebody else could know or have put there is no secret.
func TestTokenRefused(t *testing.T) {
	write := func(mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(testToken+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		make func(*testing.T, string)
		err  string // empty where it is good
	}{
		{"private", write(0o600), ""},
		{"read only", write(0o400), ""},
		{"group reads", write(0o640), "open to others (mode 0640)"},
		{"all read", write(0o604), "open to others (mode 0604)"},
		{"group writes", write(0o620), "open to others (mode 0620)"},
		{"link", func(t *testing.T, path string) {
			write(0o600)(t, path+".real")
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"link to nowhere", func(t *testing.T, path string) {
			if err := os.Symlink(path+".none", path); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"pipe", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"empty", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "shorter than"},
		{"folder of others", func(t *testing.T, path string) {
			write(0o600)(t, path)
			if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
		}, "writable by others (mode 0777)"},
		{"sticky folder", func(t *testing.T, path string) {
			write(0o600)(t, path)
			if err := os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"another user's", func(t *testing.T, path string) {
			write(0o600)(t, path)
			if err := os.Chown(path, 12345, -1); err != nil {
				t.Skip("needs root")
			}
		}, "belongs to another user"},
		{"another user's folder", func(t *testing.T, path string) {
			write(0o600)(t, path)
			if err := os.Chown(filepath.Dir(path), 12345, -1); err != nil {
				t.Skip("needs root")
			}
		}, "its folder belongs to another user"},
		{"folder is a file", func(t *testing.T, path string) {
			if err := os.Remove(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			write(0o600)(t, filepath.Dir(path))
		}, "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "token")
			tt.make(t, path)
			token, err := LoadOrCreateToken(path)
			switch {
			case tt.err == "" && (err != nil || token != testToken):
				t.Errorf("%q %v", token, err)
			case tt.err != "" && (err == nil || token != "" || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), path)):
				t.Errorf("%q %v, want %q", token, err, tt.err)
			case err != nil && strings.Contains(err.Error(), testToken):
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}
