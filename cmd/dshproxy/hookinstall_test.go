package main

import (
	"os/exec"
	"strings"
	"testing"
)

func hookFile(entries string) string { return `{"hooks": {"PreToolUse": [` + entries + `]}}` }

func hookJSON(matcher string, commands ...string) string {
	out := "{" + matcher + `"hooks": [`
	for i, c := range commands {
		if i > 0 {
			out += ", "
		}
		out += `{"type": "command", "command": "` + c + `"}`
	}
	return out + "]}"
}

// TestIsOurHook: only a command that runs the hook, and does nothing else, is ours to take out.
func TestIsOurHook(t *testing.T) {
	for command, want := range map[string]string{
		"'/usr/bin/dshproxy' hook claude-code":                          "exact",
		`"/usr/bin/dshproxy" hook claude-code`:                          "exact",
		"dshproxy hook claude-code":                                     "exact",
		`/opt/my\ tools/dshproxy hook claude-code --approve`:            "exact",
		"dshproxy --config /etc/x.yaml hook claude-code --workspace=/w": "exact",
		`'C:/Program Files/dshproxy.exe' hook claude-code`:              "exact",
		"dshproxy hook claude-code 2>/dev/null":                         "more",
		"dshproxy hook claude-code || exit 2":                           "more",
		"A=1 dshproxy hook claude-code":                                 "more",
		"dshproxy hook claude-code &":                                   "more",
		"cd /w && dshproxy hook claude-code":                            "more",
		"tee log | dshproxy hook claude-code":                           "more",
		"echo dshproxy hook claude-code":                                "none",
		"notdshproxy hook claude-code":                                  "none",
		"/opt/dshproxy/wrapper hook claude-code":                        "none",
		"my-hook # dshproxy hook claude-code":                           "none",
		"dshproxy hook claude-code --install user":                      "none",
		"dshproxy hook claude-code --print-settings":                    "none",
		"dshproxy check hook claude-code":                               "none",
		"'dshproxy hook claude-code":                                    "none",
		"":                                                              "none",
	} {
		ours, exact := isOurHook(command)
		got := "none"
		if ours {
			got = "more"
		}
		if exact {
			got = "exact"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
}

// TestEditHook: what is written and taken out, byte for byte.
func TestEditHook(t *testing.T) {
	const ours, other, more = "'/x/dshproxy' hook claude-code", "echo hi", "/x/dshproxy hook claude-code 2>>log"
	const star, bash = `"matcher": "*", `, `"matcher": "Bash", `
	for name, tt := range map[string]struct {
		old    string
		remove bool
		want   string // empty for nothing to do, "added" for one more entry
	}{
		"ours alone":              {hookFile(hookJSON(star, ours) + ", " + hookJSON(bash, other)), true, hookFile(" " + hookJSON(bash, other))},
		"ours beside another":     {hookFile(hookJSON(star, other, ours)), true, hookFile(hookJSON(star, other))},
		"ours before another":     {hookFile(hookJSON(star, ours, other)), true, hookFile(`{"matcher": "*", "hooks": [ {"type": "command", "command": "echo hi"}]}`)},
		"more than ours":          {hookFile(hookJSON(star, more)), true, ""},
		"another's":               {hookFile(hookJSON(star, "/x/dshproxy-guard hook claude-code")), true, ""},
		"behind a mark":           {byteOrderMark + hookFile(hookJSON(star, other, ours)), true, byteOrderMark + hookFile(hookJSON(star, other))},
		"before a comment":        {hookFile(hookJSON(star, other, ours)) + " // end", true, hookFile(hookJSON(star, other)) + " // end"},
		"there":                   {hookFile(hookJSON(star, ours)), false, ""},
		"there for every tool":    {hookFile(hookJSON("", ours)), false, ""},
		"there, empty matcher":    {hookFile(hookJSON(`"matcher": "", `, ours)), false, ""},
		"there beside another":    {hookFile(hookJSON(star, other, ours)), false, ""},
		"there with more to it":   {hookFile(hookJSON(star, more)), false, ""},
		"there, quoted otherwise": {hookFile(hookJSON(star, `\"/x/dshproxy\" hook claude-code --approve`)), false, ""},
		"for one tool":            {hookFile(hookJSON(bash, ours)), false, hookFile(hookJSON(star, ours))},
		"for one tool, shared":    {hookFile(hookJSON(bash, other, ours)), false, "added"},
		"for one tool, and more":  {hookFile(hookJSON(bash, more)), false, "added"},
		"not there":               {hookFile(hookJSON(star, other)), false, "added"},
		"of another type":         {hookFile(`{"matcher": "*", "hooks": [{"type": "prompt", "command": "dshproxy hook claude-code"}]}`), false, "added"},
		"a mark and no hooks":     {byteOrderMark + "{}", false, "added"},
	} {
		got, err := editHook("f", []byte(tt.old), tt.remove)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tt.want == "added" {
			again, err := editHook("f", got, false)
			if !strings.Contains(string(got), "hook claude-code") || len(got) <= len(tt.old) || again != nil || err != nil {
				t.Errorf("%s:\n%s\na second time: %s, %v", name, got, again, err)
			}
			continue
		}
		if string(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tt.want)
		}
	}
}

// TestQuoteShell: a shell reads back what was quoted.
func TestQuoteShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	for _, word := range []string{"/usr/bin/x", "/a b/$HOME/`id`/\"q\"", "it's", `\n\t!`, "é\x01"} {
		out, err := exec.Command(sh, "-c", "printf %s "+quoteShell(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q: %q, %v", word, out, err)
		}
	}
}
