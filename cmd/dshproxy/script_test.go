package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
			return os.MkdirAll(e.WorkDir+"/home/.config", 0o755)
		},
	})
}

// readmeBlocks gives the fenced blocks of a language in README.md.
func readmeBlocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

// TestReadmeRules: every rule file in the README loads, without an error or a shadowed rule.
func TestReadmeRules(t *testing.T) {
	blocks := readmeBlocks(t, "yaml")
	if len(blocks) == 0 {
		t.Fatal("the README has no rule file")
	}
	for i, text := range blocks {
		if !strings.Contains(text, "rules:") || strings.Contains(text, "services:") {
			continue
		}
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut strings.Builder
		if code := run(context.Background(), []string{"lint", "--strict", path}, stdio{strings.NewReader(""), &out, &errOut}); code != 0 {
			t.Errorf("block %d: lint ends with %d\n%s%s", i, code, out.String(), errOut.String())
		}
	}
}

// TestReadmeTranscript: the transcript at the top of the README is what the demo really prints.
func TestReadmeTranscript(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is missing: apt-get install curl")
	}
	blocks := readmeBlocks(t, "console")
	if len(blocks) == 0 {
		t.Fatal("the README has no transcript")
	}
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
	for line := range strings.Lines(blocks[0]) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(demo, line) {
			t.Errorf("the demo does not print %q; it prints\n%s", line, demo)
		}
	}
}

// TestImageFiles: the settings and the rules in the image load, and refuse everything until rules are mounted.
func TestImageFiles(t *testing.T) {
	cli := func(args ...string) (int, string) {
		var out, errOut strings.Builder
		code := run(context.Background(), args, stdio{strings.NewReader(""), &out, &errOut})
		return code, out.String() + errOut.String()
	}
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
	if code, out := cli("config", "show", "--config", settings); code != 0 || !strings.Contains(out, "0.0.0.0:3128") {
		t.Errorf("config show ends with %d\n%s", code, out)
	}
	if code, out := cli("explain", "--config", settings, "example.com:443"); code != exitDeny {
		t.Errorf("explain ends with %d, want %d\n%s", code, exitDeny, out)
	}
}

// TestRuleReference: the examples of RULES.md are rules, each followed by cases that pass.
func TestRuleReference(t *testing.T) {
	text, err := os.ReadFile("../../RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 || len(blocks)%2 != 0 {
		t.Fatalf("%d blocks: want rules and cases by turns", len(blocks))
	}
	for i := 0; i < len(blocks); i += 2 {
		dir := t.TempDir()
		ruleFile, cases := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "cases_test.yaml")
		placeFile(t, ruleFile, blocks[i][1])
		placeFile(t, cases, blocks[i+1][1])
		var out, errOut strings.Builder
		if code := run(context.Background(), []string{"test", "--rules", ruleFile, "--workspace", dir, cases}, stdio{strings.NewReader(""), &out, &errOut}); code != 0 || strings.Contains(out.String(), "no case hits") {
			t.Errorf("block %d ends with %d\n%s%s", i, code, out.String(), errOut.String())
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
