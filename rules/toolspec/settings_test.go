package toolspec

import (
	"fmt"
	"strings"
	"testing"

	"dshproxy/netrule"
)

func settings(t *testing.T, origin Origin, text string) *Settings {
	t.Helper()
	s, err := ParseSettings("/"+origin.String()+".json", origin, "/work", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSetDecide: deny before ask before allow over every scope, and commands that several rules share.
func TestSetDecide(t *testing.T) {
	set := NewSet(
		settings(t, User, `{"permissions": {"allow": ["Bash(git *)", "Bash(npm *)", "WebFetch(domain:example.com)", "mcp__db"], "ask": ["Bash(git push *)"]}}`),
		settings(t, Project, "{\n\"permissions\": {\n\"deny\": [\"Read(./.env)\",\n\"Bash(rm *)\"], \"allow\": [\"Edit(src/**)\"]}}"),
		settings(t, Managed, `{"permissions": {"deny": ["WebFetch(domain:*.evil.test)"]}}`),
		settings(t, Local, `{"model": "x", "hooks": {"PreToolUse": []}}`),
	)
	for _, tt := range []struct {
		call Call
		want string
	}{
		{bash("git status"), "allow /user.json:1"},
		{bash("git push origin"), "ask /user.json:1"},
		{bash("git status && npm test"), "allow /user.json:1"},
		{bash("git status && npm test | tee x"), "none"},
		{bash("npm test; rm -rf x"), "deny /project.json:4"},
		{bash("sudo rm -rf x"), "none"},
		{file("Read", "/work/.env"), "deny /project.json:3"},
		{file("Edit", "/work/.env"), "deny /project.json:3"},
		{file("Edit", "src/a.go"), "allow /project.json:4"},
		{file("Read", "src/a.go"), "none"},
		{fetch("https://example.com/x"), "allow /user.json:1"},
		{fetch("https://sub.example.com/"), "none"},
		{fetch("https://a.evil.test/"), "deny /managed.json:1"},
		{Call{Tool: "mcp__db__query"}, "allow /user.json:1"},
		{Call{Tool: "Agent"}, "none"},
	} {
		v := decide(t, set, tt.call)
		got := "none"
		if v.Matched {
			got = fmt.Sprintf("%s %s:%d", v.Action, v.Ref.File, v.Ref.Line)
		}
		if got != tt.want {
			t.Errorf("%s %v: %s, want %s", tt.call.Tool, tt.call.Input, got, tt.want)
		}
	}
	if got := len(set.List()); got != 9 {
		t.Errorf("%d rules are listed", got)
	}
}

// TestManagedOnly: an administrator may silence the rules of everybody else.
func TestManagedOnly(t *testing.T) {
	set := NewSet(
		settings(t, Managed, `{"allowManagedPermissionRulesOnly": true, "permissions": {"allow": ["Bash(ls)"]}}`),
		settings(t, Project, `{"allowManagedPermissionRulesOnly": false, "permissions": {"allow": ["Bash(rm)"], "deny": ["Bash(ls)"]}}`),
	)
	if v := decide(t, set, bash("ls")); !v.Matched || v.Action != netrule.Allow {
		t.Errorf("ls: %+v", v)
	}
	if v := decide(t, set, bash("rm")); v.Matched {
		t.Errorf("rm: %+v", v)
	}
	// Only the administrator's file may say so.
	set = NewSet(settings(t, Project, `{"allowManagedPermissionRulesOnly": true, "permissions": {}}`), settings(t, User, `{"permissions": {"deny": ["Bash(ls)"]}}`))
	if v := decide(t, set, bash("ls")); !v.Matched {
		t.Error("a project silenced the user's denial")
	}
}

// TestConnections: what the settings mean for the proxy.
func TestConnections(t *testing.T) {
	const user = `{"permissions": {"allow": ["WebFetch(domain:docs.test)", "WebFetch(domain:*.lib.test)", "WebFetch(domain:api.*.test)", "WebFetch"], "ask": ["WebFetch(domain:ask.test)"], "deny": ["WebFetch(domain:no.lib.test)"]},
		"sandbox": {"network": {"allowedDomains": ["reg.test", "*.cdn.test", "port.test:8443", "[2001:db8::1]:443", "10.0.0.1"], "deniedDomains": ["bad.cdn.test"]}}}`
	for _, tt := range []struct {
		name     string
		settings []*Settings
		want     map[string]string
	}{
		{"user", []*Settings{settings(t, User, user)}, map[string]string{
			"docs.test:443": "allow", "sub.docs.test:443": "none", "a.b.lib.test:80": "allow", "lib.test:443": "none", "no.lib.test:443": "deny", "ask.test:443": "ask",
			"api.x.test:443": "allow", "api.x.y.test:443": "none", "reg.test:22": "allow", "a.cdn.test:443": "allow", "bad.cdn.test:443": "deny",
			"port.test:8443": "allow", "port.test:443": "none", "[2001:db8::1]:443": "allow", "[2001:db8::1]:80": "none", "10.0.0.1:80": "allow", "other.test:443": "none",
		}},
		{"managed domains only", []*Settings{settings(t, User, user), settings(t, Managed, `{"sandbox": {"network": {"allowManagedDomainsOnly": true, "allowedDomains": ["corp.test"]}}}`)}, map[string]string{
			"docs.test:443": "none", "reg.test:22": "none", "corp.test:443": "allow", "bad.cdn.test:443": "deny",
		}},
		{"strict", []*Settings{settings(t, User, user), settings(t, Project, `{"sandbox": {"network": {"strictAllowlist": true}}}`)}, map[string]string{
			"docs.test:443": "allow", "other.test:443": "deny", "1.2.3.4:443": "deny",
		}},
		{"deny all", []*Settings{settings(t, User, user), settings(t, Project, `{"sandbox": {"network": {"deniedDomains": ["*"]}}}`)}, map[string]string{
			"docs.test:443": "deny",
		}},
	} {
		rules := NewSet(tt.settings...).Connections()
		p := netrule.NewPolicy(netrule.Options{Mode: netrule.Whitelist, Unlisted: netrule.Deny, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}, Guard: netrule.GuardOff}, netrule.Layer{Name: "claude-settings", Rules: rules})
		for authority, want := range tt.want {
			target, err := netrule.ParseConnect(authority)
			if err != nil {
				t.Fatal(err)
			}
			d := p.Decide(netrule.Query{Target: target})
			got := "none"
			if d.Matched() {
				got = d.Action.String()
			}
			if got != want {
				t.Errorf("%s: %s: %s, want %s", tt.name, authority, got, want)
			}
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                                          `/f.json:1:1: the settings must be a mapping`,
		`{"permissions": []}`:                                         `/f.json:1:17: permissions must be a mapping, and is a list`,
		`{"permissions": {"deny": "Bash"}}`:                           `/f.json:1:26: permissions.deny must be a list, and is text`,
		"{\"permissions\": {\"deny\": [\n 1]}}":                       `/f.json:2:2: permissions.deny: an item that is no text but a number`,
		`{"permissions": {"allow": ["Bash()"]}}`:                      `/f.json:1:28: permissions.allow: an empty specifier; leave the parentheses out to match every call`,
		`{"permissions": {"ask": ["Bash(x"]}}`:                        `/f.json:1:26: permissions.ask: want Tool(specifier), with the closing parenthesis at the end`,
		`{"sandbox": {"network": 1}}`:                                 `/f.json:1:25: sandbox.network must be a mapping, and is a number`,
		`{"sandbox": {"network": {"allowedDomains": ["http://x"]}}}`:  `/f.json:1:45: sandbox.network.allowedDomains: "http://x": a host takes no scheme`,
		`{"sandbox": {"network": {"deniedDomains": ["a.test:0"]}}}`:   `/f.json:1:44: sandbox.network.deniedDomains: "a.test:0": "0" is no port`,
		`{"sandbox": {"network": {"deniedDomains": ["a*.test"]}}}`:    `/f.json:1:44: sandbox.network.deniedDomains: "a*.test": a wildcard where one host is meant`,
		`{"sandbox": {"network": {"strictAllowlist": "yes"}}}`:        `/f.json:1:45: sandbox.network.strictAllowlist must be a boolean, and is text`,
		`{"permissions": {"deny": []}, "permissions": {"allow": []}}`: `/f.json:1:31: the key "permissions" stands here twice`,
		`{"permissions": {"deny": ["a"]}`:                             `/f.json:1:32: no JSON: parsing object after value: unexpected EOF`,
	} {
		_, err := ParseSettings("/f.json", User, "/", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestSettingsWarnings: rules that load and never match are named.
func TestSettingsWarnings(t *testing.T) {
	s := settings(t, User, `{"permissions": {"allow": ["mcp__*", "mcp__a__*", "mcp__a__b(x)", "Write(a/**)", "Bash(*)", "WebFetch(example.com)"], "deny": ["mcp__*", "Write(src/**)", "WebFetch(domain:a b)", "Task(model:opus)"]}}`)
	want := []string{
		`/user.json:1:138: permissions.deny: "Write(src/**)" never matches: paths are judged by rules for Read and Edit`,
		`/user.json:1:155: permissions.deny: "WebFetch(domain:a b)" never matches: no host can be called that`,
		`/user.json:1:28: permissions.allow: "mcp__*" never matches: an allow rule may have a star only behind mcp__SERVER__`,
		`/user.json:1:51: permissions.allow: "mcp__a__b(x)" never matches: rules for MCP tools take no parentheses`,
		`/user.json:1:67: permissions.allow: "Write(a/**)" never matches: paths are judged by rules for Read and Edit`,
		`/user.json:1:93: permissions.allow: "WebFetch(example.com)" never matches: want WebFetch(domain:HOST)`,
	}
	if got := strings.Join(s.Warnings, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(`{"permissions": {"allow": ["Bash(ls *)"], "deny": ["Read(//etc/**)"]}, "sandbox": {"network": {"allowedDomains": ["*.a.test:443"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSettings("f", Project, "/w", text)
		if err != nil {
			return
		}
		set := NewSet(s)
		netrule.NewPolicy(netrule.Options{}, netrule.Layer{Name: "x", Rules: set.Connections()})
		for _, c := range []Call{bash("a; b $(c)"), file("Read", "x/../y"), fetch("https://a.test/")} {
			_ = set.Decide(c, Scope{Cwd: "/w/x", Workspace: "/w", Home: "/h"}) // whatever it is, it ends
		}
	})
}

func decide(t *testing.T, set *Set, c Call) Verdict {
	t.Helper()
	v := set.Decide(c, Scope{Cwd: "/work", Home: "/home/u"})
	if v.Ref.Reason == tooMuch {
		t.Fatal(tooMuch)
	}
	return v
}

// TestSettingsInert: what was meant to be a rule and is none is named, in each list that it matters in.
func TestSettingsInert(t *testing.T) {
	for text, want := range map[string]string{
		`"deny": ["bash(rm *)"]`:                              `never matches: no tool is called "bash"; did you mean "Bash"?`,
		`"ask": ["Bash (rm *)"]`:                              `never matches: no tool is called "Bash "; did you mean "Bash"?`,
		`"allow": ["read(x)"]`:                                `never matches: no tool is called "read"; did you mean "Read"?`,
		`"deny": ["Curl"]`:                                    `never matches: no tool of the client's is called "Curl"`,
		`"deny": ["WebFech(domain:a.test)"]`:                  `did you mean "WebFetch"?`,
		`"allow": ["Curl"]`:                                   "",
		`"deny": ["mcp__x", "*", "My_Tool"]`:                  "",
		`"deny": ["WebFetch(Domain:a.test)"]`:                 "want WebFetch(domain:HOST)",
		`"ask": ["WebFetch( domain:a.test)"]`:                 "want WebFetch(domain:HOST)",
		`"deny": ["WebFetch(prompt:x*)"]`:                     "",
		`"deny": ["Read(src/[ab)"]`:                           `"[ab": a class that does not end`,
		`"allow": ["Edit(a\\)"]`:                              `a class that does not end`,
		`"deny": ["Read(src/[!ab]/**)"]`:                      "",
		`"deny": ["Bash(echo [)"]`:                            "",
		`"deny": ["Read(` + strings.Repeat("a/", 600) + `)"]`: "the pattern is longer than",
		`"Deny": ["Bash"]`:                                    `the key "Deny" is not read; did you mean "deny"?`,
		`"deny ": ["Bash"]`:                                   `the key "deny " is not read; did you mean "deny"?`,
	} {
		s := settings(t, User, `{"permissions": {`+text+`}}`)
		if got := strings.Join(s.Warnings, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%.60s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"Permissions": {"deny": ["Bash"]}}`:                            `/user.json:1:2: the key "Permissions" is not read; did you mean "permissions"?`,
		`{"sandbox": {"Network": {}}}`:                                   `/user.json:1:14: the key "Network"`,
		`{"sandbox": {"network": {"alloweddomains": ["a.test"]}}}`:       `did you mean "allowedDomains"?`,
		`{"permissions": {"defaultMode": "x"}, "model": "y"} // the end`: "",
		`{} /* the end */`: "",
	} {
		s := settings(t, User, text)
		if got := strings.Join(s.Warnings, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
