package admin

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestToken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	path := filepath.Join(dir, "token")
	token, err := LoadOrCreateToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(token) != 2*tokenBytes {
		t.Errorf("%d characters", len(token))
	}
	again, err := LoadOrCreateToken(path)
	if err != nil || again != token {
		t.Errorf("the second time: %v, the same %v", err, again == token)
	}
	other, err := LoadOrCreateToken(filepath.Join(dir, "other"))
	if err != nil || other == token {
		t.Errorf("another file: %v, the same %v", err, other == token)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	for p, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o700, path: 0o600} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want && runtime.GOOS != "windows" {
			t.Errorf("%s: %v %v", p, info.Mode(), err)
		}
	}
}

// TestTokenRace: all who start together have the token of one.
func TestTokenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "token")
	tokens := make([]string, 16)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = LoadOrCreateToken(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] {
			t.Error("two tokens")
		}
	}
}

func TestParseToken(t *testing.T) {
	good := strings.Repeat("x", minToken)
	for text, ok := range map[string]bool{
		good: true, good + "\n": true, good + "\r\n": true, good + "==": true, testToken: true, "aZ09-._~+/aZ09-._~+/aZ": true, strings.Repeat("x", maxToken): true,
		"": false, "\n": false, good[1:]: false, good[1:] + "=": false, strings.Repeat("=", 64): false, strings.Repeat(" ", 64): false, good + " ": false, " " + good: false,
		good + "\n\n": false, good + "\n" + good: false, good + "\x00": false, good + "é": false, good + "=x": false, strings.Repeat("x", maxToken+1): false, good + "\t\n": false,
	} {
		token, err := parseToken(text)
		if (err == nil) != ok || ok && token != strings.TrimRight(text, "\r\n") {
			t.Errorf("%q: %q %v", text, token, err)
		}
		if err != nil && text != "" && strings.Contains(err.Error(), good[1:]) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
}
