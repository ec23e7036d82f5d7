package decisionlog

import (
	"time"

	"dshproxy/netrule"
)

// Tool is one tool call that was judged. Nothing of its arguments is kept.
type Tool struct {
	Time   time.Time
	Tool   string
	Client string // that asked: check, hook, api
	Cwd    string // that relative paths started from
	// Passthrough says that no rule decided; Action is the verdict otherwise.
	Passthrough bool
	Action      netrule.Action
	Code        netrule.Code
	Rule        netrule.RuleRef
	DryRun      bool
	Would       netrule.Action
	Unparsed    bool // a command was no shell text as a whole
	Policy      string
}

// Append writes the line of a call.
func (t *Tool) Append(b []byte) []byte {
	b = appendHead(b, "tool", t.Time)
	b = appendField(b, "tool", t.Tool, 128)
	b = appendField(b, "client", t.Client, maxClient)
	if t.Cwd != "" {
		b = appendField(b, "cwd", t.Cwd, 1024)
	}
	action, code := t.Action.String(), t.Code.String()
	if t.Passthrough {
		action = "passthrough"
		if !t.DryRun {
			code = action
		}
	}
	b = appendField(b, "verdict", action, 16)
	b = appendField(b, "code", code, 32)
	if t.Rule.Valid() {
		b = appendRule(b, t.Rule)
	}
	if t.DryRun {
		b = appendBool(b, "dry_run", true)
		b = appendField(b, "would", t.Would.String(), 8)
	}
	if t.Unparsed {
		b = appendBool(b, "unparsed", true)
	}
	if t.Policy != "" {
		b = appendField(b, "policy", t.Policy, 64)
	}
	return append(b, "}\n"...)
}

func appendRule(b []byte, r netrule.RuleRef) []byte {
	b = append(b, `,"rule":{`...)
	b = appendString(append(b, `"file":`...), r.File, 1024)
	b = appendInt(b, "line", int64(r.Line))
	b = appendInt(b, "index", int64(r.Index))
	return append(appendField(b, "reason", r.Reason, maxReason), '}')
}
