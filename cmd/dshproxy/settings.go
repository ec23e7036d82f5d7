package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"dshproxy/netrule"
	"dshproxy/resolve"
	"dshproxy/rules/live"
	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// settings are everything that can be set, with defaults.
type settings struct {
	rulesFile, fallbackPath        string
	searchUp, watch, enforce       bool
	managedRules                   []string
	dialects                       []string
	workspaceRules                 string
	maxCachedWorkspaces            int
	badFilePolicy, patternMode     string
	maxRules, maxGlobStars         int
	maxRuleBytes                   int64
	caseInsensitivePaths           bool
	watchStability                 int
	selfProtect, explain, audit    string
	builtin                        bool
	builtinPath                    string
	mode, sandbox, autoFallback    string
	unlisted, loopback, guard      string
	defaultPorts                   []netrule.PortRange
	privateAllowed, internal       []netip.Prefix
	nat64                          []netip.Prefix
	proxyBind                      string
	proxyPort                      int
	allowHostAction                bool
	listen                         []listenAddr
	metricsListen                  string
	dnsServers                     []string
	dnsSearch                      []string
	dnsTimeout                     time.Duration
	connections, perClient         int
	headBytes                      int64
	headFields                     int
	headTimeout, keepAliveIdle     time.Duration
	answer, idle, halfClose        time.Duration
	lifetime, responseHead         time.Duration
	tunnelBytes                    int64
	lookups                        int
	allowAnonymous                 bool
	identity                       identitySettings
	logFormat, logLevel, decisions string
	logMaxSize                     int64
	denyMessage                    string
	upstream                       upstreamSettings
	sni                            string
	proxyMaxRecent, dials          int
	adminListen                    string
	adminHosts                     []string
	inspectDomains                 []string
	inspectCA, inspectKey          string
	drainDelay, drainTimeout       time.Duration

	origins map[string]string
	file    string // that was read; empty for none
}

// setting is one key: its path in the file, and where its value goes.
type setting struct {
	path  string
	value value
	doc   string
}

