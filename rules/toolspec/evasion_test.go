package toolspec

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules/work"
)

// TestAnchors: a denial of a relative path holds wherever the call is made, an allow nowhere but in the workspace.
func TestAnchors(t *testing.T) {
	set := NewSet(settings(t, Project, `{"permissions": {"deny": ["Read(./secrets/**)", "Read(a/b.txt)", "Edit(deploy/x/**)"], "ask": ["Edit(ask/x/**)"], "allow": ["Read(docs/**)", "Edit(docs/**)"]}}`))
	for _, tt := range []struct {
		tool, path, cwd, want string
	}{
		{"Read", "/work/secrets/k", "/work", "deny"},
		{"Read", "/work/secrets/k", "/work/sub", "deny"},
		{"Read", "/work/secrets/k", "/", "deny"},
		{"Read", "/work/secrets/k", "/elsewhere", "deny"},
		{"Read", "../secrets/k", "/work/sub", "deny"},
		{"Read", "k", "/work/secrets", "deny"},
		{"Read", "secrets/k", "/elsewhere", "deny"},
		{"Read", "/work/secrets", "/", "deny"},
		{"Read", "/work/a/b.txt", "/tmp", "deny"},
		{"Read", "/work/x/a/b.txt", "/work", "none"},
		{"Read", "/work/x/a/b.txt", "/work/x", "deny"},
		{"Edit", "/work/deploy/x/a", "/work/sub", "deny"},
		{"Write", "/work/ask/x/a", "/work/sub", "ask"},
		{"Read", "docs/x", "/work", "allow"},
		{"Read", "docs/x", "/work/sub", "allow"},
		{"Read", "/work/docs/x", "/etc", "allow"},
		{"Read", "/etc/docs/x", "/etc", "none"},
		{"Edit", "/etc/docs/x", "/etc", "none"},
		{"Edit", "docs/x", "/etc", "none"},
		{"Edit", "docs/x", "/workother", "none"},
		{"Bash", "cat /work/secrets/k", "/work/sub", "deny"},
		{"Bash", "cat ../secrets/k", "/work/sub", "deny"},
		{"Bash", "cat secrets/k", "/work/sub", "deny"},
	} {
		c := file(tt.tool, tt.path)
		if tt.tool == "Bash" {
			c = bash(tt.path)
		}
		v := set.Decide(c, Scope{Cwd: tt.cwd, Workspace: "/work", Home: "/home/u"})
		got := "none"
		if v.Matched {
			got = v.Action.String()
		}
		if got != tt.want {
			t.Errorf("%s %s in %s: %s, want %s", tt.tool, tt.path, tt.cwd, got, tt.want)
		}
	}
}

// TestShellFiles: the ways in which a command names a file that a denial is about.
func TestShellFiles(t *testing.T) {
	scope := Scope{Cwd: "/work", Dir: "/work", Home: "/home/u"}
	for rule, commands := range map[string]map[string]bool{
		"Read(./secrets/**)": {
			"cat secrets/k": true, "cat < secrets/k": true, "cat<secrets/k": true, "x=$(<secrets/k)": true, "cat 0<secrets/k": true, "while read l; do :; done < secrets/k": true, "{ cat; } <secrets/k": true,
			"cat {secrets/k,x}": true, "cat {x,secrets/{a,b}}": true, "cat secre{ts,}/k": true, "cat s{e..e}crets/k": true, "cat {a,{secrets,b}}/k": true,
			"cat secre{ts,}/k\nif (": true, "cd secrets; cat k\n)": true, "cat s?crets/k; ls\nfor": true, "cat x\nif (": false,
			"cat {1..3}": false, "cat sec*/k": true, "cat s?crets/*": true, "cat [s]ecrets/k": true, "cat */k": true, "cat /w*/secrets/k": true, "cat **/k": true, "cat [!x]*/k": true,
			"cd secrets && cat k": true, "cd secrets; cat k": true, "(cd ./secrets; cat k)": true, "pushd secrets; head k": true, "cd sub/../secrets && cat < k": true, "cd x; cd /work; cd secrets; cat k": true,
			"/bin/cat secrets/k": true, "'cat' 'secrets'/k": true, "sudo cat secrets/k": true, "env A=1 cat secrets/k": true, "time -- cat secrets/k": true, "cp secrets/k x": true, "grep '' secrets/k": true,
			"cat $PWD/secrets/k": true, "dd if=secrets/k": true, "cat {a,b,secrets/k} if (": true, "cat < 'secrets'/k if then (": true, "source secrets/k": true, "diff --from-file=secrets/k x": true,
			"cat secret/k": false, "cat x": false, "cat *": false, "cat *.txt": false, "cat sec*/k/../../x": false, "cat {a,b}": false, "cd src && cat k": false, "ls": false, "cat a{b..d}": false, "echo secrets": false,
		},
		"Read(.env)":            {"cat<.env": true, "cat .e*": true, "cat .env*": true, "cat *": false, "cat *env": false, "shopt -s dotglob; cat *env": true, "cat a/.[e]nv": true, "cat ?env": false},
		"Read(**/*.pem)":        {"cat a/*": true, "cat *.pem": true, "cat *.txt": false, "cat x.p?m": true, "cat k.{pem,crt}": true},
		"Edit(~/.bashrc)":       {"echo x > ~/.bashrc": true, "echo x >$HOME/.bashrc": true, `echo x >> "$HOME"/.bashrc`: true, "tee ~/.bashrc": true, "echo x | tee -a ${HOME}/.bashrc": true, "cd; echo x > .bashrc": true, "cat ~/.bashrc": false, "echo x > .bashrc": false},
		"Edit(src/**)":          {"tee src/f": true, "echo | tee x src/f": true, "cp x src/f": true, "cp src/f x": false, "mv src/f x": true, "rm -rf src/f": true, "touch src/f": true, "dd of=src/f": true, "cp -t src/a x": true, "install x src/y": true, "sed -i s/a/b/ src/f": true, "sed -n p src/f": false, "cd src; echo > f": true, "truncate -s0 src/f": true},
		"Read(//etc/shadow)":    {"cat /etc/shadow": true, "cat /etc/../etc/shadow": true, "cat < /etc/sh*": true, "cat //etc/shadow": true, "cat /e*/shadow": true, "cat /etc/passwd": false},
		"Bash(rm *)":            {"time -- rm x": true, "time -p -- rm x": true, "command -- rm x": true, "nohup -- rm x": true, "-- rm x": true, "time -- ls": false},
		`Read(./we\*ird\[x/**)`: {"cat 'we*ird[x/k'": true, "cat weird/k": false},
	} {
		for command, want := range commands {
			for _, list := range []netrule.Action{netrule.Deny, netrule.Ask} {
				r, err := ParseRule(rule)
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Matches(list, bash(command), scope); got != want {
					t.Errorf("%s of %s: %q: %v", list, rule, command, got)
				}
			}
		}
	}
}

