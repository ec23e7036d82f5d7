package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameServer is a scripted DNS server on loopback, over UDP and TCP.
type nameServer struct {
	addr string
	mu   sync.Mutex
	asks []string
}

// serveDNS starts a server whose answers answer makes; a nil answer is silence.
func serveDNS(t testing.TB, answer func(q *dns.Msg, overTCP bool) *dns.Msg) *nameServer {
	t.Helper()
	pc, l := bothPorts(t)
	s := &nameServer{addr: pc.LocalAddr().String()}
	handle := func(overTCP bool) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			s.mu.Lock()
			s.asks = append(s.asks, q.Question[0].Name+" "+dns.TypeToString[q.Question[0].Qtype])
			s.mu.Unlock()
			if m := answer(q, overTCP); m != nil {
				_ = w.WriteMsg(m)
			}
		}
	}
	udp := &dns.Server{PacketConn: pc, Handler: handle(false)}
	tcp := &dns.Server{Listener: l, Handler: handle(true)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = udp.ActivateAndServe() })
	wg.Go(func() { _ = tcp.ActivateAndServe() })
	t.Cleanup(func() {
		pc.Close()
		l.Close()
		wg.Wait()
	})
	return s
}

func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asks)
}

func (s *nameServer) asked() int { return len(s.questions()) }

// bothPorts gives the same free port of UDP and TCP.
func bothPorts(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, l
		}
		pc.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func (s *nameServer) server(t testing.TB) Server {
	t.Helper()
	server, err := ParseServer(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// zone answers from records in zone-file syntax; a name without any does not exist.
func zone(records ...string) func(*dns.Msg, bool) *dns.Msg {
	return func(q *dns.Msg, _ bool) *dns.Msg {
		m := new(dns.Msg)
		m.SetReply(q)
		owner, exists := q.Question[0].Name, false
		for range 8 {
			next := ""
			for _, text := range records {
				rr, err := dns.NewRR(text)
				if err != nil {
					panic(err)
				}
				if !strings.EqualFold(rr.Header().Name, owner) {
					continue
				}
				exists = true
				if c, ok := rr.(*dns.CNAME); ok {
					m.Answer = append(m.Answer, rr)
					next = c.Target
				} else if rr.Header().Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, rr)
				}
			}
			if next == "" {
				break
			}
			owner = next
		}
		if !exists {
			m.Rcode = dns.RcodeNameError
		}
		return m
	}
}

func newResolver(t testing.TB, o Options, servers ...*nameServer) *Resolver {
	t.Helper()
	for _, s := range servers {
		o.Servers = append(o.Servers, s.server(t))
	}
	if o.HostsFile == "" {
		o.HostsFile = filepath.Join(t.TempDir(), "none")
	}
	return New(o)
}

func addresses(t testing.TB, r *Resolver, name string, both bool) string {
	t.Helper()
	a, err := r.Lookup(t.Context(), name, both)
	if err != nil {
		t.Fatalf("Lookup(%s): %v", name, err)
	}
	return fmt.Sprint(a.Addrs)
}

