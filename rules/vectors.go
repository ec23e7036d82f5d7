package rules

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"dshproxy/netrule"
)

// VectorResult is what a corpus came to.
type VectorResult struct {
	Passed, Failed, Skipped int
	Failures                []VectorFailure
}

// VectorFailure is one vector that went wrong.
type VectorFailure struct{ ID, Want, Got string }

func (r *VectorResult) check(id, want, got string) {
	if want == got {
		r.Passed++
		return
	}
	r.Failed++
	r.Failures = append(r.Failures, VectorFailure{id, want, got})
}

// The corpora that RunVectors knows.
const (
	schemaTargets     = "dshproxy-vectors-targets/v1"
	schemaConnections = "dshproxy-vectors-connections/v1"
	schemaRules       = "dshproxy-vectors-rules/v1"
	schemaToolspec    = "dshproxy-vectors-toolspec/v1"
	schemaSurface     = "dshproxy-vectors-surface/v1"
	schemaCorpus      = "dsh-rule-test-vectors/v1"
)

// RunVectors runs a corpus of test vectors. Vectors of a schema that is not known here are counted as skipped. A file that
// is no corpus is an error.
func RunVectors(data []byte) (VectorResult, error) {
	var head struct {
		Schema    string
		Workspace string
		Vectors   []json.RawMessage
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return VectorResult{}, fmt.Errorf("no vector file: %w", err)
	}
	if head.Schema == "" {
		return VectorResult{}, fmt.Errorf("no vector file: no schema")
	}
	var r VectorResult
	var run func(*VectorResult, json.RawMessage) error
	switch head.Schema {
	case schemaTargets:
		run = runTarget
	case schemaConnections:
		run = runConnection
	case schemaRules:
		var defaults struct{ Defaults vectorOptions }
		if err := json.Unmarshal(data, &defaults); err != nil {
			return r, fmt.Errorf("defaults: %w", err)
		}
		run = func(r *VectorResult, raw json.RawMessage) error { return runRules(r, raw, defaults.Defaults) }
	case schemaSurface:
		run = runSurface
	case schemaToolspec:
		run = runToolspec
	case schemaCorpus:
		run = func(r *VectorResult, raw json.RawMessage) error { return runCorpus(r, raw, head.Workspace) }
	default:
		r.Skipped = len(head.Vectors)
		return r, nil
	}
	for i, raw := range head.Vectors {
		if err := run(&r, raw); err != nil {
			return r, fmt.Errorf("vector %d: %w", i+1, err)
		}
	}
	return r, nil
}

func runTarget(r *VectorResult, raw json.RawMessage) error {
	var v struct {
		ID, Target, Form, Expect, Host, IP, Class string
		Port                                      uint16
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	parse := netrule.ParseConnect
	if v.Form == "absolute" {
		parse = netrule.ParseHTTPAuthority
	}
	want := "reject"
	if v.Expect == "canonical" {
		want = fmt.Sprintf("%s %s %d %s", v.Host, v.IP, v.Port, v.Class)
	}
	got := "reject"
	if t, err := parse(v.Target); err == nil {
		ip := ""
		if t.IsLiteral() {
			ip = t.Addr.String()
		}
		got = fmt.Sprintf("%s %s %d %s", t.Host, ip, t.Port, netrule.TargetClass(t))
	}
	r.check(v.ID, want, got)
	return nil
}

type connectionVector struct {
	ID                                         string
	Chains                                     []string
	Target, Mode, Unlisted, Loopback, Platform string
	Env                                        map[string]string
	Agent                                      []string
	ResolvedIPs                                []string
	Expect                                     struct {
		Action, Outcome string
		Matched         *bool
		RuleIndex       *int
		Pinned          []string
		Reject          bool
	}
}

func runConnection(r *VectorResult, raw json.RawMessage) error {
	var v connectionVector
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	got, err := v.decide()
	if err != nil {
		return fmt.Errorf("%s: %w", v.ID, err)
	}
	r.check(v.ID, v.want(), got)
	return nil
}

func (v *connectionVector) want() string {
	switch {
	case v.Expect.Reject:
		return "reject"
	case v.Expect.Outcome != "":
		return v.Expect.Outcome
	}
	out := v.Expect.Action
	if v.Expect.Matched != nil {
		out += fmt.Sprintf(" matched=%v", *v.Expect.Matched)
	}
	if v.Expect.RuleIndex != nil {
		out += fmt.Sprintf(" rule=%d", *v.Expect.RuleIndex)
	}
	if v.Expect.Pinned != nil {
		out += fmt.Sprintf(" pinned=%v", v.Expect.Pinned)
	}
	return out
}

// decide gives the answer in the words of want, leaving out what the vector does not ask for.
func (v *connectionVector) decide() (string, error) {
	target, err := v.parseTarget()
	if err != nil {
		return "reject", nil //nolint:nilerr // a refused target is an answer
	}
	policy, err := v.policy()
	if err != nil {
		return "", err
	}
	q := netrule.Query{Target: target, Agents: v.Agent}
	d := policy.Decide(q)
	if d.Action == netrule.Allow && !target.IsLiteral() {
		switch {
		case len(v.ResolvedIPs) > 0:
			var addrs []netip.Addr
			for _, s := range v.ResolvedIPs {
				a, err := netip.ParseAddr(s)
				if err != nil {
					return "", err
				}
				addrs = append(addrs, a)
			}
			d = policy.DecideAddrs(q, addrs, nil)
		case d.NeedsAddrs:
			return netrule.CodeDNSError.String(), nil
		}
	}
	out := d.Action.String()
	if v.Expect.Matched != nil {
		out += fmt.Sprintf(" matched=%v", d.Matched())
	}
	if v.Expect.RuleIndex != nil {
		out += fmt.Sprintf(" rule=%d", d.Rule.Index)
	}
	if v.Expect.Pinned != nil {
		out += fmt.Sprintf(" pinned=%v", d.Kept())
	}
	return out, nil
}

func (v *connectionVector) parseTarget() (netrule.Target, error) {
	if authority, ok := strings.CutPrefix(v.Target, "connect:"); ok {
		return netrule.ParseConnect(authority)
	}
	t, _, err := netrule.ParseAbsolute(v.Target)
	return t, err
}

func (v *connectionVector) policy() (*netrule.Policy, error) {
	var docs []*Document
	for i, text := range v.Chains {
		doc, err := Parse(fmt.Sprintf("chain-%d.yaml", i), []byte(text), Options{})
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	chain, err := ParseChain(docs, Options{})
	if err != nil {
		return nil, err
	}
	mode, ok := netrule.ParseMode(v.Mode)
	if !ok {
		return nil, fmt.Errorf("unknown mode %q", v.Mode)
	}
	unlisted, _ := netrule.ParseAction(v.Unlisted)
	host := Host{Platform: v.Platform, Env: func(name string) (string, bool) {
		value, set := v.Env[name]
		return value, set
	}}
	return netrule.NewPolicy(netrule.Options{
		Mode:         mode,
		Unlisted:     unlisted,
		Loopback:     v.Loopback == "allow",
		DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}},
		Guard:        netrule.GuardOff,
	}, netrule.Layer{Name: "workspace", Rules: Connections(chain, host)}), nil
}