// TestLargeCalls: what is too large to be matched is refused where a rule asks about it, soon, and never passes.
func TestLargeCalls(t *testing.T) {
	deep, long := strings.Repeat("a/", 60_000)+"b", strings.Repeat("a", maxPath)
	paths := NewSet(settings(t, User, `{"permissions": {"deny": ["Read(**/a/**/b/**/c/**/d)", "Read(.env)", "Edit(x/**)"], "allow": ["Read", "Bash", "Edit", "mcp__x"]}}`))
	commands := NewSet(settings(t, User, `{"permissions": {"deny": ["Bash(*a*a*a*b)"], "allow": ["Bash", "Read"]}}`))
	var many []string
	for i := range 3000 {
		many = append(many, fmt.Sprintf(`"Bash(*x%d*y*)", "Read(a%d/**/b/**)"`, i, i))
	}
	wide := NewSet(settings(t, User, `{"permissions": {"ask": [`+strings.Join(many, ",")+`], "allow": ["Bash", "Read"]}}`))
	for name, tt := range map[string]struct {
		set  *Set
		call Call
		want string
	}{
		"a deep path":              {paths, file("Read", deep), "refused"},
		"a long one":               {paths, file("Write", "/"+long), "refused"},
		"one that just fits":       {paths, file("Read", long[1:]), "allow"},
		"deep in a command":        {paths, bash("cat " + deep), "refused"},
		"deep in a redirect":       {paths, bash("cat < " + deep), "refused"},
		"many files":               {paths, bash("cat " + strings.Repeat("a ", 70_000)), "refused"},
		"many folders":             {paths, bash(strings.Repeat("cd a; ", 100) + "cat b"), "refused"},
		"many braces":              {paths, bash("cat " + strings.Repeat("{a,b}", 60)), "refused"},
		"braces that never end":    {paths, bash("tee '" + strings.Repeat("{", 3500) + "'"), "refused"},
		"braces in braces":         {paths, bash("cat " + strings.Repeat("{a,", 3000) + strings.Repeat("}", 3000)), "refused"},
		"no rule asks about paths": {commands, file("Read", deep), "allow"},
		"a long command":           {commands, bash(strings.Repeat("a", maxParsed+1)), "refused"},
		"many commands":            {commands, bash(strings.Repeat("a;", 10_000)), "allow"},
		"too many commands":        {commands, bash(strings.Repeat("a;", maxParsed/2-1)), "refused"},
		"many rules":               {wide, bash("cat " + strings.Repeat("a/b ", 3000)), "refused"},
		"another tool":             {paths, Call{Tool: "mcp__x", Input: map[string]any{"path": deep}}, "allow"},
	} {
		start := time.Now()
		v := tt.set.Decide(tt.call, Scope{Cwd: "/work", Home: "/home/u"})
		got := v.Action.String()
		if v.Ref.Reason == tooMuch {
			got = "refused"
		} else if !v.Matched {
			got = "none"
		}
		if took := time.Since(start); got != tt.want || took > 20*time.Second {
			t.Errorf("%s: %s in %v, want %s", name, got, took, tt.want)
		}
	}
	// What could not be matched is refused beside what a rule denies, too.
	if v := paths.Decide(bash("cat .env "+deep), Scope{Cwd: "/work"}); !v.Matched || v.Action != netrule.Deny {
		t.Errorf("%+v", v)
	}
}

// FuzzMatchFolders holds the matcher to the one that it stands beside, tried on every folder.
func FuzzMatchFolders(f *testing.F) {
	for _, s := range []string{"**/a/**/b", "a/**", "**", "*.go", "a/?/[b-d]/**/c", "**/**/x"} {
		f.Add(s, "a/b/c")
		f.Add(s, "x/a/y/b")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 60 || len(name) > 60 || pattern == "" || name == "" {
			return
		}
		wantAbove := false
		for i := range name {
			wantAbove = wantAbove || name[i] == '/' && matchPath(pattern, name[:i], work.New(math.MaxInt))
		}
		self, above := matchFolders(pattern, name, false, false, work.New(math.MaxInt))
		if want := matchPath(pattern, name, work.New(math.MaxInt)); self != want || above != wantAbove {
			t.Fatalf("%q on %q: %v %v, want %v %v", pattern, name, self, above, want, wantAbove)
		}
		if globbed, _ := matchFolders(pattern, name, true, true, work.New(math.MaxInt)); self && !globbed {
			t.Fatalf("%q on %q: a pattern of the shell's does not match what it is", pattern, name)
		}
	})
}
