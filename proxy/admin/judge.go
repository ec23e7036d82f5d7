package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"

	"dshproxy/netrule"
)

func (a *api) check(ctx context.Context, in *Call) (any, error) {
	if err := in.validate(); err != nil {
		return nil, err
	}
	return a.backend.Check(ctx, *in)
}

func (c *Call) validate() error {
	switch {
	case c.Tool == "":
		return badRequest("the call names no tool").hint(`as in {"tool": "bash", "args": {"command": "ls"}}`)
	case len(c.Args) > 0 && !bytes.HasPrefix(c.Args, []byte("{")):
		return badRequest("args must be a JSON object")
	case c.Cwd != "" && !filepath.IsAbs(c.Cwd):
		return badRequest("cwd must be absolute")
	}
	return nil
}

// explainRequest is the body of explain: a target, or a call as check takes it.
type explainRequest struct {
	Target   string            `json:"target"`
	Resolve  []string          `json:"resolve"`
	Lookup   bool              `json:"lookup"`
	Agents   []string          `json:"agent"`
	Tool     string            `json:"tool"`
	Args     json.RawMessage   `json:"args"`
	Cwd      string            `json:"cwd"`
	Platform string            `json:"platform"`
	Env      map[string]string `json:"env"`
}

func (a *api) explain(ctx context.Context, in *explainRequest) (any, error) {
	aboutCall := in.Tool != "" || len(in.Args) > 0 || in.Cwd != "" || in.Platform != "" || in.Env != nil
	aboutTarget := in.Target != "" || in.Resolve != nil || in.Lookup
	switch {
	case aboutCall && aboutTarget:
		return nil, badRequest("give a target or a tool call, not both")
	case aboutTarget:
		return a.explainTarget(ctx, in)
	case !aboutCall:
		return nil, badRequest("nothing to explain").hint("give target, or tool and args")
	}
	call := Call{in.Tool, in.Args, in.Cwd, in.Agents, in.Platform, in.Env}
	if err := call.validate(); err != nil {
		return nil, err
	}
	e, err := a.backend.ExplainCall(ctx, call)
	e.Trace = notNil(e.Trace)
	return e, err
}

func (a *api) explainTarget(ctx context.Context, in *explainRequest) (any, error) {
	t, err := netrule.ParseURL(in.Target)
	if err != nil {
		return nil, badRequest("target: %v", err).hint("give an http(s) URL, host:port or an address")
	}
	q := TargetQuery{Target: t, Agents: in.Agents, Lookup: in.Lookup}
	for _, text := range in.Resolve {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return nil, badRequest("resolve: %q is no address", text)
		}
		q.Addrs = append(q.Addrs, addr)
	}
	e, err := a.backend.Explain(ctx, q)
	e.Trace = notNil(e.Trace)
	return e, err
}