// table lists every key, in the order in which they are shown.
func (s *settings) table() []setting {
	return []setting{
		{"rulesFile", (*stringValue)(&s.rulesFile), "rule file, relative to the workspace or absolute"},
		{"searchUp", (*boolValue)(&s.searchUp), "merge the rule files of parent folders behind the workspace's"},
		{"fallbackPath", (*stringValue)(&s.fallbackPath), "rule file used when the workspace has none"},
		{"managedRules", (*listValue)(&s.managedRules), "rule files that no workspace can open"},
		{"dialects", enums(&s.dialects, live.Dialects()...), "rule languages that are read; their verdicts are combined, deny before ask before allow"},
		{"workspaceRules", enum(&s.workspaceRules, "full", "narrow"), "narrow: changes of workspace files narrow at once and widen only once accepted"},
		{"maxCachedWorkspaces", (*countValue)(&s.maxCachedWorkspaces), "workspaces whose rules are kept loaded"},
		{"badFilePolicy", enum(&s.badFilePolicy, "fail", "ignore-with-warning"), "what a bad workspace file does at start"},
		{"maxRules", (*countValue)(&s.maxRules), "rules in a chain"},
		{"maxRuleBytes", (*sizeValue)(&s.maxRuleBytes), "size of a rule file"},
		{"maxGlobStars", (*countValue)(&s.maxGlobStars), "stars in a glob"},
		{"patternMode", enum(&s.patternMode, "glob", "regex"), "how params, paths and argv patterns are read"},
		{"caseInsensitivePaths", (*boolValue)(&s.caseInsensitivePaths), "fold the case of paths patterns"},
		{"watch", (*boolValue)(&s.watch), "reload changed rule files"},
		{"watchStabilityThresholdMs", (*intValue)(&s.watchStability), "milliseconds between two equal reads"},
		{"enforce", (*boolValue)(&s.enforce), "false is dry run: refusals of the policy are only recorded"},
		{"audit", enum(&s.audit, "all", "hits"), "tool calls that check, hook and the API record in log.decisions, where that is a file: all, or only those that a rule decided"},
		{"builtin.enabled", (*boolValue)(&s.builtin), "judge tool calls by the built-in rules too, behind the workspace's"},
		{"builtin.path", (*stringValue)(&s.builtinPath), "rule file in the place of the built-in rules"},
		{"selfProtect", enum(&s.selfProtect, "on", "off"), "deny tool calls that would change rules or client settings"},
		{"explain", enum(&s.explain, "auto", "full", "code"), "how much denials tell; auto is full on loopback and unix listeners"},
		{"network.mode", enum(&s.mode, "deny-all", "whitelist", "allow-all", "auto"), "what happens to targets that no rule decides"},
		{"network.sandbox", (*stringValue)(&s.sandbox), "preset of the sandbox, for mode auto"},
		{"network.autoFallback", enum(&s.autoFallback, "deny-all", "whitelist", "allow-all"), "mode auto without a known preset"},
		{"network.unlisted", enum(&s.unlisted, "deny", "ask"), "verdict of whitelist mode"},
		{"network.loopback", enum(&s.loopback, "policy", "allow"), "allow: a last allow rule for localhost"},
		{"network.defaultPorts", (*portsValue)(&s.defaultPorts), "ports of allow rules that name none: any, or a list"},
		{"network.guard", enum(&s.guard, "filter", "refuse"), "answers that mix public and special-use addresses"},
		{"network.privateAllowed", (*prefixesValue)(&s.privateAllowed), "networks exempt from the guard"},
		{"network.internal", (*prefixesValue)(&s.internal), "public-looking networks that are private here"},
		{"network.nat64Prefixes", (*prefixesValue)(&s.nat64), "translation prefixes beside the well-known one"},
		{"network.proxyBind", (*stringValue)(&s.proxyBind), "address of the proxy when listen is absent"},
		{"network.proxyPort", (*intValue)(&s.proxyPort), "port of the proxy when listen is absent"},
		{"network.upstreamProxy", &parentValue{&s.upstream.proxy, true}, "parent proxy: " + upstreamHint},
		{"network.upstreamRoutes", &routesValue{field: &s.upstream.routes}, "parents of their own for some domains, before upstreamProxy; the first that matches decides"},
		{"network.upstreamBypass", (*listValue)(&s.upstream.bypass), "what is dialled directly: hosts, *.hosts, addresses and networks, each with or without a port"},
		{"network.upstreamResolve", enum(&s.upstream.resolve, "upstream", "local"), "who looks names up; local: parents get adjudicated addresses only"},
		{"network.upstreamOnly", (*boolValue)(&s.upstream.only), "refuse what cannot be chained, instead of dialling it directly"},
		{"network.upstreamCredentialsFile", (*stringValue)(&s.upstream.credentialsFile), "file with user:password for the parents"},
		{"network.upstreamCAFile", (*stringValue)(&s.upstream.caFile), "PEM file of the authorities that https parents are verified by"},
		{"network.sni", enum(&s.sni, "enforce", "observe", "off"), "a name in a TLS hello other than the one asked for: refused unless allowed, recorded, or not looked at"},
		{"network.proxyMaxRecent", (*countValue)(&s.proxyMaxRecent), "newest refusals that the admin API keeps"},
		{"network.allowHostAction", (*boolValue)(&s.allowHostAction), "let dshproxy allow edit rule files"},
		{"listen", (*listenValue)(&s.listen), "addresses of the proxy: host:port or unix:PATH"},
		{"metrics.listen", (*stringValue)(&s.metricsListen), "address of metrics and health; off for none"},
		{"admin.listen", (*stringValue)(&s.adminListen), "address of the admin API: auto is a socket in the runtime folder, host:port, unix:PATH or off"},
		{"admin.hosts", (*listValue)(&s.adminHosts), "names by which the admin API may be asked, beside its address"},
		{"inspect.domains", &fileListValue{field: &s.inspectDomains}, "hosts whose TLS is terminated here: x and below, *.x below only, =x exact"},
		{"inspect.caFile", &filePathValue{field: &s.inspectCA}, "certificate that dshproxy ca init has made"},
		{"inspect.keyFile", &filePathValue{field: &s.inspectKey}, "key of that certificate, for nobody else to read"},
		{"dns.servers", (*listValue)(&s.dnsServers), "system, or IP[:port], tcp://IP, tls://IP"},
		{"dns.search", (*listValue)(&s.dnsSearch), "suffixes for names without a dot"},
		{"dns.timeout", (*durationValue)(&s.dnsTimeout), "of one try"},
		{"limits.connections", (*intValue)(&s.connections), "client connections in all; 0 derives it from the descriptor limit"},
		{"limits.perClient", (*intValue)(&s.perClient), "of one client; 0 is half of all"},
		{"limits.headBytes", (*sizeValue)(&s.headBytes), "size of a message head"},
		{"limits.headFields", (*countValue)(&s.headFields), "fields of a message head"},
		{"limits.headTimeout", (*durationValue)(&s.headTimeout), "to receive a request head"},
		{"limits.keepAliveIdle", (*durationValue)(&s.keepAliveIdle), "between requests"},
		{"limits.answer", (*durationValue)(&s.answer), "for lookup and dial together"},
		{"limits.idle", (*durationValue)(&s.idle), "of a tunnel or stream"},
		{"limits.halfClose", (*durationValue)(&s.halfClose), "idle after one side has ended"},
		{"limits.lifetime", (*durationValue)(&s.lifetime), "of a tunnel; 0 is none"},
		{"limits.tunnelBytes", (*sizeValue)(&s.tunnelBytes), "of a tunnel, both ways together; 0 is none"},
		{"limits.lookups", (*countValue)(&s.lookups), "name lookups in flight"},
		{"limits.dials", (*countValue)(&s.dials), "dials in flight of one client"},
		{"limits.responseHead", (*durationValue)(&s.responseHead), "wait for a response head; 0 is none"},
		{"identity.allowAnonymous", (*boolValue)(&s.allowAnonymous), "serve anybody on listeners beyond loopback"},
		{"identity.tokens", s.identity.tokensValue(), "clients by a secret: name, token or tokenFile, agents, workspace, expires, listener"},
		{"identity.peers", s.identity.peersValue(), "clients of unix sockets by their user: uid, name, agents, workspace"},
		{"identity.certificates", s.identity.certificatesValue(), "clients by their certificate: san or cn, name, agents, workspace"},
		{"identity.sources", s.identity.sourcesValue(), "clients by their network, the first that fits: prefix, name, agents, workspace"},
		{"identity.listeners", s.identity.listenersValue(), "clients by the listener they came to: listener, name, agents, workspace"},
		{"log.format", enum(&s.logFormat, "text", "json"), "of the operator's log"},
		{"log.level", enum(&s.logLevel, "debug", "info", "warn", "error"), "of the operator's log"},
		{"log.decisions", (*stringValue)(&s.decisions), "decision log: a file, - for stdout, or off"},
		{"log.maxSize", (*sizeValue)(&s.logMaxSize), "the decision log is renamed to .1 at this size"},
		{"deny.message", (*stringValue)(&s.denyMessage), "a line of yours in every denial"},
		{"drain.delay", (*durationValue)(&s.drainDelay), "between not ready and closed listeners"},
		{"drain.timeout", (*durationValue)(&s.drainTimeout), "that tunnels get to end"},
	}
}

