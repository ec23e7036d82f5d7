package rules

import (
	"encoding/json"
	"strings"
	"testing"
)

// floors tests what the floor says of calls.
func floors(t *testing.T, want bool, calls ...Call) {
	t.Helper()
	for _, c := range calls {
		if c.Workspace == "" {
			c.Workspace = "/ws"
		}
		if reason, err := Floor(c); err != nil || (reason != "") != want {
			t.Errorf("%s %.200s in %q: %q, %v, want a denial: %t", c.Tool, c.Args, c.Cwd, reason, err, want)
		}
	}
}

func shellCalls(commands ...string) []Call {
	var out []Call
	for _, command := range commands {
		out = append(out, Call{Tool: "bash", Args: jsonOf("command", command)})
	}
	return out
}

// toolCall is a call with the arguments of a JSON value.
func toolCall(t *testing.T, tool string, args any) Call {
	t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return Call{Tool: tool, Args: b}
}

type object = map[string]any

// TestFloorOperator: global options do not hide the subcommand.
func TestFloorOperator(t *testing.T) {
	floors(t, true, shellCalls("dshproxy --managed lint trust", "dshproxy --workspace explain allow x", "dshproxy --config check trust", "dshproxy --rules test allow x", "dshproxy --managed rules serve", "dshproxy --rules=x allow y", "dshproxy --config x allow y",
		"dshproxy --managed a --managed lint trust", "dshproxy --unknown lint trust", "dshproxy -- allow x", "dshproxy allow x help", "dshproxy allow -h.test", "dshproxy allow x --help=false", "dshproxy allow --ip --help x", "dshproxy hook claude-code --install user", "dshproxy hook claude-code --uninstall project",
		"d=dshproxy; $d allow x", "exec -a foo dshproxy allow x", "xargs dshproxy allow <<< x", "echo x | xargs dshproxy allow", "DSHPROXY_INSIDE= dshproxy allow x", "env - dshproxy trust", "A[0]=1 dshproxy trust", "(( )); dshproxy trust", `sh -c '"$@"' x dshproxy trust`, "npx dshproxy allow x", "dshproxy $x allow",
		"go run ./cmd/dshproxy allow x", "pkill dshproxy", "killall dshproxy", "systemctl stop dshproxy", "systemctl restart dshproxy.service", "kill $(pgrep dshproxy)", "dshproxy run sh", "dshproxy $(echo allow) x")...)
	floors(t, false, shellCalls("dshproxy --workspace . rules", "dshproxy --config lint explain allow", "dshproxy help allow", "dshproxy allow --help", "dshproxy serve -h", "dshproxy explain trust", "dshproxy check --tool bash --args '{}'", "dshproxy lint .dsh/rules.yaml", "dshproxy test .dsh/rules_test.yaml", "dshproxy --version",
		"dshproxy", "echo dshproxy allow", `grep -r "dshproxy allow" .`, "man dshproxy", "which dshproxy", "make dshproxy", "systemctl status dshproxy", "pgrep dshproxy", "go run ./cmd/dshproxy explain x", "go build ./cmd/dshproxy", "./run.sh --state dshproxy", "docker build -t dshproxy .")...)
}

