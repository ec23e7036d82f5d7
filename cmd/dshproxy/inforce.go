package main

import (
	"path/filepath"
	"strings"

	"dshproxy/rules"
	"dshproxy/rules/live"
)

// judge judges a tool call. The files in force here are part of the floor, wherever they are.
func (s *settings) judge(in *live.Snapshot, c *rules.Call) (live.Verdict, error) {
	protects := s.selfProtect == "on"
	if protects {
		c.Protected = s.inForce(c.Workspace)
	}
	return in.Judge(*c, protects)
}

// judgeRecorded judges a call and records it. What cannot be written is told to warn, and changes no verdict.
func (s *settings) judgeRecorded(in *live.Snapshot, c *rules.Call, client string, warn func(error)) (live.Verdict, error) {
	v, err := s.judge(in, c)
	if err != nil {
		return v, err
	}
	if err := s.auditCall(client, c, &v, in.Hash); err != nil {
		warn(err)
	}
	return v, nil
}

// inForce gives the absolute paths of what decides, or proves who somebody is: settings, rule files, secrets, and the
// state that outlives the process.
func (s *settings) inForce(workspace string) []string {
	paths := []string{s.file, s.fallbackPath, s.builtinPath, s.rulesFile, s.inspectCA, s.inspectKey, s.upstream.credentialsFile, s.upstream.caFile}
	paths = append(paths, s.managedRules...)
	for _, t := range s.identity.tokens {
		paths = append(paths, t.entry.file)
	}
	for _, l := range s.listen {
		if l.tls != nil {
			paths = append(paths, l.tls.cert, l.tls.key, l.tls.clientCA)
		}
	}
	if address, _, err := s.adminAddress(); err == nil {
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			paths = append(paths, path)
		}
	}
	if dir, err := stateDir(); err == nil {
		paths = append(paths, dir)
	}
	var out []string
	for _, p := range paths {
		if p == "" {
			continue
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(workspace, p)
		}
		out = append(out, filepath.Clean(p))
		if real, err := filepath.EvalSymlinks(p); err == nil && real != filepath.Clean(p) {
			out = append(out, real)
		}
	}
	return out
}