// later are keys of the format that this version does not have. They are refused by name: a setting that is silently
// ignored would fail open.
var later = []string{
	"network.noProxy", "admin.page", "dns.cache", "dns.stale", "ask.", "log.onDrop",
}

func (s *settings) setDefaults() {
	*s = settings{
		rulesFile: live.DefaultRulesFile, dialects: []string{string(live.DSH)}, workspaceRules: "full", maxCachedWorkspaces: live.DefaultMaxWorkspaces, badFilePolicy: "fail", patternMode: "glob", maxRules: 256, maxGlobStars: 2, maxRuleBytes: 16 << 20,
		caseInsensitivePaths: runtime.GOOS == "windows", watch: true, watchStability: 200, enforce: true, builtin: true, selfProtect: "on", explain: "auto", audit: "all",
		mode: "whitelist", autoFallback: "deny-all", unlisted: "deny", loopback: "policy", guard: "filter",
		defaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}, proxyBind: "127.0.0.1", proxyPort: 3128, allowHostAction: true,
		metricsListen: "127.0.0.1:9128", dnsServers: []string{"system"}, dnsTimeout: 2 * time.Second,
		headBytes: 64 << 10, headFields: 200, headTimeout: 10 * time.Second, keepAliveIdle: 90 * time.Second, answer: 4500 * time.Millisecond,
		idle: time.Hour, halfClose: 10 * time.Minute, lookups: 512, logFormat: "text", logLevel: "info", decisions: "off", logMaxSize: 1 << 30,
		upstream: upstreamSettings{proxy: "off", resolve: "upstream"}, sni: "enforce", proxyMaxRecent: 100, dials: 256, adminListen: "auto",
		drainTimeout: 20 * time.Second, origins: map[string]string{},
	}
	for _, k := range s.table() {
		s.origins[k.path] = "default"
	}
}

