package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"dshproxy/rules"
	"dshproxy/rules/live"
)

// host is the machine that rules are evaluated for.
func host() rules.Host {
	return rules.Host{Platform: rules.Platform(runtime.GOOS), Env: os.LookupEnv}
}

// parseOptions gives how rule files are read.
func (s *settings) parseOptions() rules.Options {
	return rules.Options{Regex: s.patternMode == "regex", MaxGlobStars: s.maxGlobStars, MaxRules: s.maxRules, CaseInsensitivePaths: s.caseInsensitivePaths}
}

// liveOptions gives how the rules of a workspace are loaded. A service accepts what is there when it starts.
func (s *settings) liveOptions(workspace string, service bool) (live.Options, error) {
	baseline, err := s.baseline()
	if err != nil {
		return live.Options{}, err
	}
	o := live.Options{
		Baseline:  baseline,
		Workspace: workspace, RulesFile: s.rulesFile, SearchUp: s.searchUp, FallbackPath: s.fallbackPath, Managed: s.managedRules,
		IgnoreBad: s.badFilePolicy == "ignore-with-warning", MaxBytes: s.maxRuleBytes, Stability: time.Duration(s.watchStability) * time.Millisecond,
		Parse: s.parseOptions(), Host: host(), Policy: s.policyOptions(),
		Places: places(), Narrow: s.workspaceRules == "narrow", AcceptAtStart: service,
	}
	for _, d := range s.dialects {
		o.Dialects = append(o.Dialects, live.Dialect(d))
	}
	if o.Narrow {
		state, err := stateDir()
		if err != nil {
			return o, err
		}
		o.Trust.Dir = filepath.Join(state, "accepted")
	}
	return o, nil
}

// places are where the programs whose rules may be read keep what holds in every workspace. Without a home folder there
// is only the administrator's file.
func places() live.Places {
	p := live.Places{ClaudeManaged: managedSettings(), ClaudeUser: absoluteDir(os.Getenv("CLAUDE_CONFIG_DIR")), PiUser: absoluteDir(os.Getenv("PI_CODING_AGENT_DIR"))}
	home, err := os.UserHomeDir()
	if err != nil {
		return p
	}
	p.Home = home
	if p.ClaudeUser == "" {
		p.ClaudeUser = filepath.Join(home, ".claude")
	}
	if p.PiUser == "" {
		p.PiUser = filepath.Join(home, ".pi", "agent")
	}
	return p
}

// absoluteDir makes a folder that a variable names absolute. One whose place cannot be told is none.
func absoluteDir(dir string) string {
	if dir == "" {
		return ""
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	return abs
}

func managedSettings() string {
	switch runtime.GOOS {
	case "darwin":
		return "/Library/Application Support/ClaudeCode/managed-settings.json"
	case "windows":
		return `C:\Program Files\ClaudeCode\managed-settings.json`
	default:
		return "/etc/claude-code/managed-settings.json"
	}
}

// stateDir is where what must outlive the process is kept: never in a workspace.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dshproxy"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &exitError{exitFailure, fmt.Errorf("no folder for state: %w", err), "set HOME or XDG_STATE_HOME"}
	}
	return filepath.Join(home, ".local", "state", "dshproxy"), nil
}

// rules gives the live rules of the workspace, not loaded yet.
func (a *app) rules(service bool) (*live.Rules, string, error) {
	workspace, err := a.workspace()
	if err != nil {
		return nil, "", err
	}
	o, err := a.settings.liveOptions(workspace, service)
	if err != nil {
		return nil, "", err
	}
	r, err := live.New(o)
	return r, workspace, err
}

// baseline gives the rules that stand behind every workspace's.
func (s *settings) baseline() ([]rules.Rule, error) {
	if !s.builtin {
		return nil, nil
	}
	if s.builtinPath == "" {
		return rules.Baseline(), nil
	}
	if err := live.CheckOwner(s.builtinPath); err != nil {
		return nil, loadError(err)
	}
	text, err := live.ReadNamed(s.builtinPath, s.maxRuleBytes)
	if err != nil {
		return nil, loadError(err)
	}
	doc, err := rules.Parse(s.builtinPath, text, s.parseOptions())
	if err != nil {
		return nil, err
	}
	return doc.Rules, nil
}

// loadRules reads settings and rules for a command that only looks.
func (a *app) loadRules() (*live.Rules, string, error) {
	if err := a.settings.load(a.config, a.flags); err != nil {
		return nil, "", err
	}
	r, workspace, err := a.rules(false)
	if err != nil {
		return nil, "", err
	}
	if err := r.Load(); err != nil {
		return nil, "", loadError(err)
	}
	return r, workspace, nil
}

// loadError says which setting names a missing file.
func loadError(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &exitError{exitFailure, err, "a file that is named in the settings or by a flag must exist"}
	}
	return err
}
