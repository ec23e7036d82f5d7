package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
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
	"dshproxy/proxy/identity"
	"dshproxy/proxy/inspect"
	"dshproxy/resolve"
	"dshproxy/rules/live"
	"dshproxy/upstream"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
)

func (a *app) serveCommand() *cobra.Command {
	var listen []string
	var metricsAddr, adminAddr, decisions, readyFile string
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
			set("admin", "admin.listen", adminAddr)
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
	f.StringVar(&adminAddr, "admin", "", "address of the admin API: auto, host:port, unix:PATH or off")
	f.StringVar(&decisions, "decisions", "", "decision log: a file, - for stdout, or off")
	f.StringVar(&readyFile, "ready-file", "", "file that gets the addresses as JSON once the proxy listens")
	f.BoolVar(&dryRun, "dry-run", false, "record what rules and mode would refuse, and let it pass; special-use addresses stay closed")
	return c
}

// service is a running proxy.
type service struct {
	app        *app
	settings   *settings
	log        *slog.Logger
	workspace  string
	rules      *live.Rules
	workspaces *live.Workspaces // of identities that have one of their own
	book       atomic.Pointer[identity.Book]
	server     *proxy.Server
	own        *proxy.Own
	ring       *decisionlog.Ring
	started    time.Time
	listeners  []proxy.Listener
	admin      *adminService // nil when there is none
	lastReload atomic.Pointer[admin.LastReload]
	metrics    *metrics.Metrics
	registry   *prometheus.Registry
	decision   *decisionlog.Log
	notReady   atomic.Bool
	stale      atomic.Bool // the last reload failed
	running    sync.WaitGroup
	failed     chan error
}

func (a *app) serve(ctx context.Context, readyFile string) error {
	defer keepHeapFloor()()
	limitMemory()
	s := &a.settings
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
	book, err := s.identityBook()
	if err != nil {
		return err
	}
	sink, closeSink, err := a.openDecisions()
	if err != nil {
		return err
	}
	defer closeSink()
	v := &service{
		app: a, settings: s, log: logger, workspace: workspace, rules: rules, own: &proxy.Own{}, ring: decisionlog.NewRing(s.proxyMaxRecent), started: time.Now(),
		registry: prometheus.NewRegistry(), failed: make(chan error, 8),
	}
	v.book.Store(book)
	if err := v.openWorkspaces(); err != nil {
		return err
	}
	defer v.workspaces.Close()
	if sink != nil {
		v.decision = decisionlog.NewLog(decisionlog.NewWriter(&reportingSink{sink: sink, log: logger}))
		defer v.decision.Close()
	}
	if err := v.wire(); err != nil {
		return err
	}
	listeners, err := v.listen()
	if err != nil {
		return err
	}
	v.listeners = listeners
	metricsListener, err := v.listenMetrics(listeners)
	if err != nil {
		return err
	}
	if err := v.listenAdmin(); err != nil {
		closeAll(listeners)
		return err
	}
	v.loaded()
	v.resumeState()
	for _, l := range listeners {
		v.running.Go(func() {
			if err := v.server.Serve(l); !errors.Is(err, proxy.ErrClosed) {
				v.failed <- err
			}
		})
	}
	if err := v.announce(a.io.err, metricsListener, readyFile); err != nil {
		return err
	}
	return v.run(ctx)
}

// wire connects the parts. Nothing listens yet.
func (v *service) wire() error {
	s := v.settings
	gate := &proxy.Gate{Policies: v.policy, Own: v.own}
	dialer := &upstream.Dialer{Check: gate.Check, KeepAlive: -1}
	v.server = &proxy.Server{
		Gate: gate, Dialer: dialer, Limits: s.limits(), Log: v.log, Workspace: v.workspace, DenyMessage: s.denyMessage,
		PolicyHash: v.policyHash, Book: v.book.Load, SNI: map[string]proxy.SNIMode{"observe": proxy.SNIObserve, "off": proxy.SNIOff}[s.sni],
	}
	chain, err := s.upstream.chain()
	if err != nil {
		return err
	}
	if chain != nil {
		gate.Chaining = &proxy.Chaining{Chain: chain, Local: s.upstream.resolve == "local", Only: s.upstream.only, ParentAddrs: dialer.ParentAddrs}
	}
	if v.server.Inspector, err = v.inspector(); err != nil {
		return err
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
	dialer.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		answer, err := gate.Lookup(ctx, name, false)
		return answer.Addrs, err
	}
	v.server.Observers = []proxy.Observer{v.metrics, v.recorder()}
	return nil
}

