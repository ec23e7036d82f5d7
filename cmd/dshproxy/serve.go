package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"dshproxy/metrics"
	"dshproxy/netrule"
	"dshproxy/proxy"
	"dshproxy/proxy/admin"
	"dshproxy/proxy/decisionlog"
	"dshproxy/resolve"
	"dshproxy/rules/live"
	"dshproxy/upstream"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
)

func (a *app) serveCommand() *cobra.Command {
	var listen []string
	var metricsAddr, decisions, readyFile string
	var dryRun bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := refuseInside("serve"); err != nil {
				return err
			}
			set := func(flag, path, text string) {
				if c.Flags().Changed(flag) {
					a.flags[path] = text
				}
			}
			set("listen", "listen", strings.Join(listen, ","))
			set("metrics", "metrics.listen", metricsAddr)
			set("decisions", "log.decisions", decisions)
			if dryRun {
				a.flags["enforce"] = "false"
			}
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			return a.serve(c.Context(), readyFile)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&listen, "listen", nil, "address of the proxy: host:port or unix:PATH (repeatable; port 0 picks one)")
	f.StringVar(&metricsAddr, "metrics", "", "address of metrics and health, or off")
	f.StringVar(&decisions, "decisions", "", "decision log: a file, - for stdout, or off")
	f.StringVar(&readyFile, "ready-file", "", "file that gets the addresses as JSON once the proxy listens")
	f.BoolVar(&dryRun, "dry-run", false, "record what rules and mode would refuse, and let it pass; special-use addresses stay closed")
	return c
}

// service is a running proxy.
type service struct {
	settings *settings
	log      *slog.Logger
	rules    *live.Rules
	server   *proxy.Server
	own      *proxy.Own
	metrics  *metrics.Metrics
	registry *prometheus.Registry
	decision *decisionlog.Log
	notReady atomic.Bool
	stale    atomic.Bool // the last reload failed
	running  sync.WaitGroup
	failed   chan error
}

func (a *app) serve(ctx context.Context, readyFile string) error {
	limitMemory()
	s := &a.settings
	if err := s.checkServed(); err != nil {
		return err
	}
	logger, err := s.logger(a.io.err)
	if err != nil {
		return err
	}
	rules, workspace, err := a.rules(true)
	if err != nil {
		return err
	}
	defer rules.Close()
	if err := rules.Load(); err != nil {
		return loadError(err)
	}
	sink, closeSink, err := a.openDecisions()
	if err != nil {
		return err
	}
	defer closeSink()
	v := &service{settings: s, log: logger, rules: rules, own: &proxy.Own{}, registry: prometheus.NewRegistry(), failed: make(chan error, 8)}
	if sink != nil {
		v.decision = decisionlog.NewLog(decisionlog.NewWriter(&reportingSink{sink: sink, log: logger}))
		defer v.decision.Close()
	}
	v.wire(workspace)
	listeners, err := v.listen()
	if err != nil {
		return err
	}
	metricsListener, err := v.listenMetrics(listeners)
	if err != nil {
		return err
	}
	v.loaded()
	for _, l := range listeners {
		v.running.Go(func() {
			if err := v.server.Serve(l); !errors.Is(err, proxy.ErrClosed) {
				v.failed <- err
			}
		})
	}
	if err := v.announce(a.io.err, workspace, listeners, metricsListener, readyFile); err != nil {
		return err
	}
	return v.run(ctx)
}

// wire connects the parts. Nothing listens yet.
func (v *service) wire(workspace string) {
	s := v.settings
	gate := &proxy.Gate{Policies: v.rules.Policy, Own: v.own}
	v.server = &proxy.Server{
		Gate: gate, Dialer: &upstream.Dialer{Check: gate.Check, KeepAlive: -1}, Limits: s.limits(), Log: v.log, Workspace: workspace, DenyMessage: s.denyMessage,
		PolicyHash: func() string { return v.rules.Current().Hash },
	}
	var names []string
	for _, l := range s.listeners() {
		names = append(names, l.name)
	}
	ver, revision, _ := build()
	limits := v.server.Limits
	v.metrics = metrics.New(v.registry, names, metrics.Build{Version: ver, Revision: revision, GoVersion: goVersion()},
		metrics.Limits{Connections: limits.Connections, PerClient: limits.PerClient}, metrics.State{
			ActiveConnections: func() int { return v.server.Active() },
			LogFolded:         func() int64 { return v.countLog((*decisionlog.Log).Folded) },
			LogDropped:        func() int64 { return v.countLog((*decisionlog.Log).Dropped) },
		})
	v.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gate.Lookup = s.resolver(func(took time.Duration, err error) {
		var re *resolve.Error
		v.metrics.LookedUp(took, err != nil, errors.As(err, &re) && re.Timeout)
	}).Lookup
	v.server.Observers = []proxy.Observer{v.metrics}
	if v.decision != nil {
		v.server.Observers = append(v.server.Observers, logObserver{v.decision})
	}
}

func (v *service) countLog(f func(*decisionlog.Log) int64) int64 {
	if v.decision == nil {
		return 0
	}
	return f(v.decision)
}

