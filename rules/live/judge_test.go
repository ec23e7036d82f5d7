//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// loaded gives the snapshot of a workspace with these rules.
func loaded(t *testing.T, text string, policy netrule.Options, managed ...string) *Snapshot {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".dsh/rules.yaml"), text)
	o := Options{Workspace: dir, Policy: policy}
	for i, m := range managed {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("m%d.yaml", i))
		write(t, path, m)
		o.Managed = append(o.Managed, path)
	}
	r := newRules(t, o)
	if err := r.Load(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r.Current()
}

// randomRules makes a rule file of network rules that overlap often.
func randomRules(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 1 + r.IntN(6) {
		action := pick("allow", "deny", "ask")
		fmt.Fprintf(&b, "  - match: { network: { domains: [%s]", pick("a.test", "'=a.test'", "'*.a.test'", "b.test", "'*'", "b.a.test, c.test", "10.0.0.1", "localhost"))
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, ", ports: [%s]", pick("443", "80", "8000-9000", "22"))
		}
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, ", schemes: [%s]", pick("https", "http"))
		}
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, ", ips: ['%s']", pick("10.0.0.0/8", "1.1.1.1", "127.0.0.1"))
		}
		b.WriteString(" }")
		if r.IntN(5) == 0 {
			fmt.Fprintf(&b, ", agents: [%s]", pick("ci", "dev", "'*'"))
		}
		fmt.Fprintf(&b, " }\n    action: %s\n    reason: r%d\n", action, i)
	}
	return b.String()
}

// TestOneVerdict: a call of a web tool to one URL has the verdict, the code and the rule of the connection that it makes;
// a denial of shell text is one of some connection too. Row 17 of the dialects.
func TestOneVerdict(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 17))
		text := randomRules(r)
		var managed []string
		if r.IntN(3) == 0 {
			managed = append(managed, randomRules(r))
		}
		policy := netrule.Options{Mode: []netrule.Mode{netrule.DenyAll, netrule.Whitelist, netrule.AllowAll}[r.IntN(3)], Unlisted: []netrule.Action{netrule.Deny, netrule.Ask}[r.IntN(2)], Loopback: r.IntN(2) == 0, DryRun: r.IntN(4) == 0}
		if ports, err := netrule.ParsePortPattern("80-443"); err == nil {
			policy.DefaultPorts = []netrule.PortRange{ports}
		}
		s := loaded(t, text, policy, managed...)
		for range 20 {
			pick := func(list ...string) string { return list[r.IntN(len(list))] }
			url := pick("http", "https") + "://" + pick("a.test", "b.a.test", "A.TEST.", "c.test", "d.test", "10.0.0.1", "1.1.1.1", "localhost", "sub.localhost", "169.254.169.254", "[::ffff:10.0.0.1]", "127.1", "[::1]") + pick("", ":443", ":80", ":8080", ":22") + "/x"
			agents := [][]string{nil, {"ci"}, {"dev", "x"}}[r.IntN(3)]
			target, err := netrule.ParseURL(url)
			if err != nil {
				t.Fatal(err)
			}
			want := s.Policy.Decide(netrule.Query{Target: target, Agents: agents})
			if target.IsLocalhost() && want.Action == netrule.Allow {
				want = s.Policy.DecideAddrs(netrule.Query{Target: target, Agents: agents}, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, nil)
			}
			args, err := json.Marshal(map[string]string{"url": url})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Judge(rules.Call{Tool: "web_fetch", Args: args, Workspace: "/ws", Agents: agents}, true)
			if err != nil {
				t.Fatal(err)
			}
			if got.Passthrough != want.DryRun || got.Action != want.Action || got.Code != want.Code || got.Rule != want.Rule {
				t.Fatalf("seed %d, %s, agents %v: the call is %s %s %v, the connection %s %s %v\n%s%s", seed, url, agents, got.Action, got.Code, got.Rule, want.Action, want.Code, want.Rule, text, managed)
			}
			args, err = json.Marshal(map[string]string{"command": "curl " + url})
			if err != nil {
				t.Fatal(err)
			}
			shell, err := s.Judge(rules.Call{Tool: "bash", Args: args, Workspace: "/ws", Agents: agents}, true)
			if err != nil {
				t.Fatal(err)
			}
			if !shell.Passthrough && shell.Action != netrule.Allow && want.Action == netrule.Allow && !want.NeedsAddrs && !want.DryRun {
				t.Fatalf("seed %d, %s, agents %v: the shell call is %s by %v, the connection allowed by %v\n%s%s", seed, url, agents, shell.Action, shell.Rule, want.Rule, text, managed)
			}
		}
	}
}

