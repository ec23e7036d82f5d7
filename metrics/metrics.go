// Package metrics counts what the proxy does, on a registry that it is given. Labels come from closed sets only: never a
// host, a path, a client or a rule. Every series exists at zero.
package metrics

import (
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"

	"github.com/prometheus/client_golang/prometheus"
)

// Build describes the binary.
type Build struct{ Version, Revision, GoVersion string }

// Limits are the numbers that dashboards hold usage against.
type Limits struct{ Connections, PerClient int }

// State is asked at every scrape.
type State struct {
	ActiveConnections func() int
	LogFolded         func() int64
	LogDropped        func() int64
}

// Metrics are the collectors. It satisfies proxy.Observer.
type Metrics struct {
	connections  *prometheus.CounterVec
	decisions    *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	decisionTime prometheus.Histogram
	lookups      *prometheus.CounterVec
	lookupTime   prometheus.Histogram
	dialTime     *prometheus.HistogramVec
	tunnelBytes  *prometheus.CounterVec
	tunnelTime   prometheus.Histogram
	guardRemoved *prometheus.CounterVec
	delegated    prometheus.Counter
	approvals    prometheus.Gauge
	rules        prometheus.Gauge
	rulesPending prometheus.Gauge
	reloadOK     prometheus.Gauge
	reloadTime   prometheus.Gauge
	enforce      prometheus.Gauge
	policy       *prometheus.GaugeVec
	hot          hot
}

// hot are the children that every connection touches, looked up once.
type hot struct {
	connections map[string]prometheus.Counter
	decisions   map[decisionKey]prometheus.Counter
	dials       map[dialKey]prometheus.Observer
	in, out     prometheus.Counter
}

type decisionKey struct {
	verdict netrule.Action
	code    netrule.Code
	dryRun  bool
}

type dialKey struct {
	v6 bool
	ok bool
}

var (
	fastBuckets   = []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2}
	netBuckets    = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	tunnelBuckets = []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600}
)

// New registers all collectors. listeners are the names of the proxy's listeners.
func New(reg prometheus.Registerer, listeners []string, build Build, limits Limits, state State) *Metrics {
	m := &Metrics{
		connections:  counters("connections_total", "Accepted client connections.", "listener"),
		decisions:    counters("decisions_total", "Requests and tunnels that were judged, by verdict and code.", "verdict", "code", "dry_run"),
		refusals:     counters("refusals_total", "Requests refused before a verdict: malformed, over a limit, unauthenticated.", "code"),
		decisionTime: histogram("decision_duration_seconds", "Time the policy took to judge, without lookups.", fastBuckets),
		lookups:      counters("dns_lookups_total", "Name lookups that went out, by outcome.", "outcome"),
		lookupTime:   histogram("dns_duration_seconds", "Time of a name lookup that went out.", netBuckets),
		dialTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "dshproxy", Name: "dial_duration_seconds",
			Help: "Time to connect to a destination, by address family and outcome.", Buckets: netBuckets,
		}, []string{"family", "outcome"}),
		tunnelBytes:  counters("tunnel_bytes_total", "Bytes of ended tunnels and streams, by direction as the client sees it.", "direction"),
		tunnelTime:   histogram("tunnel_duration_seconds", "Life of ended tunnels and streams.", tunnelBuckets),
		guardRemoved: counters("guard_removed_total", "Resolved addresses that no rule opened, by class.", "class"),
		delegated:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "dshproxy", Name: "delegated_total", Help: "Connections whose name an upstream proxy resolved."}),
		approvals:    gauge("approvals_pending", "Connections that wait for an approval."),
		rules:        gauge("rules_loaded", "Rules in force."),
		rulesPending: gauge("rules_pending", "Rule files whose change waits to be accepted."),
		reloadOK:     gauge("rules_last_reload_success", "Whether the last reload was good."),
		reloadTime:   gauge("rules_last_reload_timestamp_seconds", "Unix time of the last good load."),
		enforce:      gauge("enforce", "Whether refusals of the policy are enforced (0 is dry run)."),
		policy:       gauges("policy_info", "The policy in force, by hash.", "hash"),
	}
	buildInfo := gauges("build_info", "The binary.", "version", "revision", "goversion")
	limit := gauges("limit_connections", "Connections that may be open.", "scope")
	reg.MustRegister(m.connections, m.decisions, m.refusals, m.decisionTime, m.lookups, m.lookupTime, m.dialTime, m.tunnelBytes,
		m.tunnelTime, m.guardRemoved, m.delegated, m.approvals, m.rules, m.rulesPending, m.reloadOK, m.reloadTime, m.enforce, m.policy,
		buildInfo, limit,
		gaugeFunc("connections_active", "Client connections that are open.", func() float64 { return float64(state.ActiveConnections()) }),
		counterFunc("log_folded_total", "Decision records that became part of another line.", func() float64 { return float64(state.LogFolded()) }),
		counterFunc("log_dropped_total", "Decision lines lost to a slow or failing sink.", func() float64 { return float64(state.LogDropped()) }))
	buildInfo.WithLabelValues(build.Version, build.Revision, build.GoVersion).Set(1)
	limit.WithLabelValues("total").Set(float64(limits.Connections))
	limit.WithLabelValues("client").Set(float64(limits.PerClient))
	m.warm(listeners)
	return m
}