// envName gives the variable of a key: DSHPROXY_ and the path in upper snake case.
func envName(path string) string {
	var b strings.Builder
	b.WriteString("DSHPROXY_")
	for i, r := range path {
		switch {
		case r == '.':
			b.WriteByte('_')
			continue
		case 'A' <= r && r <= 'Z' && i > 0:
			b.WriteByte('_')
		}
		b.WriteString(strings.ToUpper(string(r)))
	}
	return b.String()
}

// load fills the settings: flag over environment over file over default.
func (s *settings) load(configFlag string, flags map[string]string) error {
	s.setDefaults()
	if err := s.loadFile(configFlag); err != nil {
		return err
	}
	if err := s.unknownVariables(os.Environ()); err != nil {
		return err
	}
	for _, k := range s.table() {
		name := envName(k.path)
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		if err := k.value.set(text); err != nil {
			return &exitError{exitUsage, fmt.Errorf("%s: %w", name, err), k.doc}
		}
		s.origins[k.path] = name
	}
	for _, k := range s.table() {
		text, ok := flags[k.path]
		if !ok {
			continue
		}
		if err := k.value.set(text); err != nil {
			return &exitError{exitUsage, fmt.Errorf("flag for %s: %w", k.path, err), k.doc}
		}
		s.origins[k.path] = "flag"
	}
	return s.validate()
}

// unknownVariables refuses variables that look like a misspelt setting: one that silently does nothing fails open. Others
// are somebody else's; Kubernetes makes some for a service of our name.
func (s *settings) unknownVariables(environ []string) error {
	known := []string{"DSHPROXY_CONFIG", "DSHPROXY_INSIDE"}
	for _, k := range s.table() {
		known = append(known, envName(k.path))
	}
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "DSHPROXY_") || text == "" || slices.Contains(known, name) {
			continue
		}
		if near := nearVariable(name, known); near != "" {
			return usageError("did you mean "+near+"?", "unknown variable %s", name)
		}
	}
	return nil
}

// nearVariable gives the variable of a setting that a name is a misspelling of: an underscore too few or too many, or a
// slip of the fingers.
func nearVariable(name string, known []string) string {
	squeeze := func(s string) string { return strings.ReplaceAll(s, "_", "") }
	for _, k := range known {
		if squeeze(k) == squeeze(name) {
			return k
		}
	}
	return tree.Nearest(name, known)
}

