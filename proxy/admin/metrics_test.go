package admin

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestProbes: whatever Host a page names (SELF-09) and whoever reaches the port (SELF-15), there are only counters and
// probes to read here: nothing changes anything, and no debug handler came along (SELF-12).
func TestProbes(t *testing.T) {
	alive, ready := true, false
	s := MetricsServer(prometheus.NewRegistry(), Health{func() bool { return alive }, func() bool { return ready }})
	tests := []struct {
		method, path string
		status       int
	}{
		{"GET", "/healthz", 200}, {"GET", "/readyz", 503}, {"GET", "/metrics", 200}, {"GET", "/", 404}, {"GET", "/debug/pprof/", 404}, // SELF-12
		{"POST", "/healthz", 405}, {"GET", "/v1/reload", 404},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(tt.method, tt.path, nil)
		req.Host = "anything.test"
		s.Handler.ServeHTTP(rec, req)
		if rec.Code != tt.status {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.path, rec.Code, tt.status, rec.Body)
		}
	}
	ready = true
	rec := httptest.NewRecorder()
	s.Handler.ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), "ready") {
		t.Errorf("ready: %d %s", rec.Code, rec.Body)
	}
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 { // SELF-13
		t.Error("a limit is missing")
	}
}