// recorder takes down what happens, where it is looked for.
func (v *service) recorder() decisionlog.Recorder {
	return decisionlog.Recorder{Ring: v.ring, Log: v.decision}
}

// policy gives the policy of an identity's workspace, or the proxy's own.
func (v *service) policy(workspace string) (*netrule.Policy, error) {
	if workspace == "" {
		return v.rules.Policy("")
	}
	return v.workspaces.Policy(workspace)
}

func (v *service) policyHash(workspace string) string {
	if workspace == "" {
		return v.rules.Current().Hash
	}
	r, err := v.workspaces.Rules(workspace)
	if err != nil {
		return ""
	}
	return r.Current().Hash
}

// openWorkspaces loads the rules of every workspace that an identity names: one that is missing shows now.
func (v *service) openWorkspaces() error {
	o, err := v.settings.liveOptions("", true)
	if err != nil {
		return err
	}
	o.Narrow = true // whoever connects from there can write there
	if o.Trust.Dir == "" {
		state, err := stateDir()
		if err != nil {
			return err
		}
		o.Trust.Dir = filepath.Join(state, "accepted")
	}
	v.workspaces = &live.Workspaces{Options: o, Max: v.settings.maxCachedWorkspaces}
	for _, dir := range v.settings.identityWorkspaces() {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return &exitError{exitFailure, fmt.Errorf("identity: the workspace %s is no folder", dir), "its rules would refuse everything"}
		}
		if _, err := v.workspaces.Rules(dir); err != nil {
			return loadError(err)
		}
	}
	return nil
}

// inspector makes the engine that terminates TLS, or nil.
func (v *service) inspector() (proxy.Inspector, error) {
	s := v.settings
	if len(s.inspectDomains) == 0 {
		return nil, nil
	}
	cert, key, err := s.readCA()
	if err != nil {
		return nil, err
	}
	l := v.server.Limits
	engine, err := inspect.New(inspect.Options{
		Domains: s.inspectDomains, CACert: cert, CAKey: key, Pseudonym: v.server.Pseudonym(), Log: v.log,
		Limits: inspect.Limits{HeadBytes: l.HeadBytes, HeadFields: l.HeadFields, HeadTimeout: l.HeadTimeout, KeepAliveIdle: l.KeepAliveIdle, Answer: l.Answer, ResponseHead: l.ResponseHead, Idle: l.Idle},
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if left := time.Until(engine.NotAfter()); left < 30*24*time.Hour {
		v.log.Warn("the CA for inspected TLS expires soon", "at", engine.NotAfter())
	}
	return engine, nil
}

func (v *service) countLog(f func(*decisionlog.Log) int64) int64 {
	if v.decision == nil {
		return 0
	}
	return f(v.decision)
}

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
		ResponseHead: s.responseHead, ClientDials: s.dials,
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

// run serves until a signal, the end of ctx or a failed listener, and drains.
func (v *service) run(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	watchCtx, stopWatch := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	if v.settings.watch {
		watching.Go(func() { v.rules.Watch(watchCtx, v.reloaded) })
		watching.Go(func() { v.workspaces.Watch(watchCtx, v.workspaceReloaded) })
		watching.Go(func() { v.watchBook(watchCtx) })
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
				_, _ = v.reload() // it has told the operator
				continue
			}
			if s == os.Interrupt {
				delay = 0
			}
		}
		return v.drain(signals, delay)
	}
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
	v.admin.close()
	return nil
}
