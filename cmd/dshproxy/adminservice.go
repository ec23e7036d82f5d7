package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/admin"
	"dshproxy/proxy/decisionlog"
	"dshproxy/rules"
	"dshproxy/rules/live"
)

// adminService is the admin API of a running proxy.
type adminService struct {
	listener net.Listener
	server   *http.Server
}

func (a *adminService) address() string {
	if a == nil {
		return ""
	}
	return address(a.listener)
}

// adminGoodbye is how long requests of the API may take to end.
const adminGoodbye = time.Second

func (a *adminService) close() {
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminGoodbye)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close() // what is left of it ends with the process
	}
}

// runtimeDir is where sockets are that live as long as the process.
func runtimeDir() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dshproxy"), nil
	}
	if os.Getuid() == 0 {
		return "/run/dshproxy", nil
	}
	return stateDir()
}

// adminAddress gives where the API listens, or is to be found; auto says that nobody has named it.
func (s *settings) adminAddress() (address string, auto bool, err error) {
	if s.adminListen != "auto" {
		return s.adminListen, false, nil
	}
	dir, err := runtimeDir()
	return "unix:" + filepath.Join(dir, "admin.sock"), true, err
}

// adminToken reads the secret of the API, and makes it on first use.
func adminToken() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := live.CheckOwner(dir); err != nil {
		return "", err
	}
	return admin.LoadOrCreateToken(filepath.Join(dir, "admin-token"))
}

// listenAdmin opens the API. Where nobody has named its address, a proxy without it is better than none.
func (v *service) listenAdmin() error {
	address, auto, err := v.settings.adminAddress()
	if address == "off" || address == "" {
		return nil
	}
	if err == nil {
		err = v.openAdmin(address)
	}
	if err != nil && auto {
		v.log.Warn("no admin API", "err", err)
		return nil
	}
	return err
}

func (v *service) openAdmin(address string) error {
	if err := checkListen(address); err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	if !isLocal(address) && len(v.settings.adminHosts) == 0 {
		return usageError("name it in admin.hosts if that is meant", "admin.listen: %s is reachable from other machines", address)
	}
	token, err := adminToken()
	if err != nil {
		return fmt.Errorf("admin token: %w", err)
	}
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	l, err := openListener(listenAddr{name: "admin", address: address, mode: 0o600})
	if err != nil {
		return err
	}
	v.own.AddListener(l.Addr())
	handler := admin.Handler(admin.Options{Backend: backend{v}, Token: token, Hosts: v.settings.adminHosts, Addr: l.Addr(), Log: v.log})
	v.admin = &adminService{l, admin.Server(handler)}
	go func() {
		if err := v.admin.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			v.failed <- err
		}
	}()
	return nil
}

// stopFile is what makes a stop survive a restart.
func stopFile() (string, error) {
	dir, err := stateDir()
	return filepath.Join(dir, "stopped"), err
}

// resumeState takes up a stop that holds from before.
func (v *service) resumeState() {
	path, err := stopFile()
	if err != nil {
		return
	}
	if _, err := os.Stat(path); err == nil {
		v.server.Stop()
		v.log.Warn("stopped: everything is refused until dshproxy resume")
	}
}

// backend is the running proxy as the admin API sees it.
type backend struct{ v *service }

func (b backend) Status() admin.Status {
	v, s := b.v, b.v.rules.Current()
	o := s.Policy.Options()
	st := admin.Status{
		Version: version, Started: v.started, Mode: o.Mode.String(), Unlisted: o.Unlisted.String(), Enforce: !o.DryRun,
		Rules: len(s.Chain) + len(s.Managed), Builtin: len(s.Baseline), Policy: s.Hash, Pending: s.Pending != nil, Active: v.server.Active(),
		Tunnels: len(v.server.Tunnels()), Draining: v.server.Draining(), Stopped: v.server.Stopped(),
	}
	if last := v.lastReload.Load(); last != nil {
		st.LastReload = *last
	}
	for _, l := range v.listeners {
		st.Listeners = append(st.Listeners, admin.Listener{Name: l.Name, Address: address(l)})
	}
	if c := v.server.Gate.Chaining; c != nil {
		var names []string
		for _, p := range c.Chain.Parents() {
			names = append(names, p.String())
		}
		st.Upstream = strings.Join(names, " ")
	}
	return st
}

func (b backend) Records() *decisionlog.Ring { return b.v.ring }

func (b backend) Tunnels() []admin.Tunnel {
	out := []admin.Tunnel{}
	for _, t := range b.v.server.Tunnels() {
		one := admin.Tunnel{
			ID: t.ID, Listener: t.Listener, Client: t.Client, Identity: t.Identity, Host: t.Target.Host, Port: t.Target.Port, SNI: t.SNI, Started: t.Started,
			Idle: float64(t.Idle.Microseconds()) / 1000, BytesIn: t.BytesIn, BytesOut: t.BytesOut, Upstream: t.Upstream, Workspace: t.Workspace,
		}
		if t.Target.Scheme != netrule.SchemeTunnel {
			one.Seen = t.Target.Scheme.String()
		}
		if t.Dialed.IsValid() {
			one.Dialed = t.Dialed.String()
		}
		out = append(out, one)
	}
	return out
}

func (b backend) Rules() admin.Rules {
	s := b.v.rules.Current()
	out := admin.Rules{Rules: []admin.Rule{}, Warnings: s.Warnings}
	for _, l := range ruleLines(s) {
		out.Rules = append(out.Rules, admin.Rule{
			Layer: l.layer, Index: l.ref.Index, File: l.ref.File, Line: l.ref.Line, Action: strings.TrimSuffix(l.action, disabledMark), Enabled: !strings.HasSuffix(l.action, disabledMark),
			Summary: l.summary, Reason: l.ref.Reason,
		})
	}
	return out
}