type vectorOptions struct {
	PatternMode          string
	MaxRules             int
	MaxGlobStars         int
	CaseInsensitivePaths bool
}

func (o vectorOptions) options() Options {
	return Options{Regex: o.PatternMode == "regex", MaxRules: o.MaxRules, MaxGlobStars: o.MaxGlobStars, CaseInsensitivePaths: o.CaseInsensitivePaths}
}

// ruleVector is one rule file or chain, with a call and what it comes to.
type ruleVector struct {
	ID, Rules string
	Chain     []struct{ Path, Text string }
	Options   vectorOptions
	Call      struct {
		Tool, Cwd, Platform string
		Args                json.RawMessage
		Env                 map[string]string
		Agent               []string
	}
	Expect struct {
		Action      string
		RuleIndex   int
		Passthrough bool
		LoadError   bool
	}
}

func runRules(r *VectorResult, raw json.RawMessage, defaults vectorOptions) error {
	v := ruleVector{Options: defaults}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if v.Chain == nil {
		v.Chain = []struct{ Path, Text string }{{"rules.yaml", v.Rules}}
	}
	chain, loadErr := v.load()
	switch {
	case v.Expect.LoadError && loadErr == nil:
		r.check(v.ID, "a load error", "loads")
	case v.Expect.LoadError:
		r.Passed++
	case loadErr != nil:
		r.check(v.ID, "loads", loadErr.Error())
	default:
		r.check(v.ID, v.want(), v.got(chain))
	}
	return nil
}

func (v *ruleVector) load() ([]Rule, error) {
	opts := v.Options.options()
	var docs []*Document
	for _, f := range v.Chain {
		doc, err := Parse(f.Path, []byte(f.Text), opts)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return ParseChain(docs, opts)
}

func (v *ruleVector) want() string {
	if v.Expect.Passthrough {
		return "passthrough"
	}
	return fmt.Sprintf("%s rule=%d", v.Expect.Action, v.Expect.RuleIndex)
}

func (v *ruleVector) got(chain []Rule) string {
	verdict, err := NewRuleset(chain).Match(Call{
		Tool: v.Call.Tool, Args: v.Call.Args, Workspace: v.Call.Cwd, Agents: v.Call.Agent,
		Host: Host{Platform: v.Call.Platform, FoldPaths: v.Options.CaseInsensitivePaths, Env: func(name string) (string, bool) {
			value, set := v.Call.Env[name]
			return value, set
		}},
	})
	switch {
	case err != nil:
		return err.Error()
	case !verdict.Matched:
		return "passthrough"
	default:
		return fmt.Sprintf("%s rule=%d", verdict.Action, verdict.Index)
	}
}