// TestLayersOfCalls: a managed denial holds against every workspace rule; passthrough abstains.
func TestLayersOfCalls(t *testing.T) {
	rule := func(action string) string {
		return "rules:\n  - match: { tools: [x] }\n    action: " + action + "\n    reason: " + action + "\n"
	}
	actions := []string{"deny", "ask", "allow"}
	for i, workspace := range actions {
		for j, managed := range actions {
			s := loaded(t, rule(workspace), netrule.Options{}, rule(managed))
			v, err := s.Judge(rules.Call{Tool: "x", Args: []byte("{}")}, true)
			if want := actions[min(i, j)]; err != nil || v.Passthrough || v.Action.String() != want {
				t.Errorf("workspace %s, managed %s: %+v, %v, want %s", workspace, managed, v, err, want)
			}
		}
	}
	s := loaded(t, "rules: []\n", netrule.Options{}, rule("allow"))
	if v, err := s.Judge(rules.Call{Tool: "x"}, true); err != nil || v.Rule.Layer != "managed" {
		t.Errorf("%+v, %v, want the managed rule", v, err)
	}
	if v, err := s.Judge(rules.Call{Tool: "y"}, true); err != nil || !v.Passthrough {
		t.Errorf("%+v, %v, want passthrough", v, err)
	}
}

// TestWebFallback: a web tool without a URL, or with several, falls back to the mode; a shell never does.
func TestWebFallback(t *testing.T) {
	web := func(args string) rules.Call { return rules.Call{Tool: "web_search", Args: []byte(args)} }
	calls := []rules.Call{web(`{"query": "x"}`), web(`{"urls": ["https://a.test", "https://b.test"]}`), web(``)}
	for mode, want := range map[netrule.Mode]string{netrule.DenyAll: "deny", netrule.Whitelist: "deny", netrule.AllowAll: "pass"} {
		s := loaded(t, "rules: []\n", netrule.Options{Mode: mode, Unlisted: netrule.Deny})
		for _, c := range calls {
			v, err := s.Judge(c, true)
			got := v.Action.String()
			if v.Passthrough {
				got = "pass"
			}
			if err != nil || got != want {
				t.Errorf("mode %v, %s: %s, %v, want %s", mode, c.Args, got, err, want)
			}
		}
		if v, err := s.Judge(rules.Call{Tool: "bash", Args: []byte(`{"command": "curl https://a.test"}`)}, true); err != nil || !v.Passthrough {
			t.Errorf("mode %v: a shell is judged by it: %+v, %v", mode, v, err)
		}
	}
	// An allow rule about tools alone is a hit, and the mode is not asked.
	s := loaded(t, "rules:\n  - match: { tools: [web_search] }\n    action: allow\n    reason: r\n", netrule.Options{})
	if v, err := s.Judge(calls[0], true); err != nil || v.Passthrough || v.Action != netrule.Allow {
		t.Errorf("%+v, %v, want the rule's allow", v, err)
	}
}

// TestJudgeNothing: without rules, and with arguments that are no JSON, nothing is allowed.
func TestJudgeNothing(t *testing.T) {
	s := loaded(t, "rules: []\n", netrule.Options{})
	for _, tool := range []string{"bash", "web_fetch"} {
		for _, protect := range []bool{true, false} {
			if v, err := s.Judge(rules.Call{Tool: tool, Args: []byte("{")}, protect); err == nil || v.Action == netrule.Allow {
				t.Errorf("%s: %+v, %v, want an error", tool, v, err)
			}
		}
	}
	long, err := json.Marshal(map[string]string{"command": "rm x;" + strings.Repeat("a|", 100_000)})
	if err != nil {
		t.Fatal(err)
	}
	for _, protect := range []bool{true, false} {
		open := loaded(t, "rules:\n  - match: { argv: { command: [a] } }\n    action: allow\n    reason: r\n", netrule.Options{})
		if v, err := open.Judge(rules.Call{Tool: "bash", Args: long}, protect); err != nil || v.Passthrough || v.Action != netrule.Deny || v.Code != netrule.CodeBadRequest {
			t.Errorf("a call too long to be judged: %+v, %v", v, err)
		}
	}
	if v, err := (&Snapshot{}).Judge(rules.Call{Tool: "web_fetch", Args: []byte(`{"url":"https://a.test"}`)}, true); err != nil || v.Code != netrule.CodeNoPolicy || v.Passthrough {
		t.Errorf("without a policy: %+v, %v", v, err)
	}
}
