package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/proxy/admin"
	"dshproxy/rules"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

type checkFlags struct {
	tool, args, cwd, platform string
	agents, env               []string
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check",
		Short: "The verdict for one tool call, as JSON",
		Long: "Judges one tool call: {\"tool\": …, \"args\": {…}, \"cwd\"?: …, \"agent\"?: […]} on standard input, or --tool and --args.\n" +
			"Exit codes: 0 allow or passthrough, 1 failure, 2 usage, 3 deny, 4 ask.",
		Example: `  dshproxy check --tool bash --args '{"command": "curl https://example.com/"}'`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.check(&f) },
	}
	f.register(c)
	c.Flags().StringArrayVar(&f.agents, "agent", nil, "identity of the caller (repeatable)")
	return c
}

// register adds the flags that describe a call.
func (f *checkFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.tool, "tool", "", "name of the tool")
	c.Flags().StringVar(&f.args, "args", "", "arguments, a JSON object")
	c.Flags().StringVar(&f.cwd, "cwd", "", "folder that relative paths of the call start from")
	c.Flags().StringVar(&f.platform, "platform", "", "platform that when looks at (default: this one)")
	c.Flags().StringArrayVar(&f.env, "env", nil, "variable that when looks at, as K=V; instead of the environment (repeatable)")
}

// maxCallBytes bounds a call on standard input: its arguments, and what stands around them.
const maxCallBytes = rules.MaxArgBytes + 64<<10

func readInput(in io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxCallBytes+1))
	if err == nil && len(b) > maxCallBytes {
		err = fmt.Errorf("larger than %d bytes", maxCallBytes)
	}
	return b, err
}

// call builds the call from the flags or standard input.
func (a *app) call(f *checkFlags) (rules.Call, error) {
	c := rules.Call{Tool: f.tool, Args: []byte(f.args), Cwd: f.cwd, Agents: f.agents, Host: host()}
	if f.tool == "" {
		if f.args != "" {
			return c, usageError("give both, or the call on standard input", "--args without --tool")
		}
		b, err := readInput(a.io.in)
		if err != nil {
			return c, fmt.Errorf("standard input: %w", err)
		}
		var in struct {
			Tool  string          `json:"tool"`
			Cwd   string          `json:"cwd"`
			Args  json.RawMessage `json:"args"`
			Agent []string        `json:"agent"`
		}
		if err := uniqueKeys(b); err != nil {
			return c, usageError(`want {"tool": "bash", "args": {"command": "ls"}}`, "standard input: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			return c, usageError(`want {"tool": "bash", "args": {"command": "ls"}}`, "standard input: %w", err)
		}
		c.Tool, c.Args = in.Tool, in.Args
		if c.Cwd == "" {
			c.Cwd = in.Cwd
		}
		c.Agents = append(c.Agents, in.Agent...)
	}
	if c.Tool == "" {
		return c, usageError("", "the call names no tool")
	}
	if len(c.Args) > 0 && !isObject(c.Args) {
		return c, usageError(`as in {"command": "ls"}`, "the arguments are no JSON object")
	}
	if name, ok := rules.OwnTool(c.Tool); ok {
		c.Tool, c.Alias = name, c.Tool
	}
	if c.Cwd != "" && !filepath.IsAbs(c.Cwd) {
		return c, usageError("", "cwd %q is not absolute", c.Cwd)
	}
	if f.platform != "" {
		if !slices.Contains(rules.Platforms(), f.platform) {
			return c, usageError("one of "+strings.Join(rules.Platforms(), ", "), "unknown platform %q", f.platform)
		}
		c.Host.Platform = f.platform
	}
	if len(f.env) > 0 {
		env := map[string]string{}
		for _, kv := range f.env {
			k, v, ok := strings.Cut(kv, "=")
			if !ok || k == "" {
				return c, usageError("as in --env CI=true", "--env %q: want K=V", kv)
			}
			env[k] = v
		}
		c.Host.Env = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	}
	return c, nil
}

// isObject reports a text that begins as a JSON object; whether it is one shows when it is parsed.
func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

// unrecorded warns of a verdict that could not be recorded.
func (a *app) unrecorded(err error) {
	fmt.Fprintln(a.io.err, "dshproxy: warning: not recorded: "+err.Error())
}

func (a *app) check(f *checkFlags) error {
	c, err := a.call(f)
	if err != nil {
		return err
	}
	rules, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	c.Workspace = workspace
	v, err := a.settings.judgeRecorded(rules.Current(), &c, "check", a.unrecorded)
	if err != nil {
		return usageError("the arguments are a JSON object", "arguments: %w", err)
	}
	enc := json.NewEncoder(a.io.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(verdictOf(&v)); err != nil {
		return err
	}
	return exitFor(&v)
}

// exitFor gives the exit code of a verdict.
func exitFor(v *live.Verdict) error {
	switch {
	case v.Passthrough || v.Action == netrule.Allow:
		return nil
	case v.Action == netrule.Ask:
		return &exitError{code: exitAsk}
	default:
		return &exitError{code: exitDeny}
	}
}

// verdictOf is a verdict as JSON shows it.
func verdictOf(v *live.Verdict) admin.Verdict {
	j := admin.Verdict{Action: v.Action.String(), Code: v.Code.String(), Reason: reasonOf(v), Unparsed: v.Unparsed}
	switch {
	case v.Code == netrule.CodeDryRun:
		j.Action, j.Would = "passthrough", v.Would.String()
	case v.Passthrough:
		j.Action, j.Code = "passthrough", "passthrough"
	}
	j.Rule = refOf(v.Rule)
	return j
}

// refOf is a rule as JSON shows it; nil for none.
func refOf(r netrule.RuleRef) *admin.Ref {
	if !r.Valid() {
		return nil
	}
	return &admin.Ref{File: r.File, Line: r.Line, Index: r.Index, Reason: r.Reason}
}

// reasonOf is the reason that the model reads: the author's words, and whether the network is meant.
func reasonOf(v *live.Verdict) string {
	reason := v.Reason
	if v.Passthrough || v.Action == netrule.Allow {
		return reason
	}
	if reason == "" {
		switch v.Code {
		case netrule.CodeNotAllowed:
			reason = "no rule allows this target"
		case netrule.CodeNeedsApproval:
			reason = "this needs approval"
		default:
			reason = "refused by policy"
		}
	}
	switch {
	case !v.Network:
		return reason
	case v.Action == netrule.Ask:
		return "[network: approval required] " + reason
	default:
		return "[network: denied] " + reason
	}
}
