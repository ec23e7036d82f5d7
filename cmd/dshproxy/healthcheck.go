package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) healthcheckCommand() *cobra.Command {
	var address string
	var ready bool
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running proxy whether it is alive; for container health checks",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.settings.load(a.config, a.flags); err != nil {
				return err
			}
			if address == "" {
				address = a.settings.metricsListen
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			return a.healthcheck(c.Context(), address, path)
		},
	}
	c.Flags().StringVar(&address, "metrics", "", "address of the metrics listener (default: as configured)")
	c.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready instead")
	return c
}

func (a *app) healthcheck(ctx context.Context, address, path string) error {
	if address == "off" {
		return usageError("", "metrics.listen is off: there is nobody to ask")
	}
	// Environment proxies must not come between, so the transport has none.
	transport := &http.Transport{DisableKeepAlives: true}
	url := "http://" + address + path
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
		url = "http://localhost" + path
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usageError("", "--metrics: %v", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s answers %s", path, resp.Status)
	}
	fmt.Fprintln(a.io.out, "ok")
	return nil
}