// TestFloorProtected: the files that the caller names, in every way to change them.
func TestFloorProtected(t *testing.T) {
	in := []string{"/ws/policy/rules.yaml", "/srv/x/proxy.yaml", "/root/.local/state/dshproxy", "/run/x/admin.sock"}
	with := func(calls ...Call) []Call {
		for i := range calls {
			calls[i].Protected = in
		}
		return calls
	}
	floors(t, true, with(shellCalls("echo x > policy/rules.yaml", "echo x > /srv/x/proxy.yaml", "rm -rf policy", "rm -rf ./policy/", "mv policy p2", "mv /srv/x /srv/y", "rm -rf /srv", "rmdir /srv/x", "cd policy && rm rules.yaml", "cd policy; echo x > rules.yaml", "rm policy/*", "rm pol*/r*", "cp x policy/rules.yaml", "ln -s policy/rules.yaml y",
		"ln policy/rules.yaml y", "sed -i s/a/b/ policy/rules.yaml", "rm -rf ~/.local/state/dshproxy", "echo x > $HOME/.local/state/dshproxy/accepted/1.json", "rm -rf $XDG_STATE_HOME/dshproxy", "rm -rf ~/.local", "curl --unix-socket /run/x/admin.sock http://x/", "find . -name rules.yaml -delete", "find / -name 'proxy.y*' -exec rm {} +",
		"tee /SRV/X/PROXY.yaml", "cd / && rm srv/x/proxy.yaml", "rm -rf /*", "git checkout policy/rules.yaml", "chmod 666 policy/rules.yaml")...)...)
	floors(t, true, with(toolCall(t, "write", object{"path": "policy/rules.yaml"}), toolCall(t, "write", object{"path": "/root/.local/state/dshproxy/x"}), toolCall(t, "delete_file", object{"path": "/srv"}), toolCall(t, "move", object{"from": "policy", "to": "x"}), toolCall(t, "write", object{"dir": "policy", "name": "rules.yaml", "path": "policy/rules.yaml"}),
		toolCall(t, "apply_patch", object{"input": "*** Begin Patch\n*** Delete File: policy/rules.yaml\n*** End Patch"}))...)
	floors(t, false, with(shellCalls("cat policy/rules.yaml", "echo x > policy/other.yaml", "rm -rf build", "rm -rf *.o", "mv a.txt .", "mv a.txt ..", "find . -name '*.pyc' -delete", "cp policy/rules.yaml /tmp/x", "ls /srv/x", "rm policy/other.yaml", "rm -rf /tmp/x", "git diff policy", "git add policy", "sed -i s/a/b/ *", "grep -r x .")...)...)
	floors(t, false, with(toolCall(t, "write", object{"path": "policy/other.yaml"}), toolCall(t, "read", object{"path": "policy/rules.yaml"}), toolCall(t, "move_file", object{"source": "a", "destination": "/ws"}))...)
	floors(t, true, Call{Tool: "bash", Args: jsonOf("command", "rm *"), Cwd: "/ws/policy", Protected: in}, Call{Tool: "write", Args: jsonOf("path", "rules.yaml"), Cwd: "/ws/policy", Protected: in})
}

