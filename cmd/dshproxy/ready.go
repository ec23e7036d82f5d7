package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"dshproxy/netrule"
)

// announce prints the ready line, what is not enforced, and writes the ready file.
func (v *service) announce(w io.Writer, metricsListener net.Listener, readyFile string) error {
	s := v.rules.Current()
	addresses := map[string]string{"proxy": address(v.listeners[0]), "metrics": "", "admin": v.admin.address()}
	if err := writeReady(readyFile, addresses, metricsListener); err != nil {
		return err
	}
	line := "listening"
	for _, l := range v.listeners {
		line += fmt.Sprintf(" %s=%s", l.Name, address(l))
	}
	if metricsListener != nil {
		line += " metrics=" + address(metricsListener)
	}
	if at := v.admin.address(); at != "" {
		line += " admin=" + at
	}
	o := s.Policy.Options()
	line += fmt.Sprintf(" rules=%d", len(s.Chain)+len(s.Managed))
	if n := len(s.Baseline); n > 0 {
		line += fmt.Sprintf(" (+%d builtin)", n)
	}
	line += fmt.Sprintf(" mode=%s unlisted=%s", o.Mode, o.Unlisted)
	fmt.Fprintln(w, line)
	for _, sentence := range v.notEnforced() {
		fmt.Fprintln(w, sentence)
	}
	return nil
}

// writeReady writes the addresses by a rename, before anybody is told that the proxy listens.
func writeReady(path string, addresses map[string]string, metricsListener net.Listener) error {
	if path == "" {
		return nil
	}
	if metricsListener != nil {
		addresses["metrics"] = address(metricsListener)
	}
	text, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return os.Rename(temporary, path)
}

// notEnforced has a sentence for each thing that a user might think is enforced and is not.
func (v *service) notEnforced() []string {
	s, o := v.rules.Current(), v.rules.Current().Policy.Options()
	var out []string
	if len(s.Files) == 0 && len(s.Warnings) == 0 {
		out = append(out, fmt.Sprintf("no rule file: %s does not exist, so %s mode alone decides", filepath.Join(v.workspace, v.settings.rulesFile), o.Mode))
	}
	if o.DryRun {
		out = append(out, "dry run: what rules and mode refuse is recorded and passes")
	}
	if o.Mode == netrule.AllowAll {
		out = append(out, "allow-all mode: only deny rules and the address guard refuse")
	}
	if v.settings.workspaceRules == "narrow" {
		out = append(out, "a program of the same user can connect without the proxy")
	} else {
		out = append(out, "rules are advisory: a program of the same user can edit them, and can connect without the proxy")
	}
	switch v.settings.sni {
	case "observe":
		out = append(out, "names in TLS hellos are recorded and not enforced")
	case "off":
		out = append(out, "names in TLS hellos are not looked at: a tunnel may be for another host at the same address")
	}
	if c := v.server.Gate.Chaining; c != nil && !c.Local {
		out = append(out, "names that go through an upstream proxy are resolved there: rules and guard see no address of them")
	}
	return append(out, v.settings.warnings(time.Now())...)
}
