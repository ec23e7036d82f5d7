package toolspec

import (
	"regexp"
	"strings"
	"testing"

	"dshproxy/netrule"
)

func bash(command string) Call {
	return Call{Tool: "Bash", Input: map[string]any{"command": command}}
}

func file(tool, path string) Call {
	return Call{Tool: tool, Input: map[string]any{"file_path": path}}
}

func fetch(url string) Call { return Call{Tool: "WebFetch", Input: map[string]any{"url": url}} }

func TestParseRule(t *testing.T) {
	for text, want := range map[string]Rule{
		"Bash": {Tool: "Bash", Bare: true}, "Bash(ls)": {Tool: "Bash", Spec: "ls"}, "Bash(a (b))": {Tool: "Bash", Spec: "a (b)"}, "mcp__a__b": {Tool: "mcp__a__b", Bare: true},
	} {
		if got, err := ParseRule(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Bash()", "(ls)", "Bash(ls", "Bash)ls(", "Bash)", "Bash(ls) ", "Bash(ls)x"} {
		if got, err := ParseRule(text); err == nil {
			t.Errorf("%q: %+v, no error", text, got)
		}
		if MatchRule(text, bash("ls")) {
			t.Errorf("%q matches", text)
		}
	}
}

// TestDocumented: the profile that follows the client's documentation.
func TestDocumented(t *testing.T) {
	const deny, ask, allow = netrule.Deny, netrule.Ask, netrule.Allow
	scope := Scope{Cwd: "/work/sub", Dir: "/work", Home: "/home/u"}
	for _, tt := range []struct {
		list netrule.Action
		rule string
		call Call
		want bool
	}{
		// An allow covers every command at any depth, a denial any.
		{allow, "Bash(echo *)", bash("echo $(rm x)"), false},
		{allow, "Bash(echo *)", bash("(echo a; echo b)"), true},
		{allow, "Bash(echo *)", bash("if true; then echo a; fi"), false},
		{allow, "Bash(echo *)", bash("echo a &"), true},
		{allow, "Bash(echo *)", bash("echo a\necho b"), true},
		{allow, "Bash(echo *)", bash("echo a\nrm b"), false},
		{allow, "Bash(echo *)", bash("echo a > f"), false},
		{allow, "Bash(echo *)", bash("echo a > /dev/null 2>&1"), true},
		{allow, "Bash(echo *)", bash("f() { echo a; }; f"), false},
		{allow, "Bash(echo *)", bash("echo " + strings.Repeat("a", maxCommand)), false},
		{allow, "Bash(echo *)", bash(""), false},
		{allow, "Bash(echo *)", bash("echo 'a"), false},
		{allow, "Bash(npm *)", bash("NODE_ENV=test npm x"), true},
		{allow, "Bash(npm *)", bash("LD_PRELOAD=x npm x"), false},
		{allow, "Bash(npm *)", bash("PATH=. npm x"), false},
		{allow, "Bash(npm *)", bash("timeout -k 5 30 npm x"), true},
		{allow, "Bash(npm *)", bash("nice -n 5 npm x"), true},
		{allow, "Bash(npm *)", bash("stdbuf -oL npm x"), true},
		{allow, "Bash(npm *)", bash("xargs -n1 npm x"), false},
		{allow, "Bash(find *)", bash("find . -exec rm {} +"), false},
		{allow, "Bash(find *)", bash("find . -fprintf f x"), false},
		{allow, "Bash(find *)", bash("find . -fls f"), false},
		{allow, "Bash(*)", bash("anything"), true},
		{deny, "Bash(rm *)", bash("echo a; rm b"), true},
		{deny, "Bash(rm *)", bash("echo $(rm b)"), true},
		{deny, "Bash(rm *)", bash("A=1 rm b"), true},
		{deny, "Bash(rm *)", bash("timeout 5 rm b"), true},
		{deny, "Bash(rm *)", bash("echo a; rm b; if then"), true},
		{deny, "Bash(rm *)", bash("while true; do rm b; done"), true},
		{ask, "Bash(rm:*)", bash("rm"), true},
		{ask, "Bash(rm *)", bash("rmdir x"), false},
		{ask, "Bash(rm *)", file("Read", "rm x"), false},
		{allow, "Bash(find *)", bash(`find . "-delete"`), false},
		{allow, "Bash(find *)", bash(`find . -d\elete`), false},
		{allow, "Bash(* test)", bash(`'watch' test`), false},
		{allow, "Bash(npm *)", bash("for PATH in /evil; do npm x; done"), false},
		{allow, "Bash(npm *)", bash("for f in a b; do npm $f; done"), true},
		{allow, "Bash(npm *)", bash("npm x ${PATH:=/evil}"), false},
		{deny, "Bash(rm *)", bash("FOO=1 rm x <<E"), true},
		{deny, "Bash(rm *)", bash("if true; then rm x; fi <<E"), true},
		{deny, "Bash(rm *)", bash("FOO=1 rm x &&"), true},
		{deny, "Bash(rm *)", bash("command -p rm x"), true},
		{deny, "Bash(rm *)", bash("nohup -- rm x"), true},
		{deny, "Bash(rm *)", bash("timeout --kill-after 5 3 rm x"), true},
		{deny, "Bash(rm *)", bash("nice --adjustment 5 rm x"), true},
		{deny, "Bash(rm *)", bash(`"rm" x`), true},
		{deny, "Bash(rm *)", bash(`\rm x`), true},
		{allow, "Bash(rm *)", bash("command -v rm"), false},
		{deny, "Read(.env)", bash("cat .env"), true},
		{deny, "Read(.env)", bash("head -n1 ./a/.env"), true},
		{deny, "Edit(.env)", bash("sed -i s/a/b/ .env"), true},
		{deny, "Edit(.env)", bash("sed s/a/b/ .env"), false},
		{deny, "Edit(.env)", bash("echo > .env"), true},
		{allow, "Read(.env)", bash("cat .env"), false},
		// Parameters are for deny and ask.
		{ask, "Bash(timeout:*)", Call{Tool: "Bash", Input: map[string]any{"command": "ls", "timeout": 5000.0}}, true},
		{ask, "Bash(timeout : 5*)", Call{Tool: "Bash", Input: map[string]any{"command": "ls", "timeout": 5000.0}}, true},
		{allow, "Bash(timeout:*)", Call{Tool: "Bash", Input: map[string]any{"command": "ls", "timeout": 5000.0}}, false},
		{deny, "Grep(path:*)", Call{Tool: "Grep", Input: map[string]any{"path": "x"}}, false},
		// Paths: four anchors, editors together, a denied read keeps from writing too.
		{allow, "Read(src/a)", file("Read", "src/a"), true},
		{allow, "Read(src/a)", file("Read", "/work/sub/src/a"), true},
		{allow, "Read(src/a)", file("Read", "/work/src/a"), false},
		{allow, "Read(/src/a)", file("Read", "/work/src/a"), true},
		{allow, "Read(//etc/*)", file("Read", "/etc/passwd"), true},
		{allow, "Read(~/x)", file("Read", "/home/u/x"), true},
		{allow, "Read(~/x)", file("Read", "~/x"), true},
		{allow, "Read(src/**)", file("Read", "src/../../etc"), false},
		{allow, "Read(src/**)", file("Read", "a/src/b"), false},
		{deny, "Read(src/**)", file("Read", "a/src/b"), true},
		{deny, "Read(secrets)", file("Read", "a/secrets/b/c"), true},
		{allow, "Read(secrets)", file("Read", "a/secrets/b/c"), false},
		{deny, "Read(.env)", file("Edit", "a/.env"), true},
		{deny, "Read(.env)", file("NotebookEdit", "a/.env"), false},
		{allow, "Edit(a)", file("MultiEdit", "a"), true},
		{allow, "Write(a)", file("Write", "a"), false},
		{allow, "Edit(a)", file("Read", "a"), false},
		{allow, "Write(*)", file("Write", "a"), false},
		{deny, "Write(*)", file("Write", "a"), true},
		{deny, "Read(//c/Users/**)", file("Read", `C:\Users\x`), true},
		{deny, "Read(../x)", file("Read", "/work/x"), true},
		{deny, "Read(./secrets/**)", Call{Tool: "Grep", Input: map[string]any{"path": "/work/sub/secrets"}}, true},
		// Hosts.
		{deny, "WebFetch(domain:*.foo.*)", fetch("https://a.b.foo.com"), true},
		{deny, "WebFetch(domain:*.foo.*)", fetch("https://foo.com"), false},
		{allow, "WebFetch(domain:*.a.test)", fetch("https://a.test"), false},
		{allow, "WebFetch(domain:*.A.test.)", fetch("https://x.a.test."), true},
		{allow, "WebFetch(domain:*)", fetch("https://x.test"), true},
		{allow, "WebFetch(domain:a.*)", fetch("https://a.b.test"), false},
		{deny, "WebFetch(domain:*.a.test)", fetch("https://xa.test"), false},
		// Names.
		{allow, "mcp__a", Call{Tool: "mcp__a__b"}, true},
		{allow, "mcp__a", Call{Tool: "mcp__ab__c"}, false},
		{allow, "mcp__a__*", Call{Tool: "mcp__a__b"}, true},
		{allow, "mcp__*", Call{Tool: "mcp__a__b"}, false},
		{deny, "mcp__*", Call{Tool: "mcp__a__b"}, true},
		{deny, "mcp__a__b(x)", Call{Tool: "mcp__a__b"}, false},
		{allow, "*", bash("ls"), false},
	} {
		r, err := ParseRule(tt.rule)
		if err != nil {
			t.Errorf("%s: %v", tt.rule, err)
			continue
		}
		if got := r.Matches(tt.list, tt.call, scope); got != tt.want {
			t.Errorf("%s %s on %s %v: %t", tt.list, tt.rule, tt.call.Tool, tt.call.Input, got)
		}
	}
	if (Rule{}).Matches(allow, bash("ls"), scope) {
		t.Error("the zero rule allows")
	}
}

// FuzzWildcard compares with the regular expression that the pattern stands for.
func FuzzWildcard(f *testing.F) {
	for _, s := range [][2]string{{"a*b", "axxb"}, {"*\n*b", "x\n\nb"}, {"*\na*b", "x\na\nab"}, {"**", ""}, {"a*a*a", "aaaa"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 40 || strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(text, "") != text {
			t.Skip()
		}
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		line := regexp.MustCompile(`\A` + strings.Join(parts, `[^\n\r\x{2028}\x{2029}]*`) + `\z`)
		if got, want := wildcard(pattern, text, isLineEnd), line.MatchString(text); got != want {
			t.Errorf("%q on %q: %t, want %t", pattern, text, got, want)
		}
		all := regexp.MustCompile(`(?s)\A` + strings.Join(parts, `.*`) + `\z`)
		if got, want := wildcard(pattern, text, never), all.MatchString(text); got != want {
			t.Errorf("%q on %q, across lines: %t, want %t", pattern, text, got, want)
		}
	})
}

// FuzzMatches: no rule and no call breaks it, and what allows also denies.
func FuzzMatches(f *testing.F) {
	f.Add("Bash(npm *)", "npm run x && y")
	f.Add("Bash(0)", "<0")
	f.Add("Read(./src/**)", "src/a")
	f.Add("WebFetch(domain:*.a.test)", "https://x.a.test/")
	f.Fuzz(func(t *testing.T, rule, value string) {
		r, err := ParseRule(rule)
		if err != nil {
			t.Skip()
		}
		for _, c := range []Call{bash(value), file("Read", value), fetch(value)} {
			MatchRule(rule, c)
			s := Scope{Cwd: "/w", Dir: "/w", Home: "/h"}
			if r.Matches(netrule.Allow, c, s) && !r.Matches(netrule.Deny, c, s) {
				t.Errorf("%q allows %v and would not deny it", rule, c)
			}
		}
	})
}