func TestLookup(t *testing.T) {
	s := serveDNS(t, zone("a.test. 60 A 192.0.2.1", "a.test. 60 A 192.0.2.2", "a.test. 60 AAAA 2001:db8::1",
		"four.test. 60 A 192.0.2.4", "six.test. 60 AAAA ::ffff:192.0.2.6", "alias.test. 60 CNAME a.test.", "empty.test. 60 TXT x",
		"liar.test. 60 A 192.0.2.9"))
	r := newResolver(t, Options{}, s)
	for name, want := range map[string]string{
		"a.test": "[192.0.2.1 192.0.2.2 2001:db8::1]", "four.test": "[192.0.2.4]", "alias.test": "[192.0.2.1 192.0.2.2 2001:db8::1]", // DNS-11
		"six.test": "[192.0.2.6]", "localhost": "[127.0.0.1 ::1]", "foo.localhost": "[127.0.0.1 ::1]", // HST-34, DNS-20
	} {
		if got := addresses(t, r, name, true); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for name, rcode := range map[string]string{"nope.test": "NXDOMAIN", "empty.test": "NODATA", "x.onion": "NXDOMAIN", "": "NXDOMAIN"} {
		_, err := r.Lookup(t.Context(), name, true)
		var e *Error
		if !errors.As(err, &e) || e.Rcode != rcode || e.Timeout {
			t.Errorf("%q: %v, want %s", name, err, rcode)
		}
	}
	for _, ask := range s.questions() {
		if strings.Contains(ask, "localhost") || strings.Contains(ask, "onion") {
			t.Errorf("HST-35: the server was asked for %s", ask)
		}
		if !strings.HasSuffix(strings.Fields(ask)[0], ".test.") {
			t.Errorf("DNS-17: not absolute: %s", ask)
		}
	}
}

// TestOneQuery: callers of one name share a query, and a cached answer needs none.
func TestOneQuery(t *testing.T) {
	release := make(chan struct{})
	inner := zone("a.test. 60 A 192.0.2.1")
	s := serveDNS(t, func(q *dns.Msg, tcp bool) *dns.Msg { <-release; return inner(q, tcp) })
	r := newResolver(t, Options{}, s)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if a, err := r.Lookup(context.Background(), "a.test", true); err != nil || len(a.Addrs) != 1 {
				t.Errorf("%v %v", a, err)
			}
		})
	}
	for s.asked() < 2 {
		time.Sleep(time.Millisecond) // until both families have been asked for
	}
	close(release)
	wg.Wait()
	if got := s.asked(); got != 2 {
		t.Errorf("%d queries, want 2", got)
	}
	if a, err := r.Lookup(t.Context(), "a.test", true); err != nil || !a.Cached || s.asked() != 2 {
		t.Errorf("the second lookup: %+v %v, %d queries", a, err, s.asked())
	}
}