// TestFloorFolders: whole folders, by patterns too, and from inside.
func TestFloorFolders(t *testing.T) {
	floors(t, true, shellCalls("rm -rf ~/.config/dshproxy", "mv ~/.config/dshproxy x", "rm -rf /etc/dshproxy", "echo x > /etc/dshproxy/managed.yml", "rm -rf /etc/claude-code", "rm -rf ~/.pi", "rm -rf .pi", "rm -rf .pi/agent", "mv .pi/extensions x", "rm -rf .claude", "rm -rf .claude/", "cp x .claude/", "rm ~/.local/state/dshproxy/*",
		"rm .claude/settings*", "rm .claude/*.json", "rm -rf .claude/*", "rm .claude/s*", "tee .claude/setting?.json", "tee .cl?ude/settings.json", "tee .claude/[s]ettings.json", "tee .claude/settings{,.local}.json", "rm -rf .[d]sh", "rm -rf ?dsh", "rm -rf .??h", "rm -rf .*", "rm -rf .d*", "rm -rf .ds?", "rm -rf .c*", "rm -rf .[c]laude",
		"rm -rf .{dsh,git}", "rm -rf ./{.dsh,x}", "rm .[[:lower:]]sh/rules.yaml", "rm -rf .[!x]sh", "rm .dsh/*", "for f in .dsh/*; do rm $f; done", "d=.dsh; echo x > $d/rules.yaml", "rm -rf $(ls -d .dsh)", "ls .dsh/* | xargs rm", "cd .dsh && echo x > rules.yaml", "cd .claude && echo x > settings.json", "cd ~/.claude; cp x settings.json",
		"pushd .dsh; echo > rules.yaml", "A=1 >.dsh/rules.yaml", "A=1 >.dsh/rules.yaml 'x", ">.dsh/rules.yaml 'x", "A=1 B=2 2>&1 >>.dsh/rules.yaml \"", "(cd .dsh && tee rules.yaml < x)", "cd a; cd ../.dsh; rm rules.yaml", "cd sub && rm ../.dsh/rules.yaml", "cd .claude; rm *")...)
	for _, dir := range []string{"/ws/.dsh", "/ws/.claude", "/home/u/.config/dshproxy"} {
		floors(t, true, Call{Tool: "bash", Args: jsonOf("command", "rm *"), Cwd: dir})
	}
	floors(t, false, shellCalls("cd .claude && ls", "cd .dsh", "cd .claude/commands && echo x > a.md", "rm -rf *", "rm *.json", "ls .*", "rm .claude/commands/*.md", "echo x > .claude/commands/x.md", "mkdir -p .claude/agents", "touch .claude/CLAUDE.md", "echo x > src/state/dshproxy/x.go", "echo x > dshproxy/values.yaml", "vim dshproxy/config.yaml",
		"helm install dshproxy charts/dshproxy/values.yaml", "rm -rf bin/dshproxy", "rm docs/dshproxy", "echo x > state/dshproxy/x", "ls ~/.config/dshproxy", "cd dshproxy && make", "rm config.json", "echo x > .pi/agent/notes.md", "git clone https://x/dshproxy")...)
}

