//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is how much a soak asks of the proxy.
type load struct {
	clients, reloads int
	tunnels          int           // that stay idle meanwhile
	idle             time.Duration // after which the proxy ends what is silent
	rounds           int           // of all that
}

// soakLoad is small enough for every run of the tests; SOAK=1, as "make soak" sets it, asks for the larger one.
func soakLoad() load {
	if os.Getenv("SOAK") == "1" {
		return load{clients: 1000, reloads: 300, tunnels: 5000, idle: 15 * time.Second, rounds: 4}
	}
	return load{clients: 300, reloads: 50, idle: 3 * time.Second, rounds: 1}
}

// slack is what may come and go by itself: scrapes, the runtime's own.
var slack = series{"process_open_fds": 8, "go_goroutines": 8}

// stopping are the places where a client stops, each with what leads there.
var stopping = []struct {
	name string
	to   func(s *soak, c net.Conn) error
}{
	{"mid-head", func(s *soak, c net.Conn) error {
		return send(c, "GET http://"+s.authority("http")+"/hel")
	}},
	{"mid-hello", func(s *soak, c net.Conn) error {
		// A record of 512 bytes, a ClientHello of 508, and little of it.
		return errors.Join(openTunnel(c, s.authority("https")), send(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03some of it"))
	}},
	{"mid-SOCKS", func(_ *soak, c net.Conn) error {
		method := make([]byte, 2)
		err := send(c, "\x05\x01\x00")
		if err == nil {
			_, err = io.ReadFull(c, method)
		}
		return errors.Join(err, send(c, "\x05\x01\x00\x03\x20soak.conn"))
	}},
	{"mid-body", func(s *soak, c net.Conn) error {
		return send(c, "POST http://"+s.authority("http")+"/upload HTTP/1.1\r\nHost: "+s.authority("http")+"\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("u", 10_000))
	}},
	{"mid-tunnel", func(s *soak, c net.Conn) error {
		if err := openTunnel(c, s.authority("https")); err != nil {
			return err
		}
		tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // whose it is matters to other tests
		return errors.Join(tc.Handshake(), send(tc, "GET /hello.txt HTTP/1.1\r\nHost: soak"))
	}},
}

// leaving is how a client goes once it has stopped; the last kind stays, and leaves it to the proxy to end.
var leaving = []func(net.Conn){
	func(c net.Conn) { c.Close() },
	func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0) // a reset, if this does not fail
		c.Close()
	},
	func(net.Conn) {},
}

// soak is a proxy and the origins that its clients never get everything to.
type soak struct {
	*matrix
	*process
	load

	mu    sync.Mutex
	conns []net.Conn
}

func (s *soak) authority(scheme string) string {
	return net.JoinHostPort("soak.connect.allow.test", s.ports[scheme])
}

// TestStoppedClients has clients stop at every stage, while the rules are reloaded again and again. Nothing is left of
// them in the end, and others are served.
func TestStoppedClients(t *testing.T) {
	s := newSoak(t)
	s.testGoodClients(t)
	s.waitIdle(t)
	var memory []float64
	for range s.rounds {
		memory = append(memory, s.round(t))
	}
	// The first round makes the heap as large as it needs; a kibibyte that each connection leaves behind would show itself.
	connections := float64(s.rounds-1) * float64(s.clients+s.tunnels)
	if grown := memory[len(memory)-1] - memory[0]; grown > connections*1024 {
		t.Errorf("the memory in use has grown by %.0f bytes in %d rounds: %.0f", grown, s.rounds-1, memory)
	}
	t.Logf("memory in use after each round: %.0f", memory)
	s.testGoodClients(t)
}

// round has the clients stop once, and gives the memory that is in use when all are gone, in bytes.
func (s *soak) round(t *testing.T) float64 {
	t.Helper()
	before := s.scrape(t)
	check(t, s.each(s.tunnels, func(_ int, c net.Conn) error { return openTunnel(c, s.authority("http")) }))
	if n := s.scrape(t)["dshproxy_connections_active"]; n < float64(s.tunnels) {
		t.Errorf("%v connections are active, want the %d idle tunnels", n, s.tunnels)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.stopAll() }()
	s.reloadOften(t)
	check(t, <-stopped)
	after := s.waitFor(t, before)
	t.Logf("before: %v\nafter:  %v", held(before), held(after))
	s.checkReached(t, before, after)
	s.closeAll()
	return after["go_memstats_heap_inuse_bytes"] + after["go_memstats_stack_inuse_bytes"]
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{matrix: newMatrixOrigins(t, buildProgram(t, t.TempDir()), newNameServer(t)), load: soakLoad()}
	s.origin.HandleFunc("POST /upload", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it never comes whole
	})
	s.process = startProcess(t, s.program, s.rulesOf(0), fmt.Sprintf(`
listen: ['127.0.0.1:0']
dns: {servers: ['%s']}
watch: false
watchStabilityThresholdMs: 5
limits: {connections: 9000, perClient: 9000, headTimeout: 2s, keepAliveIdle: 1s, halfClose: 1s, idle: %s}
`, s.names.address, s.idle))
	t.Cleanup(s.closeAll)
	return s
}