// logObserver writes records and does not count connections.
type logObserver struct{ *decisionlog.Log }

func (logObserver) Connected(string) {}

// resolver makes the resolver of the settings.
func (s *settings) resolver(observe func(time.Duration, error)) *resolve.Resolver {
	o := resolve.Options{Search: s.dnsSearch, Timeout: s.dnsTimeout, MaxLookups: s.lookups, Observe: observe}
	for _, text := range s.dnsServers {
		if server, err := resolve.ParseServer(text); err == nil { // validate has refused the others; "system" leaves nil
			o.Servers = append(o.Servers, server)
		}
	}
	return resolve.New(o)
}

// limits gives the proxy's limits, the number of connections derived from the descriptors there are.
func (s *settings) limits() proxy.Limits {
	l := proxy.Limits{
		Connections: s.connections, PerClient: s.perClient, HeadBytes: int(s.headBytes), HeadFields: s.headFields, HeadTimeout: s.headTimeout,
		KeepAliveIdle: s.keepAliveIdle, Answer: s.answer, Idle: s.idle, HalfClose: s.halfClose, Lifetime: s.lifetime, TunnelBytes: s.tunnelBytes,
		ResponseHead: s.responseHead,
	}
	if files := fileLimit(); l.Connections == 0 {
		l.Connections = max(16, min(20000, (files-128)/2))
	}
	if l.PerClient == 0 {
		l.PerClient = max(1, l.Connections/2)
	}
	return l
}

func (s *settings) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

// openDecisions opens the decision log; a nil sink means that it is off.
func (a *app) openDecisions() (io.Writer, func(), error) {
	switch a.settings.decisions {
	case "off", "":
		return nil, func() {}, nil
	case "-":
		return a.io.out, func() {}, nil
	}
	f, err := decisionlog.OpenFile(a.settings.decisions, a.settings.logMaxSize)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

// listen opens every listener of the proxy, or none.
func (v *service) listen() ([]proxy.Listener, error) {
	var out []proxy.Listener
	for _, l := range v.settings.listeners() {
		nl, err := openListener(l)
		if err != nil {
			for _, open := range out {
				open.Close()
			}
			return nil, err
		}
		v.own.AddListener(nl.Addr())
		explain := v.settings.explain == "full" || v.settings.explain == "auto" && isLocal(l.address)
		out = append(out, proxy.Listener{Listener: nl, Name: l.name, Explain: explain})
	}
	return out, nil
}

func openListener(l listenAddr) (net.Listener, error) {
	path, unix := strings.CutPrefix(l.address, "unix:")
	if !unix {
		// Keep-alive probes are switched on once a tunnel has lived for a while; multipath TCP costs every connection and
		// serves none on the way from a program to its proxy.
		config := net.ListenConfig{KeepAlive: -1}
		config.SetMultipathTCP(false)
		nl, err := config.Listen(context.Background(), "tcp", l.address)
		if err != nil {
			return nil, listenError(l, err)
		}
		return nl, nil
	}
	removeStaleSocket(path)
	nl, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, listenError(l, err)
	}
	if err := os.Chmod(path, l.mode); err != nil {
		nl.Close()
		return nil, listenError(l, err)
	}
	return nl, nil
}

func listenError(l listenAddr, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "another program has this address, perhaps another dshproxy; choose one with --listen or --metrics, port 0 picks a free one"
	case errors.Is(err, syscall.EACCES):
		hint = "ports below 1024 need privileges"
	}
	return &exitError{exitFailure, fmt.Errorf("cannot listen on %s: %w", l.address, err), hint}
}

// removeStaleSocket takes away a socket that nobody listens on any more.
func removeStaleSocket(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path); err == nil {
		c.Close()
		return
	}
	_ = os.Remove(path) // if it stays, listening says so
}

// listenMetrics opens the metrics listener and serves it. On an error the proxy's listeners are closed.
func (v *service) listenMetrics(others []proxy.Listener) (net.Listener, error) {
	address := v.settings.metricsListen
	if address == "off" || address == "" {
		return nil, nil
	}
	nl, err := openListener(listenAddr{name: "metrics", address: address, mode: 0o600})
	if err != nil {
		for _, l := range others {
			l.Close()
		}
		return nil, err
	}
	v.own.AddListener(nl.Addr())
	server := admin.MetricsServer(v.registry, admin.Health{
		Alive: v.server.Alive,
		Ready: func() bool { return v.rules.Current() != nil && !v.server.Draining() && !v.notReady.Load() },
	})
	go func() {
		if err := server.Serve(nl); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			v.failed <- err
		}
	}()
	return nl, nil
}

// loaded tells everybody about the policy in force.
func (v *service) loaded() {
	s := v.rules.Current()
	count := len(s.Chain) + len(s.Managed)
	v.metrics.PolicyLoaded(s.Hash, count, s.Changed, v.settings.enforce, s.Loaded)
	if v.decision != nil {
		v.decision.Reloaded(&decisionlog.Reload{Time: time.Now(), OK: true, Rules: count, Policy: s.Hash})
	}
	for _, w := range s.Warnings {
		v.log.Warn(w)
	}
}