// call makes a call of what the API was given.
func (b backend) call(c admin.Call) (rules.Call, error) {
	out := rules.Call{Tool: c.Tool, Args: c.Args, Cwd: c.Cwd, Agents: c.Agents, Workspace: b.v.workspace, Host: host()}
	if name, ok := rules.OwnTool(c.Tool); ok {
		out.Tool, out.Alias = name, c.Tool
	}
	if c.Platform != "" {
		if !slices.Contains(rules.Platforms(), c.Platform) {
			return out, &admin.Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "unknown platform", Hint: "one of " + strings.Join(rules.Platforms(), ", ")}
		}
		out.Host.Platform = c.Platform
	}
	if c.Env != nil {
		out.Host.Env = func(name string) (string, bool) { value, ok := c.Env[name]; return value, ok }
	}
	return out, nil
}

func (b backend) judge(in admin.Call) (rules.Call, live.Verdict, error) {
	c, err := b.call(in)
	if err != nil {
		return c, live.Verdict{}, err
	}
	v, err := b.v.settings.judgeRecorded(b.v.rules.Current(), &c, "api", func(err error) { b.v.log.Warn("a tool call was not recorded", "err", err) })
	if err != nil {
		return c, v, &admin.Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "the arguments are no JSON object"}
	}
	return c, v, nil
}

func (b backend) Check(_ context.Context, in admin.Call) (admin.Verdict, error) {
	_, v, err := b.judge(in)
	return verdictOf(&v), err
}

func (b backend) ExplainCall(_ context.Context, in admin.Call) (admin.CallExplanation, error) {
	c, v, err := b.judge(in)
	if err != nil {
		return admin.CallExplanation{}, err
	}
	return traceCall(b.v.rules.Current(), c, &v)
}

func (b backend) Explain(ctx context.Context, q admin.TargetQuery) (admin.Explanation, error) {
	answers := map[string][]netip.Addr{}
	if q.Addrs != nil {
		answers[q.Target.Host] = q.Addrs
	}
	e := b.v.app.explainTarget(ctx, b.v.rules, q.Target, answers, &explainFlags{lookup: q.Lookup, call: checkFlags{agents: q.Agents}})
	return e.json(), nil
}

func (b backend) Reload(context.Context) (admin.Reloaded, error) {
	changed, err := b.v.reload()
	if err != nil {
		return admin.Reloaded{}, &admin.Error{Status: http.StatusConflict, Code: "reload_failed", Message: err.Error()}
	}
	s := b.v.rules.Current()
	return admin.Reloaded{Changed: changed, Rules: len(s.Chain) + len(s.Managed), Policy: s.Hash, Warnings: s.Warnings}, nil
}

func (b backend) Allow(ctx context.Context, t netrule.Target, private bool) (admin.Allowed, error) {
	v := b.v
	if !v.settings.allowHostAction {
		return admin.Allowed{}, &admin.Error{Status: http.StatusForbidden, Code: "forbidden", Message: "network.allowHostAction is off"}
	}
	req := live.AllowRequest{Target: t}
	if private {
		addrs, err := v.app.privateAddrs(ctx, t, nil)
		if err != nil {
			return admin.Allowed{}, &admin.Error{Status: http.StatusConflict, Code: "no_addresses", Message: err.Error()}
		}
		req.Addrs = addrs
	}
	result, err := v.rules.Allow(req)
	if err != nil {
		return admin.Allowed{}, &admin.Error{Status: http.StatusConflict, Code: "not_written", Message: err.Error()}
	}
	out := admin.Allowed{
		Written: result.Written, File: result.File, Diff: result.Diff, Target: t.Authority(), Action: result.Verdict.Action.String(), Code: result.Verdict.Code.String(),
		Rule: refOf(result.Verdict.Rule),
	}
	for _, o := range result.Overrides {
		out.Overrides = append(out.Overrides, *refOf(o))
	}
	if result.Verdict.Action != netrule.Allow {
		out.Hint = allowHint(&result.Verdict)
	}
	if result.Written {
		v.reloaded(true, nil)
	}
	return out, nil
}

func (b backend) Stop(context.Context) error {
	path, err := stopFile()
	if err == nil {
		err = replaceFile(path, []byte("dshproxy stop\n"), 0o600)
	}
	b.v.server.Stop() // even where it cannot be made to last
	b.v.log.Warn("stopped by the admin API")
	return err
}

func (b backend) Resume(context.Context) error {
	path, err := stopFile()
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	b.v.server.Resume()
	b.v.log.Info("resumed by the admin API")
	return nil
}

// adminClient connects to the API of a running proxy.
func (a *app) adminClient() (*admin.Client, error) {
	if err := a.settings.load(a.config, a.flags); err != nil {
		return nil, err
	}
	address, _, err := a.settings.adminAddress()
	if err != nil {
		return nil, err
	}
	if address == "off" {
		return nil, usageError("", "admin.listen is off")
	}
	token, err := adminToken()
	if err != nil {
		return nil, err
	}
	return admin.Dial(address, token), nil
}

// unreachable says what a failure to reach the API means.
func unreachable(err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return &exitError{exitFailure, fmt.Errorf("no proxy is running: %w", err), "start it with dshproxy serve, with the same settings and as the same user"}
	}
	return err
}
