package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile are values that a shell must take as they are. Each would leave a file called ran, were it run.
var hostile = []string{
	"", "plain", "a b", "'", "''", `'\''; touch ran; '`, `"; touch ran; "`, "$(touch ran)", "`touch ran`", "${HOME}", "$HOME", "; touch ran", "| touch ran",
	"& touch ran", "\n touch ran\n", "a\ntouch ran", "x\r\ntouch ran", `\`, `\\`, `\'; touch ran; \'`, `a\`, "*", "~", "a:~root", "# x", "-n", "!!", "{a,b}", "%PATH%",
	"\u2019; touch ran; \u2018", "\u2018", "\u201a\u201b", "(touch ran)", "<(touch ran)", "é\u00a0ü", "\x01\x1b[31m", "=x", "a=b", "[x]", "?", "\t",
}

// evaluators run a script of a shell and print each variable, a NUL behind each.
var evaluators = map[string][]string{
	"sh":         {"sh", "-c"},
	"fish":       {"fish", "--no-config", "-c"},
	"powershell": {"pwsh", "-NoProfile", "-NonInteractive", "-Command"},
}

// TestShellsTakeValuesAsTheyAre evaluates what env would print in the real shells that there are.
func TestShellsTakeValuesAsTheyAre(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for shell, command := range evaluators {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skipf("%s is not installed", command[0])
			}
			e := clientEnv{notes: hostile}
			for i, v := range hostile {
				e.set(fmt.Sprintf("HOSTILE_%d", i), v)
				e.files = append(e.files, clientFile{v, v})
			}
			var script bytes.Buffer
			if err := e.writeScript(&script, shells[shell]); err != nil {
				t.Fatal(err)
			}
			// The environment is read by a program that the shell starts, so that only exported values count.
			call := quoteSh(self)
			if shell == "powershell" {
				call = "& " + quotePowerShell(self)
			}
			script.WriteString(call + " '-test.run=^TestPrintHostile$'\n")
			cmd := exec.CommandContext(t.Context(), program, append(command[1:], script.String())...)
			cmd.Dir = t.TempDir()
			printed := filepath.Join(t.TempDir(), "printed")
			cmd.Env = append(os.Environ(), "PRINT_HOSTILE="+printed)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, script.String(), out)
			}
			text, err := os.ReadFile(printed)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(string(text), "\x00")
			for i, v := range hostile {
				if got[i] != v {
					t.Errorf("%q became %q", v, got[i])
				}
			}
			if left, _ := os.ReadDir(cmd.Dir); len(left) != 0 {
				t.Errorf("something ran: %v", left)
			}
		})
	}
}

