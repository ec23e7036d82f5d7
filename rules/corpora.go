package rules

import (
	"encoding/json"
	"fmt"

	"dshproxy/netrule"
	"dshproxy/rules/surface"
	"dshproxy/rules/toolspec"
)

// runCorpus runs a vector of the public corpus of the format: a rule file with cases.
func runCorpus(r *VectorResult, raw json.RawMessage, workspace string) error {
	var v struct {
		ID, Rules string
		Cases     []struct {
			Tool      string
			Arguments json.RawMessage
			Context   struct {
				Platform, Cwd string
				Env           map[string]string
				Agents        []string
			}
			Expect *string
		}
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	doc, err := Parse(v.ID+".yaml", []byte(v.Rules), Options{})
	if err != nil {
		r.check(v.ID, "loads", err.Error())
		return nil
	}
	set := NewRuleset(doc.Rules)
	for i, c := range v.Cases {
		if c.Context.Cwd == "" {
			c.Context.Cwd = workspace
		}
		want := "passthrough"
		if c.Expect != nil {
			want = *c.Expect
		}
		verdict, err := set.Match(Call{Tool: c.Tool, Args: c.Arguments, Workspace: c.Context.Cwd, Agents: c.Context.Agents, Host: Host{
			Platform: c.Context.Platform, Env: func(name string) (string, bool) {
				value, set := c.Context.Env[name]
				return value, set
			},
		}})
		got := "passthrough"
		if err != nil {
			got = err.Error()
		} else if verdict.Matched {
			got = verdict.Action.String()
		}
		r.check(fmt.Sprintf("%s[%d]", v.ID, i), want, got)
	}
	return nil
}

// surfaceExpect is where a vector says the winner stands: an index, or "default".
type surfaceExpect struct {
	Action        string
	Match         any
	Ruleset, Rule *int
}

func (e surfaceExpect) String() string {
	if e.Match == "default" {
		return e.Action + " default"
	}
	s := fmt.Sprintf("%s %v", e.Action, e.Match)
	if e.Ruleset != nil && e.Rule != nil {
		s += fmt.Sprintf(" ruleset=%d rule=%d", *e.Ruleset, *e.Rule)
	}
	return s
}

// runSurface runs a vector in both profiles.
func runSurface(r *VectorResult, raw json.RawMessage) error {
	var v struct {
		ID, Surface, Pattern, Default string
		Rulesets                      []surface.Ruleset
		Expect, ExpectCurrent         surfaceExpect
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	for _, p := range []struct {
		name    string
		profile surface.Profile
		want    surfaceExpect
	}{{"v1", surface.V1, v.Expect}, {"v2", surface.V2, v.ExpectCurrent}} {
		o := surface.Options{Profile: p.profile, Home: "/home/user"}
		if action, ok := netrule.ParseAction(v.Default); ok {
			o.Default = &action
		}
		got := surface.Evaluate(o, v.Surface, v.Pattern, v.Rulesets...)
		text := got.Rule.Action.String() + " default"
		if got.Matched() {
			text = fmt.Sprintf("%s %d", got.Rule.Action, got.Index)
			if p.want.Ruleset != nil {
				text += fmt.Sprintf(" ruleset=%d rule=%d", got.Ruleset, got.Position)
			}
		}
		r.check(v.ID+" "+p.name, p.want.String(), text)
	}
	return nil
}

// runToolspec runs a vector in the simple profile and, where it has an answer, in the documented one.
func runToolspec(r *VectorResult, raw json.RawMessage) error {
	var v struct {
		ID, Rule, List string
		Call           toolspec.Call
		Expect         bool
		ExpectDocs     *bool
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	r.check(v.ID+" simple", fmt.Sprint(v.Expect), fmt.Sprint(toolspec.MatchRule(v.Rule, v.Call)))
	if v.ExpectDocs == nil {
		return nil
	}
	list, ok := netrule.ParseAction(v.List)
	if !ok {
		return fmt.Errorf("list %q", v.List)
	}
	rule, err := toolspec.ParseRule(v.Rule)
	got := err == nil && rule.Matches(list, v.Call, toolspec.Scope{Cwd: "/work", Dir: "/work", Home: "/home/user"})
	r.check(v.ID+" documented", fmt.Sprint(*v.ExpectDocs), fmt.Sprint(got))
	return nil
}
