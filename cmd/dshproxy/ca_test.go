package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dshproxy/proxy/inspect"
)

// TestCAFiles: the key is for its owner alone, the certificate for everybody, and together they serve.
func TestCAFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "ca")
	var out, errOut strings.Builder
	args := []string{"ca", "init", "--workspace", t.TempDir(), "--dir", dir, "--domain", "api.test", "--domain", "=one.test"}
	if code := run(context.Background(), args, stdio{strings.NewReader(""), &out, &errOut}); code != 0 {
		t.Fatalf("ca init ends with %d: %s", code, errOut.String())
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, caFile): 0o644, filepath.Join(dir, caKeyFile): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
	cert, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(inspect.Options{Domains: []string{"api.test", "=one.test"}, CACert: cert, CAKey: key}); err != nil {
		t.Error(err)
	}
	if _, err := inspect.New(inspect.Options{Domains: []string{"other.test"}, CACert: cert, CAKey: key}); err == nil {
		t.Error("the CA speaks for another domain")
	}
}
