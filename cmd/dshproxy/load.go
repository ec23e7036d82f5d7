package main

import (
	"errors"
	"os"
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

// rules gives the live rules of the workspace, not loaded yet.
func (a *app) rules() (*live.Rules, string, error) {
	workspace, err := a.workspace()
	if err != nil {
		return nil, "", err
	}
	s := &a.settings
	baseline, err := s.baseline()
	if err != nil {
		return nil, "", err
	}
	r, err := live.New(live.Options{
		Baseline:  baseline,
		Workspace: workspace, RulesFile: s.rulesFile, SearchUp: s.searchUp, FallbackPath: s.fallbackPath, Managed: s.managedRules,
		IgnoreBad: s.badFilePolicy == "ignore-with-warning", MaxBytes: s.maxRuleBytes, Stability: time.Duration(s.watchStability) * time.Millisecond,
		Parse: s.parseOptions(), Host: host(), Policy: s.policyOptions(),
	})
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
	r, workspace, err := a.rules()
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
