package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dshproxy/proxy"
	"dshproxy/proxy/admin"
)

// listen opens every listener of the proxy, or none.
func (v *service) listen() ([]proxy.Listener, error) {
	var out []proxy.Listener
	for _, l := range v.settings.listeners() {
		nl, err := openListener(l)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		v.own.AddListener(nl.Addr())
		one := proxy.Listener{Listener: nl, Name: l.name, ProxyProtocol: l.proxyProtocol, NoHTTP: l.leavesOut("http"), NoSOCKS: l.leavesOut("socks5")}
		one.Explain = v.settings.explain == "full" || v.settings.explain == "auto" && l.onlyLocal()
		out = append(out, one)
		if l.tls == nil {
			continue
		}
		t, err := newListenerTLS(*l.tls, v.log)
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("listener %s: %w", l.name, err)
		}
		out[len(out)-1].TLS = t.config()
	}
	return out, nil
}

func closeAll(listeners []proxy.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// leavesOut reports whether a protocol is not spoken.
func (l *listenAddr) leavesOut(protocol string) bool {
	return l.protocols != nil && !slices.Contains(l.protocols, protocol)
}

func openListener(l listenAddr) (net.Listener, error) {
	path, unix := strings.CutPrefix(l.address, "unix:")
	if !unix {
		// Keep-alive probes are switched on once a tunnel has lived for a while; multipath TCP costs every connection and
		// serves none on the way from a program to its proxy.
		config := net.ListenConfig{KeepAlive: -1}
		config.SetMultipathTCP(false)
		nl, err := config.Listen(context.Background(), "tcp", l.address)
		if err != nil {
			return nil, listenError(l, err)
		}
		return nl, nil
	}
	removeStaleSocket(path)
	nl, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, listenError(l, err)
	}
	err = os.Chmod(path, l.mode)
	if err == nil && l.group != "" {
		err = giveToGroup(path, l.group)
	}
	if err != nil {
		nl.Close()
		return nil, listenError(l, err)
	}
	return nl, nil
}

// giveToGroup lets the members of a group use a socket, as far as its mode does.
func giveToGroup(path, group string) error {
	gid, err := strconv.Atoi(group)
	if err != nil {
		g, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return err
		}
	}
	return os.Chown(path, -1, gid)
}

func listenError(l listenAddr, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "another program has this address, perhaps another dshproxy; choose one with --listen or --metrics, port 0 picks a free one"
	case errors.Is(err, syscall.EACCES):
		hint = "ports below 1024 need privileges"
	}
	return &exitError{exitFailure, fmt.Errorf("cannot listen on %s: %w", l.address, err), hint}
}

// removeStaleSocket takes away a socket that nobody listens on any more.
func removeStaleSocket(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path); err == nil {
		c.Close()
		return
	}
	_ = os.Remove(path) // if it stays, listening says so
}

// listenMetrics opens the metrics listener and serves it. On an error the proxy's listeners are closed.
func (v *service) listenMetrics(others []proxy.Listener) (net.Listener, error) {
	address := v.settings.metricsListen
	if address == "off" || address == "" {
		return nil, nil
	}
	nl, err := openListener(listenAddr{name: "metrics", address: address, mode: 0o600})
	if err != nil {
		for _, l := range others {
			l.Close()
		}
		return nil, err
	}
	v.own.AddListener(nl.Addr())
	server := admin.MetricsServer(v.registry, admin.Health{
		Alive: v.server.Alive,
		Ready: func() bool { return v.rules.Current() != nil && !v.server.Draining() && !v.notReady.Load() },
	})
	go func() {
		if err := server.Serve(nl); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			v.failed <- err
		}
	}()
	return nl, nil
}

func address(l net.Listener) string {
	if u, ok := l.Addr().(*net.UnixAddr); ok {
		return "unix:" + u.Name
	}
	return l.Addr().String()
}
