package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/upstream"
)

// behind puts a world behind parents. Its own names exist for nobody but itself.
func (w *world) behind(chain *upstream.Chain) *Chaining {
	c := &Chaining{Chain: chain, ParentAddrs: w.srv.Dialer.ParentAddrs}
	w.gate.Chaining = c
	return c
}

func mustParent(t testing.TB, text string) *upstream.Parent {
	t.Helper()
	p, err := upstream.ParseParent(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parentWorld is a proxy to be chained to, which reaches everything on the loopback address.
func parentWorld(t testing.TB) *world {
	w := newWorld(t, allowLoopback)
	for _, name := range []string{"allowed.test", "x.allowed.test", "named.test", "intranet", "db.corp"} {
		w.name(name, "127.0.0.1")
	}
	return w
}

const chainRules = `rules:
  - match: { network: { domains: ["=byaddr.test"], ips: ["127.0.0.1"] } }
    action: allow
    reason: by address
  - match: { network: { domains: ["=mixed.test"], ips: ["10.0.0.0/8"] } }
    action: deny
    reason: not inside
  - match: { network: { domains: [allowed.test, mixed.test, "*.corp", intranet2] } }
    action: allow
    reason: fine
  - match: { network: { domains: ["=intranet", "=metadata.goog"] } }
    action: allow
    reason: spelt out
  - match: { network: { ips: ["8.8.8.8"], domains: ["8.8.8.8"] } }
    action: allow
    reason: an address
`

// TestChained: every front goes through the parent by name, and the name is not looked up here.
func TestChained(t *testing.T) {
	for _, scheme := range []string{"http", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			parent := parentWorld(t)
			w := newWorld(t, chainRules)
			w.behind(upstream.NewChain(mustParent(t, scheme+"://"+parent.addr)))
			o := httpOrigin(t, func(r *http.Request, head string) string { return okReply(head) })
			e := echo(t)
			c := w.tunnelTo("allowed.test", e.port)
			c.send("\x00through").CloseWrite()
			if got := c.rest(); got != "\x00through" {
				t.Errorf("%q", got)
			}
			s := w.dial().send("\x05\x01\x00" + socksName("allowed.test", e.port))
			io.CopyN(io.Discard, s.r, 2)
			if got := s.reply(); got != 0 {
				t.Errorf("SOCKS: %d", got)
			}
			kept := w.dial()
			for range 2 {
				kept.send(fmt.Sprintf("GET http://allowed.test:%d/p HTTP/1.1\r\nHost: x\r\n\r\n", o.port))
				r := kept.response("GET")
				if body := bodyOf(r); r.StatusCode != 200 || !strings.HasPrefix(body, fmt.Sprintf("GET /p HTTP/1.1\r\nHost: allowed.test:%d\r\n", o.port)) || strings.Count(body, "Via: ") == 0 {
					t.Errorf("%s %q", r.Status, body)
				}
			}
			if got := w.lookedUp(); len(got) > 0 {
				t.Errorf("looked up %q", got)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, r := range w.records {
				if !r.Delegated || r.Upstream != scheme+"://"+parent.addr || r.Dialed.IsValid() || r.Code != netrule.CodeAllowedByRule {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestKeepsToAddresses: where a rule with ips stands on the way, a connection keeps to addresses that were judged
// (DNS-31, UPS-11, UPS-15).
func TestKeepsToAddresses(t *testing.T) {
	e := echo(t)
	for _, tt := range []struct {
		name, host  string
		local, only bool
		parentSees  bool
		code        netrule.Code
	}{
		{"directly", "byaddr.test", false, false, false, netrule.CodeAllowedByRule},
		{"through the parent, by address", "shared.allowed.test", true, false, true, netrule.CodeAllowedByRule},
		{"or not at all", "mixed.test", false, true, false, netrule.CodeUpstreamProxyError},
		{"a deny rule on the way counts too", "mixed.test", false, false, false, netrule.CodeSpecialUseAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent := parentWorld(t)
			w := newWorld(t, chainRules, withOptions(func(o *netrule.Options) {
				if tt.local || tt.only {
					o.Guard = netrule.GuardOff
				}
			}))
			w.name("byaddr.test", "127.0.0.1")
			w.name("mixed.test", "127.0.0.1")
			w.name("shared.allowed.test", "127.0.0.1")
			if tt.only {
				w.name("mixed.test", "192.0.2.1")
			}
			if tt.local {
				w.name("shared.allowed.test", "192.0.2.1")
				parent.setPolicy(`rules: [{match: {network: {ips: ["192.0.2.1"]}}, action: allow, reason: seen}]`, netrule.Options{Mode: netrule.Whitelist, Guard: netrule.GuardOff, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}})
				parent.srv.Dialer.Check = func(netip.AddrPort) error { return errOwnListener } // it is seen, and not dialled
			}
			c := w.behind(upstream.NewChain(mustParent(t, "http://"+parent.addr)))
			c.Local, c.Only = tt.local, tt.only
			r := w.dial().send(fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\n\r\n", tt.host, e.port)).response("CONNECT")
			rec := w.lastRecord()
			if tt.local {
				if r.StatusCode != 502 || rec.Code != netrule.CodeUpstreamProxyError || rec.Delegated || rec.Upstream == "" {
					t.Errorf("%s %+v", r.Status, rec)
				}
				if seen := parent.lastRecord(); seen.Target.Host != "192.0.2.1" {
					t.Errorf("the parent was asked for %s", seen.Target)
				}
				return
			}
			if rec.Code != tt.code || rec.Upstream != "" {
				t.Errorf("%s %+v", r.Status, rec)
			}
			parent.mu.Lock()
			defer parent.mu.Unlock()
			if len(parent.records) > 0 != tt.parentSees {
				t.Errorf("the parent saw %+v", parent.records)
			}
		})
	}
}

// TestChainingRefuses: parents as targets, names of internal networks, metadata, loopback and special addresses (UPS-17).
func TestChainingRefuses(t *testing.T) {
	parent := parentWorld(t)
	ap := netip.MustParseAddrPort(parent.addr)
	for _, tt := range []struct {
		host string
		port int
		code netrule.Code
	}{
		{"127.0.0.1", int(ap.Port()), netrule.CodeUpstreamTarget},
		{"parent.allowed.test", int(ap.Port()), netrule.CodeUpstreamTarget}, // by its own name
		{"db.corp", 443, netrule.CodeInternalName},
		{"intranet2", 443, netrule.CodeAllowedByRule},
		{"metadata.google.internal", 80, netrule.CodeNotAllowed},
		{"169.254.169.254", 80, netrule.CodeNotAllowed},
		{"10.0.0.1", 443, netrule.CodeNotAllowed},
		{"other.test", 443, netrule.CodeNotAllowed},
	} {
		w := newWorld(t, chainRules)
		w.behind(upstream.NewChain(mustParent(t, "http://"+parent.addr)))
		if tt.host == "parent.allowed.test" {
			w.behind(upstream.NewChain(mustParent(t, fmt.Sprintf("http://parent.allowed.test:%d", ap.Port()))))
		}
		w.dial().send(fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\n\r\n", tt.host, tt.port)).response("GET")
		rec := w.lastRecord()
		if rec.Code == netrule.CodeUpstreamProxyError {
			rec.Code = netrule.CodeAllowedByRule // it went to the parent, which does not know the name
		}
		if rec.Code != tt.code {
			t.Errorf("%s: %+v", tt.host, rec)
		}
	}
	// A name whose address is a parent's.
	w := newWorld(t, allowLoopback)
	w.name("hidden.test", "127.0.0.1")
	chain, err := upstream.NewChain(nil).WithRoutes(upstream.Route{Domains: []string{"=chained.test"}, Parent: mustParent(t, "http://"+parent.addr)})
	if err != nil {
		t.Fatal(err)
	}
	w.behind(chain)
	if got := w.status(fmt.Sprintf("CONNECT hidden.test:%d HTTP/1.1\r\n\r\n", ap.Port())); got != 403 {
		t.Errorf("by another name: %d", got)
	}
	if r := w.lastRecord(); r.Code != netrule.CodeUpstreamTarget {
		t.Errorf("%+v", r)
	}
}

// TestParentFails: a parent that is dead, refuses or says nothing is 502 with its cause, and nothing is dialled directly
// (UPS-02, CON-03).
func TestParentFails(t *testing.T) {
	e := echo(t)
	for name, addr := range map[string]string{
		"dead":     fmt.Sprintf("127.0.0.1:%d", closedPort(t)),
		"407":      newOrigin(t, scripted("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n", nil)).addr,
		"403":      newOrigin(t, scripted("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", nil)).addr,
		"silent":   newOrigin(t, func(_ *net.TCPConn, r *bufio.Reader) { io.Copy(io.Discard, r) }).addr,
		"no HTTP":  newOrigin(t, scripted("SSH-2.0-x\r\n", nil)).addr,
		"a prefix": newOrigin(t, scripted("HTTP/1.1 2000 OK\r\n\r\n", nil)).addr,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, chainRules, withLimits(Limits{Answer: 300 * time.Millisecond}))
			w.behind(upstream.NewChain(mustParent(t, "http://user:secret@"+addr)))
			begun := time.Now()
			r := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n\x16\x03\x01", e.port)).response("GET")
			if r.StatusCode != 502 || r.Header.Get("X-Dshproxy-Code") != "upstream_proxy_error" || r.Header.Get("Proxy-Authenticate") != "" || time.Since(begun) > 5*time.Second {
				t.Errorf("%s %v after %v", r.Status, r.Header, time.Since(begun))
			}
			rec := w.lastRecord()
			if rec.Outcome != outcomeFailed || rec.Decision.Action != netrule.Allow || rec.Cause == "" || strings.Contains(rec.Cause+rec.Upstream, "secret") {
				t.Errorf("%+v", rec)
			}
			if e.accepted() > 0 {
				t.Error("it was dialled directly")
			}
		})
	}
}

// TestParentAuthorization: credentials go to the parent, in CONNECT and in absolute-form, and nowhere else.
func TestParentAuthorization(t *testing.T) {
	heads := make(chan string, 10)
	parent := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			head, req, err := readRequest(r)
			if err != nil {
				return
			}
			heads <- head
			if req.Method == "CONNECT" {
				io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n\x00hi")
				return
			}
			io.WriteString(c, "HTTP/1.1 407 No\r\nContent-Length: 0\r\nProxy-Authenticate: Basic\r\n\r\n")
		}
	})
	w := newWorld(t, chainRules)
	w.behind(upstream.NewChain(mustParent(t, "http://user:pass@"+parent.addr)))
	c := w.tunnelTo("allowed.test", 443)
	if got := c.rest(); got != "\x00hi" {
		t.Errorf("early bytes %q", got)
	}
	if head := <-heads; !strings.HasPrefix(head, "CONNECT allowed.test:443 HTTP/1.1\r\n") || !strings.Contains(head, "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n") {
		t.Errorf("%q", head)
	}
	r := w.dial().send("GET http://allowed.test/x HTTP/1.1\r\nHost: allowed.test\r\nProxy-Authorization: Basic ours\r\n\r\n").response("GET")
	if r.StatusCode != 502 || r.Header.Get("Proxy-Authenticate") != "" || r.Header.Get("X-Dshproxy-Code") != "upstream_proxy_error" {
		t.Errorf("%s %v", r.Status, r.Header)
	}
	if head := <-heads; !strings.HasPrefix(head, "GET http://allowed.test:80/x HTTP/1.1\r\nHost: allowed.test\r\n") || strings.Count(head, "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n") != 1 || strings.Contains(head, "ours") {
		t.Errorf("%q", head)
	}
}

// TestChainedRevoked: a new rule that needs addresses which a chained tunnel lacks ends it.
func TestChainedRevoked(t *testing.T) {
	parent := parentWorld(t)
	w := newWorld(t, chainRules)
	w.behind(upstream.NewChain(mustParent(t, "http://"+parent.addr)))
	c := w.tunnelTo("allowed.test", echo(t).port)
	w.setPolicy("rules:\n  - match: { network: { ips: [\"10.0.0.0/8\"] } }\n    action: deny\n    reason: inside\n"+strings.TrimPrefix(chainRules, "rules:\n"), netrule.Options{Mode: netrule.Whitelist, DefaultPorts: []netrule.PortRange{{Lo: 1, Hi: 65535}}})
	w.srv.PolicyChanged()
	io.Copy(io.Discard, c.r)
	w.await("the close", func() bool { return len(w.closes) == 1 && w.closes[0].Why == "revoked" })
}

// TestTwoProxiesInALoop: two proxies that are each other's parent end in 508, not in a storm.
func TestTwoProxiesInALoop(t *testing.T) {
	a, b := newWorld(t, chainRules), newWorld(t, chainRules)
	for _, pair := range [][2]*world{{a, b}, {b, a}} {
		pair[0].behind(upstream.NewChain(mustParent(t, "http://"+pair[1].addr)))
	}
	for _, request := range []string{"CONNECT allowed.test:443 HTTP/1.1\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"} {
		r := a.dial().send(request).response("GET")
		if r.StatusCode != 502 && r.StatusCode != 508 {
			t.Errorf("%s", r.Status)
		}
	}
	a.await("the loop", func() bool {
		for _, r := range a.records {
			if r.Code == netrule.CodeLoop {
				return true
			}
		}
		return false
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.records) > 6 {
		t.Errorf("%d requests came round", len(a.records))
	}
}

// TestParentAddrsAreKept: the addresses of a parent outlive a lookup that fails.
func TestParentAddrsAreKept(t *testing.T) {
	addr := netip.MustParseAddrPort("192.0.2.1:3128")
	answers := [][]netip.AddrPort{{addr}, nil}
	c := &Chaining{Chain: upstream.NewChain(mustParent(t, "http://proxy.test:3128")), ParentAddrs: func(context.Context, *upstream.Parent) ([]netip.AddrPort, error) {
		a := answers[0]
		answers = answers[1:]
		if a == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return a, nil
	}}
	for range 2 {
		if !c.isParentAddr(t.Context(), addr) || c.isParentAddr(t.Context(), netip.MustParseAddrPort("192.0.2.1:443")) {
			t.Error("not known")
		}
		c.refreshed.Store(1)
	}
}
