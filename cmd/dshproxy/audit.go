package main

import (
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/rules"
	"dshproxy/rules/live"
)

// audit records a judged tool call where connections are recorded, if that is a file. What cannot be written is reported,
// and changes no verdict.
func (s *settings) auditCall(client string, c *rules.Call, v *live.Verdict, policy string) error {
	if s.decisions == "off" || s.decisions == "" || s.decisions == "-" {
		return nil
	}
	if s.audit == "hits" && !v.Rule.Valid() && (v.Passthrough || v.Action == netrule.Allow) {
		return nil
	}
	f, err := decisionlog.OpenFile(s.decisions, s.logMaxSize)
	if err != nil {
		return err
	}
	defer f.Close()
	name := c.Tool
	if c.Alias != "" {
		name = c.Alias
	}
	t := decisionlog.Tool{
		Time: time.Now(), Tool: name, Client: client, Cwd: c.Cwd, Passthrough: v.Passthrough, Action: v.Action, Code: v.Code, Rule: v.Rule,
		DryRun: v.Code == netrule.CodeDryRun, Would: v.Would, Unparsed: v.Unparsed, Policy: policy,
	}
	_, err = f.Write(t.Append(nil))
	return err
}