// TestOneFamilyIsEnough: a silent family is waited for only when a rule needs it.
func TestOneFamilyIsEnough(t *testing.T) {
	inner := zone("a.test. 60 A 192.0.2.1")
	s := serveDNS(t, func(q *dns.Msg, tcp bool) *dns.Msg {
		if q.Question[0].Qtype == dns.TypeAAAA {
			return nil
		}
		return inner(q, tcp)
	})
	r := newResolver(t, Options{Timeout: 200 * time.Millisecond}, s)
	start := time.Now()
	if got := addresses(t, r, "a.test", false); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	if took := time.Since(start); took > 180*time.Millisecond {
		t.Errorf("one family took %v, so the other was waited for", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if a, err := r.Lookup(ctx, "a.test", true); err == nil {
		t.Errorf("both families: %v, want an error", a)
	}
	waitFlights(r)
}

// TestConfusedServer: addresses of one family count, whatever the server says of the other and whichever comes first.
func TestConfusedServer(t *testing.T) {
	for _, first := range []uint16{dns.TypeA, dns.TypeAAAA} {
		answered := make(chan struct{})
		inner := zone("a.test. 60 A 192.0.2.1")
		s := serveDNS(t, func(q *dns.Msg, tcp bool) *dns.Msg {
			if q.Question[0].Qtype == first {
				defer close(answered)
			} else {
				<-answered
			}
			m := inner(q, tcp)
			if q.Question[0].Qtype == dns.TypeAAAA {
				m.Rcode = dns.RcodeNameError
			}
			return m
		})
		if got := addresses(t, newResolver(t, Options{}, s), "a.test", true); got != "[192.0.2.1]" {
			t.Errorf("first %s: %s", dns.TypeToString[first], got)
		}
	}
}

// waitFlights lets queries end that nobody waits for, so that the leak check sees none.
func waitFlights(r *Resolver) {
	for {
		r.mu.Lock()
		n := len(r.flights)
		r.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTruncation: an answer that was cut is asked for again over TCP.
func TestTruncation(t *testing.T) {
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf("many.test. 60 A 192.0.2.%d", i))
	}
	inner := zone(records...)
	s := serveDNS(t, func(q *dns.Msg, tcp bool) *dns.Msg {
		m := inner(q, tcp)
		if !tcp && len(m.Answer) > 0 {
			m.Answer, m.Truncated = nil, true
		}
		return m
	})
	r := newResolver(t, Options{}, s)
	a, err := r.Lookup(t.Context(), "many.test", true)
	if err != nil || len(a.Addrs) != len(records) { // DNS-13: all are judged, the gate dials some
		t.Errorf("%d addresses, %v; want %d", len(a.Addrs), err, len(records))
	}
}

// TestServers: a failing server is passed over; one that says no is believed.
func TestServers(t *testing.T) {
	refuse := serveDNS(t, func(q *dns.Msg, _ bool) *dns.Msg {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeServerFailure)
		return m
	})
	good := serveDNS(t, zone("a.test. 60 A 192.0.2.1"))
	if got := addresses(t, newResolver(t, Options{}, refuse, good), "a.test", true); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	_, err := newResolver(t, Options{}, good, refuse).Lookup(t.Context(), "nope.test", true)
	var e *Error
	if !errors.As(err, &e) || e.Rcode != "NXDOMAIN" || refuse.asked() != 2 {
		t.Errorf("%v, the second server got %d queries in all", err, refuse.asked())
	}
	_, err = newResolver(t, Options{}, refuse).Lookup(t.Context(), "a.test", true)
	if !errors.As(err, &e) || e.Rcode != "SERVFAIL" {
		t.Errorf("%v", err)
	}
	silent := serveDNS(t, func(*dns.Msg, bool) *dns.Msg { return nil })
	r := newResolver(t, Options{Timeout: 50 * time.Millisecond}, silent)
	_, err = r.Lookup(t.Context(), "a.test", true)
	if !errors.As(err, &e) || !e.Timeout {
		t.Errorf("%v, want a timeout", err) // DNS-15
	}
}

// TestHostileAnswers: wrong questions, foreign owners, loops and garbage give no address (DNS-28).
func TestHostileAnswers(t *testing.T) {
	rr := func(s string) dns.RR {
		r, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	tests := map[string]func(m *dns.Msg){
		"foreign owner":  func(m *dns.Msg) { m.Answer = []dns.RR{rr("other.test. 60 A 192.0.2.66")} },
		"alias loop":     func(m *dns.Msg) { m.Answer = []dns.RR{rr("a.test. 60 CNAME b.test."), rr("b.test. 60 CNAME a.test.")} },
		"wrong question": func(m *dns.Msg) { m.Question[0].Name = "b.test."; m.Answer = []dns.RR{rr("b.test. 60 A 192.0.2.66")} },
		"no question":    func(m *dns.Msg) { m.Question = nil; m.Answer = []dns.RR{rr("a.test. 60 A 192.0.2.66")} },
		"a question":     func(m *dns.Msg) { m.Response = false; m.Answer = []dns.RR{rr("a.test. 60 A 192.0.2.66")} },
		"A for AAAA":     func(m *dns.Msg) { m.Answer = []dns.RR{rr("a.test. 60 TXT 192.0.2.66")} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			s := serveDNS(t, func(q *dns.Msg, _ bool) *dns.Msg {
				m := new(dns.Msg)
				m.SetReply(q)
				change(m)
				return m
			})
			if a, err := newResolver(t, Options{Timeout: 100 * time.Millisecond}, s).Lookup(t.Context(), "a.test", true); err == nil {
				t.Errorf("got %v", a)
			}
		})
	}
}

func TestHostsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("10.0.0.7 db.test DB2.test. # comment\nfe80::1%eth0 zoned.test\nnonsense x\n::ffff:10.0.0.8 mapped.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveDNS(t, zone())
	r := newResolver(t, Options{HostsFile: path}, s)
	for name, want := range map[string]string{"db.test": "[10.0.0.7]", "db2.test": "[10.0.0.7]", "mapped.test": "[10.0.0.8]"} { // DNS-18
		if got := addresses(t, r, name, true); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if s.asked() != 0 {
		t.Errorf("%d queries", s.asked())
	}
	if _, err := r.Lookup(t.Context(), "zoned.test", true); err == nil {
		t.Error("a zoned address was taken from the hosts file")
	}
}

func TestSearch(t *testing.T) {
	s := serveDNS(t, zone("redis.svc.test. 60 A 192.0.2.1", "a.test. 60 A 192.0.2.2"))
	r := newResolver(t, Options{Search: []string{"none.test", "svc.test"}}, s)
	if got := addresses(t, r, "redis", true); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	if _, err := r.Lookup(t.Context(), "redis.x", true); err == nil {
		t.Error("a name with a dot was searched for")
	}
}

// TestCacheClock: answers expire by their TTL within bounds, and the cache is bounded (DNS-33).
func TestCacheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(3)
		ok := func(ttl time.Duration) result { return result{addrs: []netip.Addr{netip.IPv6Loopback()}, ttl: ttl} }
		c.put(key{"short", false}, ok(0))
		c.put(key{"long", false}, ok(time.Hour))
		time.Sleep(minTTL - time.Millisecond)
		if _, have := c.get(key{"short", false}); !have {
			t.Error("a TTL of 0 is not kept for a second")
		}
		time.Sleep(2 * time.Millisecond)
		if _, have := c.get(key{"short", false}); have {
			t.Error("an answer outlives its TTL")
		}
		time.Sleep(maxTTL)
		if _, have := c.get(key{"long", false}); have {
			t.Error("an answer is kept for more than five minutes")
		}
		for i := range 10 {
			c.put(key{fmt.Sprint(i), false}, ok(time.Minute))
		}
		if c.order.Len() != 3 || len(c.byKey) != 3 {
			t.Errorf("%d answers are kept", c.order.Len())
		}
		if _, have := c.get(key{"9", false}); !have {
			t.Error("the newest answer is gone")
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	release := make(chan struct{})
	inner := zone("a.test. 60 A 192.0.2.1")
	s := serveDNS(t, func(q *dns.Msg, tcp bool) *dns.Msg { <-release; return inner(q, tcp) })
	r := newResolver(t, Options{}, s)
	ctx, cancel := context.WithCancel(t.Context())
	var failed atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := r.Lookup(ctx, "a.test", true)
		failed.Store(err != nil)
	}()
	for s.asked() < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	close(release)
	if !failed.Load() {
		t.Error("a cancelled lookup succeeds")
	}
	if got := addresses(t, r, "a.test", true); got != "[192.0.2.1]" {
		t.Errorf("another caller got %s", got)
	}
}

func TestParseServer(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "udp 192.0.2.1:53", "192.0.2.1:5353": "udp 192.0.2.1:5353", "tcp://192.0.2.1": "tcp 192.0.2.1:53",
		"tls://192.0.2.1": "tcp-tls 192.0.2.1:853", "2001:db8::1": "udp [2001:db8::1]:53", "[2001:db8::1]:54": "udp [2001:db8::1]:54", "tls://[2001:db8::1]": "tcp-tls [2001:db8::1]:853",
	} {
		s, err := ParseServer(in)
		if got := s.Net + " " + s.Addr.String(); err != nil || got != want {
			t.Errorf("%q: %s %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "dns.test", "192.0.2.1:0", "http://192.0.2.1", "192.0.2.1:x"} {
		if s, err := ParseServer(in); err == nil {
			t.Errorf("%q: %+v", in, s)
		}
	}
}

func TestResolvConf(t *testing.T) {
	got := parseResolvConf([]byte("# x\nnameserver 192.0.2.1\nsearch a\nnameserver 2001:db8::1\nnameserver bad\n"))
	if len(got) != 2 || got[0].Addr.String() != "192.0.2.1:53" || got[1].Addr.String() != "[2001:db8::1]:53" {
		t.Errorf("%v", got)
	}
	if got := parseResolvConf(nil); len(got) != 1 || got[0].Addr.String() != "127.0.0.1:53" {
		t.Errorf("%v", got)
	}
}

// FuzzRead: whatever an answer holds, addresses are only of the family that was asked for, and the time is bounded.
func FuzzRead(f *testing.F) {
	m := zone("a.test. 60 A 192.0.2.1", "b.test. 60 CNAME a.test.")
	q := new(dns.Msg)
	q.SetQuestion("b.test.", dns.TypeA)
	packed, _ := m(q, false).Pack()
	f.Add(packed, false)
	f.Fuzz(func(t *testing.T, data []byte, v6 bool) {
		answer := new(dns.Msg)
		if answer.Unpack(data) != nil {
			return
		}
		r := read(key{"b.test", v6}, answer)
		for _, a := range r.addrs {
			if !v6 && !a.Is4() || a.Zone() != "" {
				t.Fatalf("address %s", a)
			}
		}
		if len(r.addrs) > maxAddrs || r.ttl > maxTTL || (r.err == nil) != (len(r.addrs) > 0) {
			t.Fatalf("%+v", r)
		}
	})
}

func BenchmarkCachedLookup(b *testing.B) {
	s := serveDNS(b, zone("a.test. 300 A 192.0.2.1"))
	r := newResolver(b, Options{}, s)
	if _, err := r.Lookup(context.Background(), "a.test", true); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Lookup(context.Background(), "a.test", false); err != nil {
			b.Fatal(err)
		}
	}
}