// TestFloorTools: only a tool that does nothing but read may name policy files.
func TestFloorTools(t *testing.T) {
	for _, tool := range []string{"search_replace", "search_and_replace", "find_and_replace", "get_file_and_replace", "list_and_delete", "todo_write", "get_write", "reader_write", "viewport_edit", "research_write", "readWrite", "mcp__x__read_and_write", "fetchAndSave", "view-update", "write_file", "mcp__fs__move_file", "editFile", "str_replace_editor", "unheard"} {
		floors(t, true, toolCall(t, tool, object{"path": ".dsh/rules.yaml"}))
	}
	for _, tool := range []string{"read", "Read", "read_file", "readFile", "mcp__fs__read_text_file", "Grep", "grep_search", "codebase_search", "list_dir", "LS", "Glob", "view", "find_files", "mcp__git__diff", "git_log", "LSP", "get_file"} {
		floors(t, false, toolCall(t, tool, object{"path": ".dsh/rules.yaml"}))
	}
	floors(t, true, toolCall(t, "mcp__fs__get", object{"path": ".dsh/rules.yaml", "content": "x"}), toolCall(t, "write", object{".dsh/rules.yaml": "content"}), toolCall(t, "write_files", object{"files": object{".dsh/rules.yaml": "rules: []"}}), toolCall(t, "write", object{"path": ".dsh/rules.yaml\n"}), toolCall(t, "write", object{"path": "\n.dsh/rules.yaml"}),
		toolCall(t, "write", object{"path": "x\n/../.dsh/rules.yaml"}), toolCall(t, "write", object{"path": ".dsh/rules.yaml\x00"}), toolCall(t, "write", object{"path": strings.Repeat("./", 2100) + ".dsh/rules.yaml"}), toolCall(t, "write", object{"uri": "file:///ws/.dsh/rules.yaml"}), toolCall(t, "write", object{"path": `.dsh\rules.yaml`}), toolCall(t, "write", object{"path": ".dsh./rules.yaml"}), toolCall(t, "write", object{"path": ".dsh /rules.yaml"}), toolCall(t, "write", object{"path": ".d\u200csh/rules.yaml"}), toolCall(t, "write", object{"path": ".claude/settings.json."}),
		toolCall(t, "write", object{"uri": "file:///ws/%2edsh/rules.yaml"}),
		toolCall(t, "write", object{"dir": ".claude", "name": "settings.json"}), toolCall(t, "write", object{"path": "rules.yaml", "cwd": "/ws/.dsh"}), toolCall(t, "exec", object{"argv": []string{"rm", ".dsh/rules.yaml"}}), toolCall(t, "powershell", object{"command": `Set-Content .dsh\rules.yaml x`}), toolCall(t, "pwsh", object{"command": `Remove-Item .claude\settings.json`}),
		toolCall(t, "python", object{"code": "open('.dsh/rules.yaml','w')"}), toolCall(t, "bash", object{"input": "rm .dsh/rules.yaml"}), toolCall(t, "bash", object{"code": "rm .dsh/rules.yaml"}), toolCall(t, "symlink", object{"target": ".dsh", "path": "y"}), toolCall(t, "shell", object{"command": []string{"bash", "-lc", "echo x > .dsh/rules.yaml"}}))
	floors(t, false, toolCall(t, "edit", object{"path": "README.md", "new_string": ".dsh"}), toolCall(t, "edit", object{"path": ".gitignore", "old_string": "x", "new_string": ".dsh"}), toolCall(t, "write", object{"path": ".gitignore", "content": ".claude"}), toolCall(t, "write", object{"path": "x.md", "content": "+++ b/.dsh/rules.yaml\n"}),
		toolCall(t, "task", object{"prompt": ".dsh/rules.yaml"}), toolCall(t, "create_issue", object{"title": ".claude/settings.json", "body": ".dsh"}), toolCall(t, "slack_send", object{"text": ".dsh/rules.yaml"}), toolCall(t, "AskUserQuestion", object{"question": ".claude"}), toolCall(t, "write", object{"path": "src/state/dshproxy/x.go"}),
		toolCall(t, "write", object{"path": "dshproxy/values.yaml"}), toolCall(t, "write", object{"path": ".claude/commands/x.md", "content": ""}), toolCall(t, "edit", object{"path": "pkg/config.json"}), toolCall(t, "python", object{"code": "print(open('.dsh/rules.yaml').read())"}), toolCall(t, "TodoWrite", object{"todos": []object{{"content": ".dsh/rules.yaml"}}}),
		toolCall(t, "pwsh", object{"command": `Get-Content .dsh\rules.yaml`}), toolCall(t, "web_search", object{"query": ".dsh"}))
}

// TestFloorPatches: however a patch names its files, and however it gets to the program that applies it.
func TestFloorPatches(t *testing.T) {
	for _, patch := range []string{
		"*** Begin Patch\n*** Update File: .dsh/rules.yaml\n@@\n-a\n+b\n*** End Patch", "*** Begin Patch\n*** Update File: a\n*** Move to: .dsh/rules.yaml\n", "--- a/.dsh/rules.yaml\n+++ b/.dsh/rules.yaml\n", "--- a/x\n+++ b/.claude/settings.json\t2020-01-01\n", "+++ b/.claude/settings.json\t2020\n",
		"diff --git a/.dsh/rules.yaml b/.dsh/rules.yaml\ndeleted file mode 100644\n", "diff --git a/x b/y\nrename from x\nrename to .dsh/rules.yaml\n", "diff --git a/x b/y\ncopy to .claude/settings.json\n", "--- \"a/.dsh/rules.yaml\"\n+++ \"b/.dsh/rules.yaml\"\n", "Index: .dsh/rules.yaml\n===\n", "+++\t.dsh/rules.yaml\nx",
		"*** a/.dsh/rules.yaml\t2020\n--- b/x\n",
	} {
		floors(t, true, toolCall(t, "apply_patch", object{"input": patch}), toolCall(t, "apply_patch", object{"content": patch}), toolCall(t, "mcp__x__patch", object{"diff": patch}), toolCall(t, "write", object{"x": patch}), toolCall(t, "bash", object{"command": []string{"apply_patch", patch}}))
		for _, command := range []string{"apply_patch <<'E'\n%\nE", "git apply <<'E'\n%\nE", "patch -p1 <<'E'\n%\nE", "cat <<'E' | git apply -\n%\nE", "sudo patch -p0 <<'E'\n%\nE", "cd x && git apply <<'E'\n%\nE", "git am <<'E'\n%\nE"} {
			floors(t, true, shellCalls(strings.ReplaceAll(command, "%", patch))...)
		}
	}
	floors(t, false, toolCall(t, "apply_patch", object{"input": "*** Begin Patch\n*** Update File: README.md\n@@\n+see .dsh/rules.yaml\n*** End Patch"}))
	floors(t, false, shellCalls("git apply <<'E'\n--- a/x\n+++ b/x\n@@\n+.dsh/rules.yaml\nE", "cat > x.md <<'E'\n+++ b/.dsh/rules.yaml\nE")...)
}

