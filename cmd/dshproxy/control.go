package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"dshproxy/proxy/admin"

	"github.com/spf13/cobra"
)

// stopCommand and its kin ask a running proxy through its admin API.
func (a *app) stopCommand() *cobra.Command {
	return a.controlCommand("stop", "Make the running proxy refuse everything and end what is in flight, until resume", "stopped: everything is refused until dshproxy resume, also after a restart")
}

func (a *app) resumeCommand() *cobra.Command {
	return a.controlCommand("resume", "Make the running proxy take requests again", "resumed")
}

func (a *app) controlCommand(use, short, done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := refuseInside(use); err != nil {
				return err
			}
			client, err := a.adminClient()
			if err != nil {
				return err
			}
			defer client.Close()
			if err := client.Post(c.Context(), "/v1/"+use, struct{}{}, nil); err != nil {
				return unreachable(err)
			}
			fmt.Fprintln(a.io.out, done)
			return nil
		},
	}
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "What the running proxy does, as JSON", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.adminClient()
			if err != nil {
				return err
			}
			defer client.Close()
			var status admin.Status
			if err := client.Get(c.Context(), "/v1/status", &status); err != nil {
				return unreachable(err)
			}
			enc := json.NewEncoder(a.io.out)
			enc.SetIndent("", "  ")
			return enc.Encode(status)
		},
	}
}

// explainID prints the records of one decision of the running proxy, and judges its target by the rules of now.
func (a *app) explainID(ctx context.Context, id string, f *explainFlags) error {
	client, err := a.adminClient()
	if err != nil {
		return err
	}
	defer client.Close()
	var answer struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
	if err := client.Get(ctx, "/v1/decisions?id="+url.QueryEscape(id), &answer); err != nil {
		return unreachable(err)
	}
	if len(answer.Decisions) == 0 {
		return usageError("the proxy keeps the newest only (network.proxyMaxRecent); look into the decision log", "the proxy knows no decision %q", id)
	}
	target := ""
	for _, raw := range answer.Decisions {
		fmt.Fprintln(a.io.out, string(raw))
		var record struct {
			Host  string `json:"host"`
			Port  int    `json:"port"`
			Stage string `json:"stage"`
		}
		if err := json.Unmarshal(raw, &record); err != nil {
			return err
		}
		if record.Stage == "" && record.Port > 0 {
			target = hostPort(record.Host, record.Port)
		}
	}
	if target == "" {
		return nil
	}
	return a.explain(ctx, []string{target}, f)
}
