package metrics

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newMetrics(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	zero := func() int64 { return 0 }
	m := New(reg, []string{"proxy"}, Build{"v", "r", "go"}, Limits{10, 5}, State{func() int { return 3 }, zero, zero})
	return m, reg
}

// TestLint: names and types follow the conventions.
func TestLint(t *testing.T) {
	_, reg := newMetrics(t)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// closedLabels are the only labels there are.
var closedLabels = map[string]bool{
	"listener": true, "protocol": true, "verdict": true, "code": true, "class": true, "family": true, "outcome": true,
	"direction": true, "dry_run": true, "hash": true, "version": true, "revision": true, "goversion": true, "scope": true,
}

// TestSeries: all exist at zero, and nothing that a client sends becomes a label (LOG-11, LOG-12).
func TestSeries(t *testing.T) {
	m, reg := newMetrics(t)
	before := seriesOf(t, reg)
	for _, name := range []string{
		"connections_total", "connections_active", "decisions_total", "refusals_total", "decision_duration_seconds", "dns_lookups_total",
		"dns_duration_seconds", "dial_duration_seconds", "tunnel_bytes_total", "tunnel_duration_seconds", "guard_removed_total", "delegated_total", "approvals_pending",
		"rules_loaded", "rules_pending", "rules_last_reload_success", "rules_last_reload_timestamp_seconds", "enforce", "log_folded_total", "log_dropped_total", "build_info",
	} {
		if !strings.Contains(before, "dshproxy_"+name) {
			t.Errorf("dshproxy_%s is not there at zero", name)
		}
	}
	for i := range 100 {
		d := decisionlog.Decision{
			Target: netrule.Target{Host: fmt.Sprintf("h%d.test", i), Port: uint16(i + 1)}, RawTarget: fmt.Sprint("raw", i), Client: fmt.Sprint("c", i), Judged: i%2 == 0,
			Code: netrule.Codes()[i%len(netrule.Codes())], Decision: netrule.Decision{
				Action: netrule.Action(i % 3), DryRun: i%5 == 0,
				Addrs: []netrule.AddrVerdict{{Addr: netip.IPv6Loopback(), Class: netrule.ClassLoopback, Why: "guard"}},
			},
			DialTried: true, Outcome: "refused",
		}
		m.Decided(&d)
		m.Connected("proxy")
		m.Closed(&decisionlog.Close{BytesIn: 5, BytesOut: 7, Duration: time.Second})
		m.LookedUp(time.Millisecond, i%2 == 0, i%4 == 0)
	}
	if after := seriesOf(t, reg); after != before {
		t.Errorf("traffic made series:\n%s\nwere\n%s", after, before)
	}
}

// seriesOf lists every series by name and labels, without values.
func seriesOf(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				if !closedLabels[l.GetName()] {
					t.Errorf("%s has label %s", f.GetName(), l.GetName())
				}
				fmt.Fprintf(&out, " %s=%s", l.GetName(), l.GetValue())
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

func TestCounts(t *testing.T) {
	m, _ := newMetrics(t)
	m.Decided(&decisionlog.Decision{Judged: true, Code: netrule.CodeNotAllowed, Decision: netrule.Decision{Action: netrule.Deny}})
	m.Decided(&decisionlog.Decision{Code: netrule.CodeBadTarget})
	if got := testutil.ToFloat64(m.decisions.WithLabelValues("deny", "not_allowed", "false")); got != 1 {
		t.Errorf("decisions_total %v", got)
	}
	if got := testutil.ToFloat64(m.refusals.WithLabelValues("bad_target")); got != 1 {
		t.Errorf("refusals_total %v", got)
	}
	m.PolicyLoaded("one", 3, 1, true, time.Unix(5, 0))
	m.PolicyLoaded("two", 4, 0, false, time.Unix(6, 0))
	if n := testutil.CollectAndCount(m.policy); n != 1 || testutil.ToFloat64(m.policy.WithLabelValues("two")) != 1 {
		t.Errorf("%d policies", n)
	}
	if testutil.ToFloat64(m.rules) != 4 || testutil.ToFloat64(m.enforce) != 0 || testutil.ToFloat64(m.reloadTime) != 6 {
		t.Error("the load is not noted")
	}
	m.ReloadFailed()
	if testutil.ToFloat64(m.reloadOK) != 0 {
		t.Error("the failed reload is not noted")
	}
}