// configPath finds the settings file; empty when there is none. It is never looked for in a workspace.
func configPath(flag string) (string, error) {
	if flag == "" {
		flag = os.Getenv("DSHPROXY_CONFIG")
	}
	if flag != "" {
		return absolute(flag)
	}
	var places []string
	if dir, err := os.UserConfigDir(); err == nil {
		places = append(places, filepath.Join(dir, "dshproxy", "proxy.yaml"))
	}
	places = append(places, "/etc/dshproxy/proxy.yaml")
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", nil
}

const maxSettingsBytes = 1 << 20

func (s *settings) loadFile(flag string) error {
	path, err := configPath(flag)
	if err != nil || path == "" {
		return err
	}
	if err := live.CheckOwner(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("settings: %w", err)
	} else if err != nil {
		return &exitError{exitFailure, fmt.Errorf("settings: %w", err), "whoever can change the settings can open the proxy"}
	}
	s.file = path
	if abs, err := filepath.Abs(path); err == nil {
		s.file = abs
	}
	text, err := live.ReadNamed(path, maxSettingsBytes)
	if err != nil {
		return err
	}
	root, err := tree.Parse(path, text, 100_000)
	if err != nil || root == nil {
		return err
	}
	if err := s.decode(path, root, ""); err != nil {
		return err
	}
	return s.identity.checkSecrecy(path)
}

