// Package admin serves what operators and orchestrators ask the proxy: metrics and health for anybody who reaches their
// listener, and an API with a token on another. Both listen apart from the proxy, and nothing here can be reached through
// it. What the API does, a Backend does; the package judges nothing and edits nothing.
package admin

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health answers the probes.
type Health struct {
	// Alive reports whether the accept loop runs.
	Alive func() bool
	// Ready reports whether rules are loaded and work is taken; never DNS, an upstream or a failed reload.
	Ready func() bool
}

// MetricsServer makes the server of the metrics listener: /metrics, /healthz and /readyz, for any Host, without a token.
func MetricsServer(reg *prometheus.Registry, h Health) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, EnableOpenMetrics: true, MaxRequestsInFlight: 8, Timeout: 10 * time.Second}))
	mux.Handle("GET /healthz", probe(h.Alive, "ok", "the accept loop does not run"))
	mux.Handle("GET /readyz", probe(h.Ready, "ready", "not ready"))
	return limited(mux)
}

func probe(ok func() bool, good, bad string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if !ok() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(bad + "\n")) // a probe that hung up needs no answer
			return
		}
		_, _ = w.Write([]byte(good + "\n"))
	})
}
