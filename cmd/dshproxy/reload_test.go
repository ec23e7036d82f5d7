package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"dshproxy/metrics"
	"dshproxy/proxy"
	"dshproxy/proxy/decisionlog"
	"dshproxy/rules/live"

	"github.com/prometheus/client_golang/prometheus"
)

// TestReloadedInPart: a reload that took some files and failed at others is told as both, and stays failed until all are
// whole.
func TestReloadedInPart(t *testing.T) {
	dir := t.TempDir()
	placeFile(t, filepath.Join(dir, live.DefaultRulesFile), "rules: []\n")
	r, err := live.New(live.Options{Workspace: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	v := &service{
		settings: &settings{}, log: slog.New(slog.NewTextHandler(&log, nil)), rules: r, server: &proxy.Server{}, ring: decisionlog.NewRing(1),
		metrics: metrics.New(prometheus.NewRegistry(), nil, metrics.Build{}, metrics.Limits{}, metrics.State{}),
	}
	t.Cleanup(func() { _ = v.server.Shutdown(t.Context()) })
	const taken, failed = "rules reloaded", "reload failed"
	for _, c := range []struct {
		changed bool
		err     error
		stale   bool
		says    string
		not     string
	}{
		{true, errors.New("m.yaml: broken"), true, "m.yaml: broken", ""},
		{false, errors.New("m.yaml: broken"), true, failed, taken},
		{false, nil, false, "whole again", failed},
		{true, nil, false, taken, failed},
	} {
		log.Reset()
		v.reloaded(c.changed, c.err)
		text := log.String()
		if c.changed != strings.Contains(text, taken) || !strings.Contains(text, c.says) || c.not != "" && strings.Contains(text, c.not) || v.stale.Load() != c.stale {
			t.Errorf("%v, %v: stale %v, %s", c.changed, c.err, v.stale.Load(), text)
		}
		if last := v.lastReload.Load(); c.err != nil && (last.OK || last.Error != c.err.Error()) || c.err == nil && c.changed && !last.OK {
			t.Errorf("%v, %v: %+v", c.changed, c.err, last)
		}
	}
}