// decode visits a mapping of the settings file. prefix is the path so far.
func (s *settings) decode(file string, n *yaml.Node, prefix string) error {
	m := tree.Deref(n)
	if m.Kind != yaml.MappingNode {
		if tree.Resolve(m).Kind == tree.Null && prefix == "" {
			return nil
		}
		return &tree.Error{File: file, Line: n.Line, Col: n.Column, What: "the settings must be a mapping"}
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, child := m.Content[i], m.Content[i+1]
		name := tree.KeyText(tree.Deref(key))
		path := prefix + name
		if strings.Contains(name, ".") {
			return &tree.Error{File: file, Line: key.Line, Col: key.Column, What: fmt.Sprintf("unknown key %q", path), Hint: "write the parts of a key below one another"}
		}
		if err := s.decodeKey(file, path, key, child); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) decodeKey(file, path string, key, child *yaml.Node) error {
	var names []string
	for _, k := range s.table() {
		names = append(names, k.path)
		if k.path == path {
			if err := (decoder{file}).setting(k, path, child); err != nil {
				return err
			}
			s.origins[path] = fmt.Sprintf("%s:%d", file, key.Line)
			return nil
		}
	}
	for _, k := range names {
		if strings.HasPrefix(k, path+".") {
			return s.decode(file, child, path+".")
		}
	}
	near := tree.Nearest(path, names)
	for _, l := range later {
		if near == "" && strings.HasPrefix(path, l) || path+"." == l {
			return &tree.Error{File: file, Line: key.Line, Col: key.Column, What: fmt.Sprintf("%s is not supported by this version", path), Hint: "remove the key; it would do nothing"}
		}
	}
	return &tree.Error{File: file, Line: key.Line, Col: key.Column, What: fmt.Sprintf("unknown key %q", path), Hint: tree.DidYouMean(path, names)}
}

// decodeValue sets a value from a node: a scalar as text, a list as its items.
func decodeValue(v value, n *yaml.Node) error {
	r := tree.Resolve(n)
	switch r.Kind {
	case tree.List:
		list, ok := v.(lister)
		if !ok {
			return errors.New("a list where one value is wanted")
		}
		var items []string
		for _, c := range r.Node.Content {
			item := tree.Resolve(c)
			if item.Kind != tree.String && (isText(v) || item.Kind != tree.Number) || item.Text == "" {
				return errors.New("a list item that is no text")
			}
			items = append(items, item.Text)
		}
		return list.setList(items)
	case tree.Map, tree.Null:
		return fmt.Errorf("%s where a value is wanted", r.Kind)
	case tree.Bool:
		if _, ok := v.(*boolValue); !ok {
			return errors.New("a boolean where a value is wanted; quote it if it is text")
		}
		return v.set(r.Text)
	default:
		return setScalar(v, r)
	}
}

// setScalar refuses what is of another type: a number where text is wanted has lost its spelling already (1.10 is 1.1).
func setScalar(v value, r tree.Value) error {
	number := r.Kind == tree.Number
	switch v.(type) {
	case *boolValue:
		if !number {
			return errors.New("want true or false, unquoted")
		}
	case *intValue, *countValue:
		if !number {
			return errors.New("want a number, unquoted")
		}
	}
	if number && isText(v) {
		return errors.New("a number where text is wanted; quote it")
	}
	return v.set(r.Text)
}

// isText reports whether a value, or each item of it, is free text.
func isText(v value) bool {
	switch v.(type) {
	case *stringValue, *listValue, *namesValue, *nameValue, *addressValue, *pathValue, *timeValue:
		return true
	}
	return false
}

// where says where a value comes from, for errors about it.
func (s *settings) where(key string) string {
	if o := s.origins[key]; o != "default" {
		return o + ": "
	}
	return ""
}

// validate checks what one key alone does not show.
func (s *settings) validate() error {
	fail := func(hint, format string, args ...any) error {
		return &exitError{exitFailure, fmt.Errorf(format, args...), hint}
	}
	for _, p := range s.nat64 {
		if !netrule.ValidNAT64(p) {
			return fail("RFC 6052 has /32, /40, /48, /56, /64 and /96", "%snetwork.nat64Prefixes: %s has no length of a translation prefix", s.where("network.nat64Prefixes"), p)
		}
	}
	if s.proxyPort < 0 || s.proxyPort > 65535 {
		return fail("", "%snetwork.proxyPort: %d is no port", s.where("network.proxyPort"), s.proxyPort)
	}
	for _, d := range s.dnsServers {
		if d == "system" {
			if len(s.dnsServers) > 1 {
				return fail("", "%sdns.servers: system stands alone", s.where("dns.servers"))
			}
			continue
		}
		if _, err := resolve.ParseServer(d); err != nil {
			return fail("", "%sdns.servers: %w", s.where("dns.servers"), err)
		}
	}
	if s.searchUp && filepath.IsAbs(s.rulesFile) {
		return fail("", "searchUp needs a relative rulesFile")
	}
	if s.connections < 0 || s.perClient < 0 {
		return fail("", "limits.connections and limits.perClient cannot be negative")
	}
	if err := s.validateListeners(); err != nil {
		return err
	}
	return s.validateIdentity()
}

// listeners gives the addresses of the proxy.
func (s *settings) listeners() []listenAddr {
	if len(s.listen) > 0 {
		return s.listen
	}
	return []listenAddr{{name: "proxy", address: hostPort(s.proxyBind, s.proxyPort), mode: 0o600}}
}

// isLocal reports whether only this machine reaches an address.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := splitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// policyOptions gives the parts of the policy that are settings.
func (s *settings) policyOptions() netrule.Options {
	fallback, _ := netrule.ParseMode(s.autoFallback)
	mode, ok := netrule.ParseMode(s.mode)
	if !ok { // auto
		mode = netrule.SandboxMode(s.sandbox, fallback)
	}
	unlisted, _ := netrule.ParseAction(s.unlisted)
	guard := netrule.GuardFilter
	if s.guard == "refuse" {
		guard = netrule.GuardRefuse
	}
	return netrule.Options{
		Mode: mode, Unlisted: unlisted, DryRun: !s.enforce, Loopback: s.loopback == "allow", DefaultPorts: s.defaultPorts, Guard: guard,
		Space: netrule.Space{Internal: s.internal, NAT64: s.nat64}, PrivateAllowed: s.privateAllowed,
	}
}
