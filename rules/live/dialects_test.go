//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// TestDialects: each language by its own order, then deny before ask before allow; every verdict names its file.
func TestDialects(t *testing.T) {
	home, ws := t.TempDir(), t.TempDir()
	write(t, filepath.Join(ws, ".dsh/rules.yaml"), `rules:
  - match: { tools: [bash], argv: { command: make } }
    action: allow
    reason: builds
  - match: { tools: [bash], argv: { command: git } }
    action: allow
    reason: git is fine
  - match: { network: { domains: [dsh.test] } }
    action: allow
    reason: ours
`)
	write(t, filepath.Join(ws, ".claude/settings.json"), "{\"permissions\": {\n\"deny\": [\"Bash(git push *)\", \"WebFetch(domain:bad.test)\"],\n\"ask\": [\"Bash(make deploy)\"]}}")
	write(t, filepath.Join(home, ".claude/settings.json"), `{"permissions": {"allow": ["Bash(ls *)", "WebFetch(domain:docs.test)", "Read(~/notes/**)"], "deny": ["WebFetch(domain:dsh.test)"]}}`)
	write(t, filepath.Join(home, ".pi/agent/pi-permissions.jsonc"), "{\n\"tools\": {\"read\": \"deny\"}, \"bash\": {\"*\": \"allow\"}}")
	policy := netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}}
	places := Places{Home: home, ClaudeUser: filepath.Join(home, ".claude"), PiUser: filepath.Join(home, ".pi/agent")}
	for _, tt := range []struct {
		dialects []Dialect
		tool     string
		args     string
		want     string
	}{
		{[]Dialect{DSH}, "bash", `{"command": "git push x"}`, "allow rules.yaml:5 workspace"},
		{[]Dialect{DSH, ClaudeSettings}, "bash", `{"command": "git push x"}`, "deny settings.json:2 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "bash", `{"command": "git pull"}`, "allow rules.yaml:5 workspace"},
		{[]Dialect{DSH, ClaudeSettings}, "bash", `{"command": "make deploy"}`, "ask settings.json:3 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "bash", `{"command": "ls -l"}`, "allow settings.json:1 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "bash", `{"command": "rm x"}`, "passthrough"},
		{[]Dialect{ClaudeSettings}, "bash", `{"command": "make"}`, "passthrough"},
		{[]Dialect{DSH, ClaudeSettings}, "read", `{"path": "` + home + `/notes/a"}`, "allow settings.json:1 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "web_fetch", `{"url": "https://docs.test/"}`, "allow settings.json:1 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "web_fetch", `{"url": "https://bad.test/"}`, "deny settings.json:2 claude-settings"},
		{[]Dialect{DSH, ClaudeSettings}, "web_fetch", `{"url": "https://dsh.test/"}`, "deny settings.json:1 claude-settings"},
		{[]Dialect{DSH}, "web_fetch", `{"url": "https://dsh.test/"}`, "allow rules.yaml:8 workspace"},
		{[]Dialect{DSH, ClaudeSettings}, "web_fetch", `{"url": "https://other.test/"}`, "deny"},
		{[]Dialect{DSH, PiPermission}, "bash", `{"command": "rm x"}`, "allow pi-permissions.jsonc:2 pi-permission"},
		{[]Dialect{DSH, PiPermission}, "read", `{"path": "x"}`, "deny pi-permissions.jsonc:2 pi-permission"},
		{Dialects(), "read", `{"path": "` + home + `/notes/a"}`, "deny pi-permissions.jsonc:2 pi-permission"},
		{[]Dialect{DSH, PiPermission}, "other", `{}`, "ask"},
	} {
		r := load(t, Options{Workspace: ws, Dialects: tt.dialects, Places: places, Policy: policy})
		v, err := r.Current().Judge(rules.Call{Tool: tt.tool, Args: []byte(tt.args), Workspace: ws}, true)
		must(t, err)
		got := "passthrough"
		if !v.Passthrough {
			got = v.Action.String()
		}
		if v.Rule.Valid() {
			got += fmt.Sprintf(" %s:%d %s", filepath.Base(v.Rule.File), v.Rule.Line, v.Rule.Layer)
		}
		if got != tt.want {
			t.Errorf("%v %s %s: %s, want %s", tt.dialects, tt.tool, tt.args, got, tt.want)
		}
	}
}

// TestDialectsFeedTheProxy: what the settings say of hosts holds for connections, in the same way as for the client's tool.
func TestDialectsFeedTheProxy(t *testing.T) {
	home, ws := t.TempDir(), t.TempDir()
	write(t, filepath.Join(home, "settings.json"), `{"permissions": {"allow": ["WebFetch(domain:*.docs.test)"], "deny": ["WebFetch(domain:no.docs.test)"], "ask": ["WebFetch(domain:ask.test)"]},
		"sandbox": {"network": {"allowedDomains": ["reg.test:443"]}}}`)
	r := load(t, Options{
		Workspace: ws, Dialects: []Dialect{ClaudeSettings}, Places: Places{ClaudeUser: home},
		Policy: netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}},
	})
	for _, host := range []string{"a.docs.test", "docs.test", "no.docs.test", "ask.test", "reg.test", "other.test"} {
		d := r.Current().Policy.Decide(netrule.Query{Target: target(t, "https://"+host+"/")})
		args, err := json.Marshal(map[string]string{"url": "https://" + host + "/"})
		must(t, err)
		v, err := r.Current().Judge(rules.Call{Tool: "web_fetch", Alias: "WebFetch", Args: args, Workspace: ws}, true)
		must(t, err)
		if v.Action != d.Action || v.Code != d.Code || v.Rule != d.Rule {
			t.Errorf("%s: the call is %v %v %v, the connection %v %v %v", host, v.Action, v.Code, v.Rule, d.Action, d.Code, d.Rule)
		}
	}
}