// announce prints the ready line, what is not enforced, and writes the ready file.
func (v *service) announce(w io.Writer, workspace string, listeners []proxy.Listener, metricsListener net.Listener, readyFile string) error {
	s := v.rules.Current()
	addresses := map[string]string{"proxy": address(listeners[0]), "metrics": "", "admin": ""}
	line := "listening"
	for _, l := range listeners {
		line += fmt.Sprintf(" %s=%s", l.Name, address(l))
	}
	if metricsListener != nil {
		addresses["metrics"] = address(metricsListener)
		line += " metrics=" + addresses["metrics"]
	}
	o := s.Policy.Options()
	line += fmt.Sprintf(" rules=%d", len(s.Chain)+len(s.Managed))
	if n := len(s.Baseline); n > 0 {
		line += fmt.Sprintf(" (+%d builtin)", n)
	}
	line += fmt.Sprintf(" mode=%s unlisted=%s", o.Mode, o.Unlisted)
	fmt.Fprintln(w, line)
	for _, sentence := range v.notEnforced(workspace) {
		fmt.Fprintln(w, sentence)
	}
	if readyFile == "" {
		return nil
	}
	text, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	temporary := readyFile + ".tmp"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return os.Rename(temporary, readyFile)
}

func address(l net.Listener) string {
	if u, ok := l.Addr().(*net.UnixAddr); ok {
		return "unix:" + u.Name
	}
	return l.Addr().String()
}

// reportingSink tells the operator when the decision log cannot be written, and when it can again.
type reportingSink struct {
	sink    io.Writer
	log     *slog.Logger
	failing bool
}

func (s *reportingSink) Write(p []byte) (int, error) {
	n, err := s.sink.Write(p)
	switch {
	case err != nil && !s.failing:
		s.log.Error("the decision log cannot be written, records are lost", "error", err)
	case err == nil && s.failing:
		s.log.Info("the decision log is written again")
	}
	s.failing = err != nil
	return n, err
}

// notEnforced has a sentence for each thing that a user might think is enforced and is not.
func (v *service) notEnforced(workspace string) []string {
	s, o := v.rules.Current(), v.rules.Current().Policy.Options()
	var out []string
	if len(s.Files) == 0 {
		out = append(out, fmt.Sprintf("no rule file: %s does not exist, so %s mode alone decides", filepath.Join(workspace, v.settings.rulesFile), o.Mode))
	}
	if o.DryRun {
		out = append(out, "dry run: what rules and mode refuse is recorded and passes")
	}
	if o.Mode == netrule.AllowAll {
		out = append(out, "allow-all mode: only deny rules and the address guard refuse")
	}
	out = append(out, "rules are advisory: a program of the same user can edit them, and can connect without the proxy")
	return append(out, "tunnels are judged by the name that CONNECT asks for; the TLS inside is not looked at")
}

// run serves until a signal, the end of ctx or a failed listener, and drains.
func (v *service) run(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	watchCtx, stopWatch := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	if v.settings.watch {
		watching.Go(func() { v.rules.Watch(watchCtx, v.reloaded) })
	}
	defer func() {
		stopWatch()
		watching.Wait()
	}()
	delay := v.settings.drainDelay
	for {
		select {
		case err := <-v.failed:
			return err
		case <-ctx.Done():
		case s := <-signals:
			if s == syscall.SIGHUP {
				v.reloaded(v.rules.Reload())
				continue
			}
			if s == os.Interrupt {
				delay = 0
			}
		}
		return v.drain(signals, delay)
	}
}

// reloaded tells everybody what came of a reload. A file may have failed while others were taken.
func (v *service) reloaded(changed bool, err error) {
	if changed {
		v.loaded()
		v.server.PolicyChanged()
		s := v.rules.Current()
		v.log.Info("rules reloaded", "rules", len(s.Chain)+len(s.Managed), "policy", s.Hash)
	}
	if err != nil {
		v.stale.Store(true)
		v.metrics.ReloadFailed()
		v.log.Error("reload failed; the old rules of that file stay", "err", err)
		if v.decision != nil {
			s := v.rules.Current()
			v.decision.Reloaded(&decisionlog.Reload{Time: time.Now(), Rules: len(s.Chain) + len(s.Managed), Policy: s.Hash, Error: err.Error()})
		}
		return
	}
	if !changed {
		v.metrics.ReloadUnchanged()
		if v.stale.Load() {
			v.log.Info("the rule files are whole again, and as they were")
		}
	}
	v.stale.Store(false)
}

// drain ends the service: not ready at once, listeners after the delay, tunnels by the timeout. A second signal ends it
// at once.
func (v *service) drain(signals <-chan os.Signal, delay time.Duration) error {
	v.notReady.Store(true)
	v.log.Info("draining", "delay", delay, "timeout", v.settings.drainTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), delay+v.settings.drainTimeout)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP {
					cancel()
				}
			case <-stopped:
				return
			}
		}
	}()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := v.server.Shutdown(ctx); err != nil {
		v.log.Warn("connections were closed before they ended")
	}
	v.running.Wait()
	return nil
}