// rulesOf are rules that differ from load to load, and mean the same to the clients.
func (s *soak) rulesOf(n int) string {
	return fmt.Sprintf(`rules:
  - match: { network: { domains: ["=n%d.denied.test"] } }
    action: deny
    reason: "load %[1]d"
  - match: { network: { domains: [allow.test], ips: ["127.0.0.1"] } }
    action: allow
    reason: the origins
`, n)
}

func (s *soak) testGoodClients(t *testing.T) {
	t.Helper()
	for _, front := range []string{"connect", "absolute", "socks5", "websocket"} {
		got := s.ask(t, s.process, &cell{target: "allow", front: front, way: "soak"})
		if got.body != greeting+"\n" {
			t.Errorf("%s: status %d, reply %d and the body %q", front, got.status, got.reply, got.body)
		}
	}
}

func (s *soak) waitIdle(t *testing.T) {
	t.Helper()
	if !eventually(t, 10*time.Second, func() bool { return s.scrape(t)["dshproxy_connections_active"] == 0 }) {
		t.Fatal("connections stay active before anything was done")
	}
}

// dial connects to the proxy, for as long as the test lasts.
func (s *soak) dial() (net.Conn, error) {
	c, err := net.Dial("tcp", s.addresses["proxy"])
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, c.SetDeadline(time.Now().Add(time.Minute))
}

func (s *soak) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// each opens connections side by side, a hundred at a time.
func (s *soak) each(n int, do func(i int, c net.Conn) error) error {
	errs := make(chan error, n)
	places := make(chan struct{}, 100)
	for i := range n {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			c, err := s.dial()
			if err == nil {
				err = do(i, c)
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// stopAll brings every client to where it stops.
func (s *soak) stopAll() error {
	return s.each(s.clients, func(i int, c net.Conn) error {
		place := stopping[i%len(stopping)]
		if err := place.to(s, c); err != nil {
			return fmt.Errorf("%s: %w", place.name, err)
		}
		leaving[i/len(stopping)%len(leaving)](c)
		return nil
	})
}

// reloadOften changes the rules and waits for each change to be in force.
func (s *soak) reloadOften(t *testing.T) {
	t.Helper()
	before := s.countReloads(t)
	for n := range s.reloads {
		next := s.rules + ".next"
		check(t, os.WriteFile(next, []byte(s.rulesOf(before+n)), 0o644))
		check(t, os.Rename(next, s.rules))
		s.reload(t)
		if !eventually(t, 10*time.Second, func() bool { return s.countReloads(t) == before+n+1 }) {
			t.Fatalf("%d reloads are recorded, want %d", s.countReloads(t), before+n+1)
		}
	}
}

func (s *soak) countReloads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(s.decisions)
	check(t, err)
	return bytes.Count(text, []byte(`"msg":"reload","ok":true`))
}

var heldSeries = []string{"process_open_fds", "go_goroutines", "dshproxy_connections_active"}

func held(s series) series {
	out := series{}
	for _, name := range heldSeries {
		out[name] = s[name]
	}
	return out
}

// waitFor waits until the proxy holds as much as before.
func (s *soak) waitFor(t *testing.T, before series) (after series) {
	t.Helper()
	if !eventually(t, 20*time.Second+2*s.idle, func() bool {
		after = s.scrape(t)
		return !slices.ContainsFunc(heldSeries, func(name string) bool { return after[name] > before[name]+slack[name] })
	}) {
		t.Errorf("the proxy still holds %v, before it was %v", held(after), held(before))
	}
	return after
}

// checkReached tells by the counters that the clients have stopped where they were to: of those that stayed it was the
// proxy that lost patience.
func (s *soak) checkReached(t *testing.T, before, after series) {
	t.Helper()
	one := float64(s.clients / len(stopping) / len(leaving)) // of a place and a way to leave
	for name, atLeast := range map[string]float64{
		`dshproxy_connections_total{listener="proxy"}`:                                     float64(s.clients + s.tunnels),
		`dshproxy_refusals_total{code="head_timeout"}`:                                     one,
		`dshproxy_decisions_total{code="tls_incomplete",dry_run="false",verdict="deny"}`:   one,
		`dshproxy_decisions_total{code="allowed_by_rule",dry_run="false",verdict="allow"}`: float64(2*s.clients/len(stopping) + s.tunnels), // CONNECT of the hellos and of the tunnels
	} {
		if n := after[name] - before[name]; n < atLeast {
			t.Errorf("%s has grown by %v, want %v or more", name, n, atLeast)
		}
	}
}

func send(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// openTunnel asks for a tunnel and reads no byte of what comes through it.
func openTunnel(c net.Conn, authority string) error {
	if err := send(c, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}
