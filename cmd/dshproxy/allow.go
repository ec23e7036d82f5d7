package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

func (a *app) allowCommand() *cobra.Command {
	var private, remove bool
	var addrs []string
	c := &cobra.Command{
		Use:   "allow HOST[:PORT]",
		Short: "Write one exact allow rule at the head of the rule file",
		Long: "Allow inserts a rule for exactly this host (and port) at the head of the file that judges it, shows what it wrote,\n" +
			"which rule that overrides, and the verdict that follows. --private also opens the host's special-use addresses.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := refuseInside("allow"); err != nil {
				return err
			}
			return a.allow(c.Context(), args[0], private, remove, addrs)
		},
	}
	c.Flags().BoolVar(&private, "private", false, "name the host's special-use addresses in ips, which opens them")
	c.Flags().StringSliceVar(&addrs, "ip", nil, "the addresses for --private, instead of a lookup")
	c.Flags().BoolVar(&remove, "remove", false, "take the rule out again")
	return c
}

func (a *app) allow(ctx context.Context, arg string, private, remove bool, ips []string) error {
	target, err := parseAllowTarget(arg)
	if err != nil {
		return err
	}
	rules, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	if !a.settings.allowHostAction {
		return usageError("", "network.allowHostAction is off")
	}
	req := live.AllowRequest{Target: target, Remove: remove}
	if private || len(ips) > 0 {
		if req.Addrs, err = a.privateAddrs(ctx, target, ips); err != nil {
			return err
		}
	}
	result, err := rules.Allow(req)
	if err != nil {
		return err
	}
	file := relative(workspace, result.File)
	if !remove && result.Verdict.Action != netrule.Allow {
		return &exitError{exitFailure, fmt.Errorf("nothing written: with the rule it would still be refused: %s", verdictLine(target, &result.Verdict)), allowHint(&result.Verdict)}
	}
	if !result.Written {
		fmt.Fprintf(a.io.out, "nothing to write: %s\n", verdictLine(target, &result.Verdict))
		return nil
	}
	fmt.Fprintf(a.io.out, "%s\n%s", file, result.Diff)
	for _, o := range result.Overrides {
		fmt.Fprintf(a.io.out, "this stands before the rule at %s:%d: %s\n", relative(workspace, o.File), o.Line, o.ReasonLine())
	}
	fmt.Fprintln(a.io.out, verdictLine(target, &result.Verdict))
	return nil
}

// allowHint says what holds against an allow rule.
func allowHint(d *netrule.Decision) string {
	if d.Code == netrule.CodeSpecialUseAddress || d.Code == netrule.CodeMetadataAddress {
		return "its address is special: add --private"
	}
	return "a managed rule holds against every workspace rule"
}

// parseAllowTarget takes a name or a literal with or without a port: no URL, no pattern.
func parseAllowTarget(arg string) (netrule.Target, error) {
	if strings.ContainsAny(arg, "*?/=") {
		return netrule.Target{}, usageError("give it as host:port; wildcard rules are written by hand", "allow takes one host[:port], not %q", arg)
	}
	target, err := netrule.ParseURL(arg)
	if err != nil {
		return netrule.Target{}, &exitError{exitUsage, err, "as in dshproxy allow api.example.com:443"}
	}
	target.Scheme = netrule.SchemeHTTPS
	return target, nil
}

// privateAddrs gives the special-use addresses of a target: given, its own, or looked up.
func (a *app) privateAddrs(ctx context.Context, t netrule.Target, ips []string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, s := range ips {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return nil, usageError("", "--ip: %q is no address", s)
		}
		all = append(all, addr.Unmap())
	}
	switch {
	case len(all) > 0:
		return all, nil
	case t.IsLiteral():
		return []netip.Addr{t.Addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := a.settings.resolver(nil).Lookup(ctx, t.Host, true)
	if err != nil {
		return nil, &exitError{exitFailure, err, "give the addresses with --ip"}
	}
	for _, addr := range answer.Addrs {
		if netrule.ClassifyAddr(addr) != netrule.ClassPublic {
			all = append(all, addr)
		}
	}
	if len(all) == 0 {
		return nil, usageError("drop --private", "%s has only public addresses", t.Host)
	}
	return all, nil
}