// TestForeignFiles: broken ones refuse the load, others' files are refused, links out of the workspace are not followed.
func TestForeignFiles(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "settings.json"), "{}")
	for name, spoil := range map[string]struct {
		make func(ws string)
		want string
	}{
		"broken": {func(ws string) { write(t, filepath.Join(ws, ".claude/settings.json"), "{") }, ".claude/settings.json:1:2: no JSON"},
		"bad rule": {func(ws string) {
			write(t, filepath.Join(ws, ".claude/settings.local.json"), `{"permissions": {"deny": ["Bash("]}}`)
		}, "settings.local.json:1:27: permissions.deny: want Tool(specifier)"},
		"a link": {func(ws string) {
			must(t, os.MkdirAll(filepath.Join(ws, ".claude"), 0o755))
			must(t, os.Symlink(filepath.Join(home, "settings.json"), filepath.Join(ws, ".claude/settings.json")))
		}, "path escapes"},
		"a folder": {func(ws string) { must(t, os.MkdirAll(filepath.Join(ws, ".claude/settings.json"), 0o755)) }, "not a regular file"},
		"writable": {func(string) { must(t, os.Chmod(filepath.Join(home, "settings.json"), 0o666)) }, "writable by others"},
	} {
		ws := t.TempDir()
		must(t, os.Chmod(filepath.Join(home, "settings.json"), 0o600))
		spoil.make(ws)
		err := newRules(t, Options{Workspace: ws, Dialects: []Dialect{ClaudeSettings}, Places: Places{ClaudeUser: home}}).Load()
		if err == nil || !strings.Contains(err.Error(), spoil.want) {
			t.Errorf("%s: %v, want %q", name, err, spoil.want)
		}
	}
}

// TestShellTargets: what the settings refuse of hosts is refused of a shell command that names them, and only what the
// proxy refuses.
func TestShellTargets(t *testing.T) {
	ws := t.TempDir()
	for _, tt := range []struct{ settings, command, want string }{
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash(curl *)"]}`, "curl https://evil.test", "deny"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash(curl *)"]}`, "curl https://ok.test https://evil.test:8443/x", "deny"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash(curl *)"]}`, "curl https://ok.test", "allow"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash(curl *)"]}`, "curl https://x.evil.test", "allow"},
		{`"permissions": {"ask": ["WebFetch(domain:*.evil.test)"], "allow": ["Bash"]}`, "curl https://x.evil.test", "ask"},
		{`"permissions": {"allow": ["Bash"]}, "sandbox": {"network": {"deniedDomains": ["evil.test:443"]}}`, "curl https://evil.test", "deny"},
		{`"permissions": {"allow": ["Bash"]}, "sandbox": {"network": {"deniedDomains": ["evil.test:443"]}}`, "curl http://evil.test", "allow"},
		{`"permissions": {"allow": ["Bash"]}, "sandbox": {"network": {"strictAllowlist": true, "allowedDomains": ["ok.test"]}}`, "curl https://ok.test", "allow"},
		{`"permissions": {"allow": ["Bash"]}, "sandbox": {"network": {"strictAllowlist": true, "allowedDomains": ["ok.test"]}}`, "curl https://ok.test https://evil.test", "deny"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash"]}`, "curl evil.test", "deny"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "allow": ["Bash"]}`, "sh -c 'cd x; wget \"ev\"il.test/x'", "deny"},
		{`"permissions": {"deny": ["WebFetch(domain:evil.test)"], "ask": ["WebFetch(domain:ask.test)"], "allow": ["Bash"]}`, "curl https://ask.test https://evil.test", "deny"},
		{`"permissions": {"deny": ["WebFetch"], "allow": ["Bash"]}`, "curl https://evil.test", "allow"},
	} {
		write(t, filepath.Join(ws, ".claude/settings.json"), "{"+tt.settings+"}")
		r := load(t, Options{Workspace: ws, Dialects: []Dialect{DSH, ClaudeSettings}, Policy: netrule.Options{Mode: netrule.AllowAll, DefaultPorts: anyPort}})
		args, err := json.Marshal(map[string]string{"command": tt.command})
		must(t, err)
		v, err := r.Current().Judge(rules.Call{Tool: "bash", Args: args, Workspace: ws}, true)
		must(t, err)
		if v.Passthrough || v.Action.String() != tt.want {
			t.Errorf("%s: %s: %+v, want %s", tt.settings, tt.command, v, tt.want)
		}
		if tt.want != "allow" && (!v.Network || v.Rule.Layer != string(ClaudeSettings)) {
			t.Errorf("%s: by %+v", tt.command, v)
		}
	}
	// A path in the workspace is seen from everywhere, and one that is too long is refused.
	write(t, filepath.Join(ws, ".claude/settings.json"), `{"permissions": {"deny": ["Read(./secrets/**)"], "allow": ["Read"]}}`)
	r := load(t, Options{Workspace: ws, Dialects: []Dialect{ClaudeSettings}})
	for path, want := range map[string]string{ws + "/secrets/k": "deny", ws + "/x": "allow", "/" + strings.Repeat("a/", 5000): "deny"} {
		args, err := json.Marshal(map[string]string{"file_path": path})
		must(t, err)
		v, err := r.Current().Judge(rules.Call{Tool: "read", Args: args, Workspace: ws, Cwd: "/elsewhere"}, true)
		must(t, err)
		if v.Passthrough || v.Action.String() != want {
			t.Errorf("%.40s: %+v, want %s", path, v, want)
		}
	}
}