// TestFloorCommands: everyday commands that write in their own way, and those that only look so.
func TestFloorCommands(t *testing.T) {
	floors(t, true, shellCalls("cp x .dsh/rules.yaml -v", "cp x .dsh/rules.yaml --backup", "cp x .dsh/rules.yaml -S .bak", "install x .dsh/rules.yaml -m 644", "xargs rm <<< .dsh/rules.yaml", "echo .dsh/rules.yaml | xargs rm", "echo .dsh/rules.yaml | xargs tee < x", "ln .dsh/rules.yaml y", "ln -s .dsh y", "ln -s .dsh/rules.yaml y", "cp -l .dsh/rules.yaml y",
		"git checkout log -- .dsh/rules.yaml", "git checkout status .dsh/rules.yaml", "git -C .dsh checkout log", "git diff --output=.dsh/rules.yaml", "git log --output=.dsh/rules.yaml", "git log --output .dsh/rules.yaml", "git archive -o .dsh/rules.yaml HEAD", "git -c a=b restore .dsh", "git rm .dsh/rules.yaml", "git config -f .dsh/x a.b c", "git worktree add .dsh log",
		"less -o .dsh/rules.yaml x", "less -O.dsh/rules.yaml x", "less --log-file=.dsh/rules.yaml x", "tree -o .dsh/rules.yaml", "xxd -r x .dsh/rules.yaml", "xxd -r -p x .dsh/rules.yaml", "yq --inplace .x=1 .dsh/rules.yaml", "yq eval --inplace x .dsh/rules.yaml", "yq -i .x=1 .dsh/rules.yaml", "sed 's/a/b/w .dsh/rules.yaml' x", "sed -n 'w .dsh/rules.yaml' x",
		"sed -ne 'w.dsh/rules.yaml' x", "sed -ni p .dsh/rules.yaml", `awk '{print > ".dsh/rules.yaml"}' f`, `awk 'BEGIN{print "x" >> ".dsh/rules.yaml"}'`, `perl -e 'open(F,">.dsh/rules.yaml")'`, `python3 -c 'open(".dsh/rules.yaml","w").write("x")'`, `ruby -e 'File.write(".dsh/rules.yaml","x")'`, `node -e 'require("fs").writeFileSync(".dsh/rules.yaml","x")'`,
		"python3 - <<'E'\nopen('.dsh/rules.yaml','w')\nE", "python3 x.py .dsh/rules.yaml", "prettier --write .claude/settings.json", "zip -m x.zip .dsh/rules.yaml", "tar xf a.tar .dsh", "tar cf .dsh/rules.yaml x", "rsync -a x/ .dsh/", "find . -path '*dsh*' -delete", "find .dsh -fprintf x y", "sort x -o.dsh/rules.yaml", "curl -sSo .dsh/rules.yaml x", "dd of=.dsh/rules.yaml if=x",
		"env -S 'tee .dsh/rules.yaml' < x", "env - tee .dsh/rules.yaml", "A[0]=1 tee .dsh/rules.yaml", "time -- tee .dsh/rules.yaml", `(( )); echo "$(tee .dsh/rules.yaml <x)"`, "! ! :; f() { echo > .dsh/rules.yaml; }; f", `sh -c 'tee "$0"' .dsh/rules.yaml`, "exec 3>.dsh/rules.yaml; echo x >&3", "tee {.dsh,}/rules.yaml",
		"cat <<'E'\nsh -c 'rm .dsh/rules.yaml'\nE\nsh -c 'rm .dsh/rules.yaml'", "echo 'rm .dsh/rules.yaml' > s; sh s", "echo 'rm .dsh/rules.yaml' | bash")...)
	floors(t, false, shellCalls("cut -c1 .dsh/rules.yaml", "column -t .dsh/rules.yaml", "paste .dsh/rules.yaml", "comm .dsh/rules.yaml x", "yamllint .dsh/rules.yaml", "du -sh .dsh", "zip -r x.zip .dsh", "python3 -m json.tool .claude/settings.json", "rm -rf build --exclude=.dsh", "rsync -a --exclude .dsh src/ dst/", "rsync -a --exclude=.dsh --delete src/ dst/",
		"tar xf a.tar --exclude=.dsh", "grep -r --exclude-dir=.dsh x .", "find . -not -path './.dsh/*' -exec grep x {} +", "find . -path ./.dsh -prune -o -exec rm {} +", "find . ! -path './.dsh/*' -name '*.o' -delete", "find .dsh -exec grep x {} +", "less .dsh/rules.yaml", "xxd .dsh/rules.yaml", "tree .dsh", "sed s/i/j/ .dsh/rules.yaml", "sed -e 's/in/out/' .dsh/rules.yaml",
		"awk '{print}' .dsh/rules.yaml", "prettier --check .claude/settings.json", "shellcheck .claude/hooks/x.sh", "git config core.excludesFile .dsh", "git show HEAD:.dsh/rules.yaml", "git log -p .dsh/rules.yaml", "git blame .dsh/rules.yaml", "git commit -m 'x' -- .dsh/rules.yaml", "gh pr create --title .dsh", "cp -r .dsh backup", "cp .dsh/rules.yaml -v /tmp/x",
		"tar -czf x.tgz .claude", "pre-commit run --files .dsh/rules.yaml", "docker run -v ./.dsh:/x:ro y", "cat .claude/settings.json | jq .", "jq . .claude/settings.json", "echo .dsh >> .gitignore", "printf '.claude\\n' >> .gitignore", "tr a b < .dsh/rules.yaml", "python3 x.py < .dsh/rules.yaml", "git diff --name-only .claude | xargs prettier --check", "readlink -f .dsh/rules.yaml",
		`perl -ne 'print if /x/' .dsh/rules.yaml`, `python3 -c 'print("write")'`)...)
}

// FuzzFloor: nothing that a call holds stops the floor.
func FuzzFloor(f *testing.F) {
	for _, s := range []string{"rm .dsh/*", "sed 'w .dsh/x' y", "cd ..; tee {a,b}", "find . -path ./.dsh -prune -o -exec rm {} +", "git -C .dsh checkout x", "tar -C.dsh -xf x", "[", "[]a]dsh", "{,}"} {
		f.Add("bash", s)
		f.Add("write", s)
	}
	f.Fuzz(func(t *testing.T, tool, text string) {
		for _, key := range []string{"command", "path"} {
			_, _ = Floor(Call{Tool: tool, Args: jsonOf(key, text), Workspace: "/ws", Cwd: "/ws/a", Protected: []string{"/ws/p/q", "", "x"}}) // it has not crashed
		}
	})
}
