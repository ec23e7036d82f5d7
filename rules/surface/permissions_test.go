package surface

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
)

func permissions(t *testing.T, file, text string) *Permissions {
	t.Helper()
	p, err := ParsePermissions(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type m = map[string]any

// TestDecide: the strictest verdict over all that a call touches; the last rule of a surface wins.
func TestDecide(t *testing.T) {
	global := permissions(t, "/g.json", "{\n\"permission\": {\n\"*\": \"ask\",\n\"read\": \"allow\",\n\"edit\": {\"*\": \"ask\", \"src/*\": \"allow\"},\n"+
		"\"bash\": {\"*\": \"ask\", \"git *\": \"allow\", \"git push*\": \"deny\", \"ls*\": \"allow\", \"sudo *\": \"allow\", \"cat *\": \"allow\"},\n"+
		"\"path\": {\"*\": \"allow\", \"*.env\": \"deny\", \"~/.ssh/*\": \"deny\"},\n\"external_directory\": {\"*\": \"ask\", \"/tmp/*\": \"allow\"},\n"+
		"\"mcp\": {\"db:*\": \"allow\", \"db_drop\": \"deny\"},\n\"skill\": {\"x-*\": \"deny\"}}}")
	project := permissions(t, "/p.json", `{"permission": {"bash": {"git push*": "allow", "make": "allow"}, "read": "ask", "write": "deny"}}`)
	set := NewSet([]*Permissions{global}, []*Permissions{project})
	old := NewSet([]*Permissions{permissions(t, "/o.jsonc", `{ // older form
		"defaultPolicy": {"tools": "deny", "bash": "ask", "special": "deny"}, "tools": {"read": "allow", "write:/work/gen/*": "allow"}, "bash": {"ls": "allow"}, "special": {"external_directory": "ask"}}`)}, nil)
	for _, tt := range []struct {
		set  *Set
		tool string
		args m
		want string
	}{
		{set, "bash", m{"command": "git status"}, "allow /g.json:6"},
		{set, "bash", m{"command": "git"}, "allow /g.json:6"},
		{set, "bash", m{"command": "git push"}, "deny /g.json:6"}, // the workspace does not open it
		{set, "bash", m{"command": "git status && rm x"}, "ask /g.json:6"},
		{set, "bash", m{"command": "git status; echo $(git push)"}, "deny /g.json:6"},
		{set, "bash", m{"command": "A=1 git status"}, "allow /g.json:6"},
		{set, "bash", m{"command": "sudo ls"}, "ask"},
		{set, "bash", m{"command": "git status; if"}, "ask"},
		{set, "bash", m{"command": "cat prod.env"}, "deny /g.json:7"},
		{set, "bash", m{"command": "cat ./prod.env"}, "deny /g.json:7"},
		{set, "bash", m{"command": "cat ~/.ssh/id"}, "deny /g.json:7"},
		{set, "bash", m{"command": "cat /etc/passwd"}, "ask /g.json:8"},
		{set, "bash", m{"command": "cat /tmp/x"}, "allow /g.json:6"},
		{set, "bash", m{"command": "make"}, "allow /p.json:1"},
		{set, "bash", m{}, "ask /g.json:6"},
		{set, "read", m{"path": "a.go"}, "ask /p.json:1"},
		{set, "write", m{"path": "a.go"}, "deny /p.json:1"},
		{set, "edit", m{"path": "src/a.go"}, "allow /g.json:7"},
		{set, "edit", m{"path": "/work/src/a.go"}, "allow /g.json:7"},
		{set, "edit", m{"path": "src/../a.go"}, "allow /g.json:7"},
		{set, "edit", m{"path": "b/.env"}, "deny /g.json:7"},
		{set, "edit", m{"path": "../x"}, "ask /g.json:8"},
		{set, "mcp", m{"server": "db", "tool": "query"}, "allow /g.json:9"},
		{set, "mcp", m{"server": "db", "tool": "drop"}, "deny /g.json:9"},
		{set, "skill", m{"name": "x-1"}, "deny /g.json:10"},
		{set, "other", m{"a": 1}, "ask /g.json:3"},
		{old, "read", m{"path": "a"}, "allow /o.jsonc:2"},
		{old, "read", m{"path": "/x"}, "ask /o.jsonc:2"},
		{old, "write", m{"path": "/work/gen/a"}, "allow /o.jsonc:2"},
		{old, "write", m{"path": "/work/a"}, "deny /o.jsonc:2"},
		{old, "bash", m{"command": "ls"}, "allow /o.jsonc:2"},
		{old, "bash", m{"command": "rm x"}, "ask /o.jsonc:2"},
		{NewSet(nil, nil), "read", m{"path": "a"}, "ask"},
	} {
		action, ref := tt.set.Decide(Call{Tool: tt.tool, Args: tt.args, Cwd: "/work", Home: "/home/u"})
		got := action.String()
		if ref.File != "" {
			got += fmt.Sprintf(" %s:%d", ref.File, ref.Line)
		}
		if got != tt.want {
			t.Errorf("%s %v: %s, want %s", tt.tool, tt.args, got, tt.want)
		}
	}
}

// TestMerge: a key keeps its place, an action for the whole surface replaces it.
func TestMerge(t *testing.T) {
	a := permissions(t, "/a", `{"permission": {"bash": {"git *": "allow", "git push": "deny"}, "*": "deny"}}`)
	b := permissions(t, "/b", `{"permission": {"bash": {"git *": "ask"}, "*": "allow"}}`)
	c := permissions(t, "/c", `{"permission": {"bash": "ask"}}`)
	for _, tt := range []struct {
		files []*Permissions
		want  string
	}{
		{[]*Permissions{a, b}, "[{* * allow} {bash git * ask} {bash git push deny}]"},
		{[]*Permissions{a, b, c}, "[{* * allow} {bash * ask}]"},
	} {
		var got []Rule
		for _, r := range merge(tt.files) {
			got = append(got, r.Rule)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("got %v, want %s", got, tt.want)
		}
	}
}

func TestPermissionErrors(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                     `/f:1:1: the file must be a mapping, and is a list`,
		`{"permission": "ask"}`:                  `/f:1:16: permission must be a mapping, and is text`,
		`{"permission": {"bash": "alow"}}`:       `/f:1:25: permission.bash: "*" must be allow, ask or deny, and is "alow"`,
		`{"permission": {"bash": {"ls": true}}}`: `/f:1:32: permission.bash: "ls" must be allow, ask or deny, and is a boolean`,
		`{"permission": {"bash": []}}`:           `/f:1:25: permission.bash must be an action or a mapping of patterns, and is a list`,
		`{"defaultPolicy": 1}`:                   `/f:1:19: defaultPolicy must be a mapping, and is a number`,
		`{"bash": "ask"}`:                        `/f:1:10: bash must be a mapping, and is text`,
	} {
		_, err := ParsePermissions("/f", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzParsePermissions(f *testing.F) {
	f.Add([]byte(`{"permission": {"bash": {"git *": "allow"}, "path": "deny", "*": "ask"}}`), "git push; cat ./x")
	f.Add([]byte(`{"tools": {"read:/x": "deny"}, "defaultPolicy": {"bash": "allow"}}`), "sudo $(ls)")
	f.Fuzz(func(t *testing.T, text []byte, command string) {
		p, err := ParsePermissions("f", text)
		if err != nil {
			return
		}
		trusted, both := NewSet([]*Permissions{p}, nil), NewSet([]*Permissions{p}, []*Permissions{p})
		c := Call{Tool: "bash", Args: m{"command": command}, Cwd: "/w", Home: "/h"}
		a, _ := trusted.Decide(c)
		if b, _ := both.Decide(c); b != a {
			t.Fatalf("the same file twice: %v, once %v", b, a)
		}
		if a == netrule.Allow && p.Rules() == 0 {
			t.Fatal("allowed without a rule")
		}
	})
}

// TestReadings: a denial holds whatever way the command is written, and a path is one wherever it stands.
func TestReadings(t *testing.T) {
	set := NewSet([]*Permissions{permissions(t, "/g.json", `{"permission": {"*": "allow", "bash": {"*": "allow", "rm *": "deny", "git push *": "ask", "/opt/*": "deny"},
		"path": {"*": "ask", "*.env": "deny", "*.key": "deny", "*/secrets/*": "deny", "src/*": "allow", "./*": "allow"}, "external_directory": "ask"}}`)}, nil)
	strict := NewSet([]*Permissions{permissions(t, "/s.json", `{"permission": {"*": "deny", "bash": {"*": "deny", "./run *": "allow", "cat *": "allow"}, "path": {"*": "ask", "./*": "allow", "*.key": "ask"}}}`)}, nil)
	for _, tt := range []struct {
		set      *Set
		want     string
		commands []string
	}{
		{set, "deny", []string{
			"'rm' x", "r''m x", `\rm x`, `r\m x`, "$'rm' x", `"rm" x`, "/bin/rm x", "'/bin/rm' x", "time -- rm x", "time rm x", "nohup rm x", "A=1 'rm' x", "sudo rm x", "env A=1 /bin/rm x", "timeout 5 rm x", "rm\tx", "rm \\\nx",
			"busybox rm x", "xargs rm x", "$(/bin/rm x)", "if 'rm' x; then :; fi", "( )\n/bin/rm x",
			"cat .env", "cat<.env", "cat < .env", "cat 0< .env", "echo x > .env", "echo x >>.env", ">.env", "{ ls; } > .env", "cat a.key", "cat 'a'.key", "cat --file=a.key", "cat < a.key", "cat $'.env'", "ls > x.key", "cat ${HOME}/secrets/k",
			"/opt/x",
		}},
		{set, "ask", []string{
			"'git' push x", "/usr/bin/git push x", "ls >/tmp/x", "cat </etc/x", "time ls", "time -- ls", "busybox ls", "su -c ls", "parallel ls", "source x", ". x", "builtin ls", "toybox ls", "ls > src2/x", "echo 'x",
		}},
		{set, "allow", []string{"ls", "cat x", "cat README.md", "ls > out", "ls 2>/dev/null", "cat < /dev/null", "git status", "echo rm", "curl https://a.test/x.key", "ls src/a", "/bin/ls x.txt", "make -j4 X=y"}},
		{strict, "allow", []string{"./run x", "cat x", "cat x > y"}},
		{strict, "ask", []string{"cat a.key", "cat > a.key"}},
		{strict, "deny", []string{"run x", "ls"}},
	} {
		for _, command := range tt.commands {
			action, ref := tt.set.Decide(Call{Tool: "bash", Args: m{"command": command}, Cwd: "/work", Home: "/home/u"})
			if action.String() != tt.want {
				t.Errorf("%q: %s by %s, want %s", command, action, ref.Reason, tt.want)
			}
		}
	}
}

// TestLargeCommands: what is too large to be matched is denied, soon.
func TestLargeCommands(t *testing.T) {
	text := `{"permission": {"bash": {"*": "allow"`
	for i := range 5000 {
		text += fmt.Sprintf(`, "*a%d*b*": "deny"`, i)
	}
	set := NewSet([]*Permissions{permissions(t, "/g.json", text+`}, "path": {"*": "allow"}}}`)}, nil)
	for name, command := range map[string]string{
		"long": strings.Repeat("a", maxCommand+1), "many words": "x " + strings.Repeat("a/b ", 60_000), "many commands": strings.Repeat("a;", 100_000), "one word": strings.Repeat("a", 200_000),
	} {
		start := time.Now()
		action, _ := set.Decide(Call{Tool: "bash", Args: m{"command": command}, Cwd: "/work"})
		if took := time.Since(start); action != netrule.Deny || took > 20*time.Second {
			t.Errorf("%s: %s in %v", name, action, took)
		}
	}
}