// warm makes every series, so that rates start from zero.
func (m *Metrics) warm(listeners []string) {
	m.hot = hot{
		connections: map[string]prometheus.Counter{}, decisions: map[decisionKey]prometheus.Counter{}, dials: map[dialKey]prometheus.Observer{},
		in: m.tunnelBytes.WithLabelValues("in"), out: m.tunnelBytes.WithLabelValues("out"),
	}
	for _, l := range listeners {
		m.hot.connections[l] = m.connections.WithLabelValues(l)
	}
	for _, c := range netrule.Codes() {
		for _, v := range []netrule.Action{netrule.Allow, netrule.Ask, netrule.Deny} {
			for _, dry := range []bool{false, true} {
				m.hot.decisions[decisionKey{v, c, dry}] = m.decisions.WithLabelValues(v.String(), c.String(), boolLabel(dry))
			}
		}
		m.refusals.WithLabelValues(c.String())
	}
	for _, c := range netrule.Classes() {
		m.guardRemoved.WithLabelValues(c.String())
	}
	for _, o := range []string{"ok", "error", "timeout"} {
		m.lookups.WithLabelValues(o)
	}
	for _, v6 := range []bool{false, true} {
		for _, ok := range []bool{false, true} {
			m.hot.dials[dialKey{v6, ok}] = m.dialTime.WithLabelValues(familyLabel(v6), outcomeLabel(ok))
		}
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "dshproxy", Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "dshproxy", Name: name, Help: help})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "dshproxy", Name: name, Help: help}, labels)
}

func gaugeFunc(name, help string, f func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "dshproxy", Name: name, Help: help}, f)
}

func counterFunc(name, help string, f func() float64) prometheus.CounterFunc {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "dshproxy", Name: name, Help: help}, f)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "dshproxy", Name: name, Help: help, Buckets: buckets})
}

func boolLabel(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func familyLabel(v6 bool) string {
	if v6 {
		return "ipv6"
	}
	return "ipv4"
}

func outcomeLabel(ok bool) string {
	if ok {
		return "ok"
	}
	return "error"
}

// Connected counts an accepted connection.
func (m *Metrics) Connected(listener string) {
	if c := m.hot.connections[listener]; c != nil {
		c.Inc()
	}
}

// Decided counts a request.
func (m *Metrics) Decided(d *decisionlog.Decision) {
	if !d.Judged {
		m.refusals.WithLabelValues(d.Code.String()).Inc()
		return
	}
	m.hot.decisions[decisionKey{d.Decision.Action, d.Code, d.Decision.DryRun}].Inc()
	m.decisionTime.Observe(d.Decide.Seconds())
	if d.Delegated {
		m.delegated.Inc()
	}
	for i := range d.Decision.Addrs {
		if a := &d.Decision.Addrs[i]; a.Why == "guard" {
			m.guardRemoved.WithLabelValues(a.Class.String()).Inc()
		}
	}
	if d.DialTried {
		v6 := false
		for i := range d.Decision.Addrs {
			if a := &d.Decision.Addrs[i]; a.Kept && (!d.Dialed.IsValid() || a.Addr == d.Dialed.Addr()) {
				v6 = a.Addr.Is6()
				break
			}
		}
		m.hot.dials[dialKey{v6, d.Dialed.IsValid()}].Observe(d.Dial.Seconds())
	}
}

// Closed counts the bytes and the life of what ended.
func (m *Metrics) Closed(c *decisionlog.Close) {
	m.hot.in.Add(float64(c.BytesIn))
	m.hot.out.Add(float64(c.BytesOut))
	m.tunnelTime.Observe(c.Duration.Seconds())
}

// LookedUp counts a lookup that went out.
func (m *Metrics) LookedUp(took time.Duration, failed, timeout bool) {
	outcome := "ok"
	if timeout {
		outcome = "timeout"
	} else if failed {
		outcome = "error"
	}
	m.lookups.WithLabelValues(outcome).Inc()
	m.lookupTime.Observe(took.Seconds())
}

// PolicyLoaded notes the policy in force.
func (m *Metrics) PolicyLoaded(hash string, rules, pending int, enforce bool, at time.Time) {
	m.policy.Reset()
	m.policy.WithLabelValues(hash).Set(1)
	m.rules.Set(float64(rules))
	m.rulesPending.Set(float64(pending))
	m.enforce.Set(0)
	if enforce {
		m.enforce.Set(1)
	}
	m.reloadOK.Set(1)
	m.reloadTime.Set(float64(at.Unix()))
}

// ReloadFailed notes a reload that kept the old policy.
func (m *Metrics) ReloadFailed() { m.reloadOK.Set(0) }

// ReloadUnchanged notes a reload that found nothing new, and so nothing wrong.
func (m *Metrics) ReloadUnchanged() { m.reloadOK.Set(1) }
