package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dshproxy/rules"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dshproxy": main})
}

// TestScripts: what the commands print and how they end is a contract, kept in testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			// No settings of the machine, and a home of its own.
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/home/.config")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else the race detector makes each command last a second longer
			return os.MkdirAll(e.WorkDir+"/home/.config", 0o755)
		},
	})
}

// pageBlock is a fenced block of a page.
type pageBlock struct {
	language, text string
	line           int // of the fence
}

// pageBlocks gives the fenced blocks of a page, in order, of some languages.
func pageBlocks(t *testing.T, page string, languages ...string) []pageBlock {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	var out []pageBlock
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatchIndex(string(text), -1) {
		b := pageBlock{string(text[m[2]:m[3]]), string(text[m[4]:m[5]]), 1 + strings.Count(string(text[:m[0]]), "\n")}
		if slices.Contains(languages, b.language) {
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no block of %v", page, languages)
	}
	return out
}

// runCommand gives the exit code and both outputs of a command.
func runCommand(args ...string) (int, string) {
	var out, errOut strings.Builder
	code := run(context.Background(), args, stdio{strings.NewReader(""), &out, &errOut})
	return code, out.String() + errOut.String()
}

// TestReadmeRules: every rule file in the README loads, without an error or a shadowed rule.
func TestReadmeRules(t *testing.T) {
	for _, b := range pageBlocks(t, "README.md", "yaml") {
		if !strings.HasPrefix(b.text, "rules:") {
			continue
		}
		path := filepath.Join(t.TempDir(), "rules.yaml")
		placeFile(t, path, b.text)
		if code, out := runCommand("lint", "--strict", path); code != 0 {
			t.Errorf("README.md:%d: lint ends with %d\n%s", b.line, code, out)
		}
	}
}

// TestReadmeTranscript: the transcript at the top of the README is what the demo really prints.
func TestReadmeTranscript(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is missing: apt-get install curl")
	}
	blocks := pageBlocks(t, "README.md", "console")
	binary := filepath.Join(t.TempDir(), "dshproxy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "../../docker/demo.sh", binary)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo fails: %v\n%s", err, out)
	}
	demo := regexp.MustCompile(`localhost:\d+`).ReplaceAllString(string(out), "localhost:8080") // the demo picks a free port
	for line := range strings.Lines(blocks[0].text) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(demo, line) {
			t.Errorf("the demo does not print %q; it prints\n%s", line, demo)
		}
	}
}

// TestImageFiles: the settings and the rules in the image load, and refuse everything until rules are mounted.
func TestImageFiles(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "proxy.yaml")
	text, err := os.ReadFile("../../docker/proxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ruleFile, err := filepath.Abs("../../docker/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	placeFile(t, settings, strings.ReplaceAll(string(text), "/etc/dshproxy/rules.yaml", ruleFile))
	if code, out := runCommand("config", "show", "--config", settings); code != 0 || !strings.Contains(out, "0.0.0.0:3128") {
		t.Errorf("config show ends with %d\n%s", code, out)
	}
	if code, out := runCommand("explain", "--config", settings, "example.com:443"); code != exitDeny {
		t.Errorf("explain ends with %d, want %d\n%s", code, exitDeny, out)
	}
}

// TestPageExamples: the examples of the pages run. Rules are followed by cases that pass and hit every rule, settings load,
// and a console block prints what it shows, in a workspace with the rules before it.
func TestPageExamples(t *testing.T) {
	for _, tt := range []struct {
		page   string
		strict bool // the rules lint clean
	}{{"RULES.md", false}, {"MIGRATING.md", true}} {
		t.Run(tt.page, func(t *testing.T) {
			dir, untested := t.TempDir(), 0
			for _, b := range pageBlocks(t, tt.page, "yaml", "json", "console") {
				where := fmt.Sprintf("%s:%d", tt.page, b.line)
				switch {
				case strings.HasPrefix(b.text, "cases:"):
					runCases(t, where, dir, b.text)
					untested = 0
				case untested > 0:
					t.Errorf("%s:%d: no cases follow the rules", tt.page, untested)
					untested = 0
					fallthrough
				default:
					if dir = runExample(t, where, dir, b, tt.strict); strings.HasPrefix(b.text, "rules:") {
						untested = b.line
					}
				}
			}
			if untested > 0 {
				t.Errorf("%s:%d: no cases follow the rules", tt.page, untested)
			}
		})
	}
}

// runExample tries a block that is no cases, and gives the workspace for the next one: rules begin a new one.
func runExample(t *testing.T, where, dir string, b pageBlock, strict bool) string {
	t.Helper()
	switch {
	case b.language == "console":
		runConsole(t, where, dir, b.text)
	case b.language == "json":
		if !json.Valid([]byte(b.text)) {
			t.Errorf("%s: no JSON", where)
		}
	case strings.HasPrefix(b.text, "rules:"):
		dir = t.TempDir()
		file := filepath.Join(dir, ".dsh", "rules.yaml")
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		placeFile(t, file, b.text)
		if code, out := runCommand("lint", "--strict", file); code != 0 && strict {
			t.Errorf("%s: lint ends with %d\n%s", where, code, out)
		}
	default:
		file := filepath.Join(t.TempDir(), "proxy.yaml")
		placeFile(t, file, b.text)
		if code, out := runCommand("config", "show", "--config", file); code != 0 {
			t.Errorf("%s: config show ends with %d\n%s", where, code, out)
		}
	}
	return dir
}

func runCases(t *testing.T, where, dir, text string) {
	t.Helper()
	file := filepath.Join(dir, "cases_test.yaml")
	placeFile(t, file, text)
	if code, out := runCommand("test", "--workspace", dir, file); code != 0 || strings.Contains(out, "no case hits") {
		t.Errorf("%s: test ends with %d\n%s", where, code, out)
	}
}

// runConsole runs what stands behind "$ " in a shell and compares what follows. Exit codes do not count.
func runConsole(t *testing.T, where, dir, text string) {
	t.Helper()
	for _, step := range strings.Split("\n"+strings.TrimSuffix(text, "\n"), "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "CLAUDE_PROJECT_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%s: %v", where, err)
		}
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("%s: %s\nprints\n%s\nand the page says\n%s", where, command, got, want)
		}
	}
}

// TestLintCodesAreDocumented: every code has its line in RULES.md.
func TestLintCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range rules.LintCodes() {
		if !strings.Contains(string(text), "| `"+code+"` |") {
			t.Errorf("RULES.md does not say what %s means", code)
		}
	}
}