// TestPrintHostile is no test: it is the program that a shell starts.
func TestPrintHostile(t *testing.T) {
	path := os.Getenv("PRINT_HOSTILE")
	if path == "" {
		t.Skip("only for a shell")
	}
	var b strings.Builder
	for i := range hostile {
		b.WriteString(os.Getenv(fmt.Sprintf("HOSTILE_%d", i)) + "\x00")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestQuoting is for shells that this machine may lack.
func TestQuoting(t *testing.T) {
	for _, c := range []struct{ value, sh, fish, powershell string }{
		{"http://127.0.0.1:3128", "http://127.0.0.1:3128", "http://127.0.0.1:3128", "'http://127.0.0.1:3128'"},
		{"", "''", "''", "''"},
		{"a b", "'a b'", "'a b'", "'a b'"},
		{"it's", `'it'\''s'`, `'it\'s'`, "'it''s'"},
		{`a\`, `'a\'`, `'a\\'`, `'a\'`},
		{`\'`, `'\'\'''`, `'\\\''`, `'\'''`},
		{"$(id)`id`", "'$(id)`id`'", "'$(id)`id`'", "'$(id)`id`'"},
		{"\u2018\u2019\u201a\u201b", "'\u2018\u2019\u201a\u201b'", "'\u2018\u2019\u201a\u201b'", "'\u2018\u2018\u2019\u2019\u201a\u201a\u201b\u201b'"},
		{"a\nb", "'a\nb'", "'a\nb'", "'a\nb'"},
	} {
		if got := quoteSh(c.value); got != c.sh {
			t.Errorf("sh %q: got %s, want %s", c.value, got, c.sh)
		}
		if got := quoteFish(c.value); got != c.fish {
			t.Errorf("fish %q: got %s, want %s", c.value, got, c.fish)
		}
		if got := quotePowerShell(c.value); got != c.powershell {
			t.Errorf("powershell %q: got %s, want %s", c.value, got, c.powershell)
		}
	}
}

// TestCommentsStayComments: no line of a comment is anything else, whatever a shell takes for a line's end.
func TestCommentsStayComments(t *testing.T) {
	var b strings.Builder
	for _, v := range append(hostile, "a\u2028b\u0085c\u202ed\xff", "x\r\ny") {
		writeComment(&b, v)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if line != "#" && !strings.HasPrefix(line, "# ") || strings.ContainsAny(line, "\r\v\f\u2028\u0085\u202e\x1b") || !utf8.ValidString(line) {
			t.Errorf("line %q", line)
		}
	}
	if !strings.Contains(b.String(), `# a\u2028b\u0085c\u202ed\xff`+"\n") {
		t.Errorf("got %q", b.String())
	}
}

func TestJSONIsAnObject(t *testing.T) {
	e := clientEnv{}
	for i, v := range hostile {
		e.set(fmt.Sprintf("HOSTILE_%d", i), v)
	}
	var out, errs strings.Builder
	e.note("a note")
	if err := e.write(stdio{nil, &out, &errs}, "json"); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for i, v := range hostile {
		if got[fmt.Sprintf("HOSTILE_%d", i)] != v {
			t.Errorf("%q became %q", v, got[fmt.Sprintf("HOSTILE_%d", i)])
		}
	}
	if errs.String() != "dshproxy: note: a note\n" {
		t.Errorf("notes: %q", errs.String())
	}
}

// sh evaluates what env prints for some flags, and then a script, in a real shell.
func sh(t *testing.T, dir, script string, flags ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := run(context.Background(), append([]string{"env"}, flags...), stdio{strings.NewReader(""), &out, &errs}); code != 0 {
		t.Fatalf("env %q ends with %d\n%s", flags, code, errs.String())
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `eval "$PRINTED"`+"\n"+script)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "PRINTED=" + out.String()}
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), b)
	}
	return string(b)
}

// TestGitSSHCommand goes the whole way of a hostile file name: the shell that evaluates, git's shell, ssh's expansion of
// percent signs, and the shell of ssh.
func TestGitSSHCommand(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, `to ken'$(touch ran)%h"\`)
	placeFile(t, token, "ci:s3cret\n")
	printed := sh(t, dir, `ssh() { printf '%s\n' "$2"; }; eval "$GIT_SSH_COMMAND"`,
		"--proxy", "127.0.0.1:3128", "--for", "git", "--token-file", token)
	command, ok := strings.CutPrefix(strings.TrimSuffix(printed, "\n"), "ProxyCommand=")
	if !ok || strings.Contains(command, "s3cret") {
		t.Fatalf("printed %q", printed)
	}
	expanded := strings.NewReplacer("%%", "%", "%h", "host.test", "%p", "22").Replace(command)
	words, err := exec.CommandContext(t.Context(), "sh", "-c", "for w in "+expanded+`; do printf '%s\n' "$w"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{ownProgram(), "connect", "--proxy", "http://127.0.0.1:3128", "--token-file", token, "host.test", "22", ""}, "\n")
	if string(words) != want {
		t.Errorf("got %s, want %s", words, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("something ran")
	}
}

// TestTokenInVariables: only when asked for, encoded so that any token survives, and said.
func TestTokenInVariables(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	placeFile(t, file, "c i:p@ss:/'$(touch ran)%41\n")
	got := sh(t, dir, `printf '%s' "$HTTPS_PROXY"`, "--proxy", "http://127.0.0.1:3128", "--token-file", file)
	if want := "http://c%20i:p%40ss%3A%2F%27%24%28touch%20ran%29%2541@127.0.0.1:3128"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p, err := parseProxyAddr(got)
	if err != nil || *p.token != (proxyToken{"c i", "p@ss:/'$(touch ran)%41"}) {
		t.Errorf("reads back as %+v, %v", p.token, err)
	}
	var out strings.Builder
	if run(context.Background(), []string{"env", "--proxy", "a:1", "--token-file", file}, stdio{nil, &out, &out}); !strings.Contains(out.String(), "\n# the token is in these variables: every other process of this user can read it") {
		t.Errorf("nobody is told:\n%s", out.String())
	}
}
