package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"dshproxy/resolve"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pin(port uint16, addrs ...string) resolve.Pinned {
	var out []netip.Addr
	for _, a := range addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return resolve.Pin(out, port)
}

func listen(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func allow(netip.AddrPort) error { return nil }

func TestDial(t *testing.T) {
	port := listen(t)
	c, addr, err := (&Dialer{Check: allow}).Dial(t.Context(), Direct(pin(port, "127.0.0.1")))
	if err != nil || addr != netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) {
		t.Fatalf("%v %v", addr, err)
	}
	c.Close()
}

// TestDialRefuses: the zero values reach nothing, and every address is checked.
func TestDialRefuses(t *testing.T) {
	port := listen(t)
	if _, _, err := (&Dialer{}).Dial(t.Context(), Direct(pin(port, "127.0.0.1"))); !errors.Is(err, ErrNoCheck) {
		t.Errorf("without a check: %v", err)
	}
	if _, _, err := (&Dialer{Check: allow}).Dial(t.Context(), Destination{}); !errors.Is(err, ErrNoAddress) {
		t.Errorf("the zero destination: %v", err)
	}
	refused := errors.New("refused by the check")
	d := &Dialer{Check: func(netip.AddrPort) error { return refused }}
	for _, p := range []resolve.Pinned{pin(port, "127.0.0.1"), pin(port, "127.0.0.1", "127.0.0.2")} {
		if c, _, err := d.Dial(t.Context(), Direct(p)); !errors.Is(err, refused) {
			t.Errorf("check ignored: %v %v", c, err)
		}
	}
}

// TestRace: a dead address falls back to the next, and only pinned addresses are tried (DNS-03, DNS-10).
func TestRace(t *testing.T) {
	port := listen(t)
	var mu sync.Mutex
	var tried []string
	d := &Dialer{Check: func(a netip.AddrPort) error {
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, a.Addr().String())
		return nil
	}}
	c, addr, err := d.Dial(t.Context(), Direct(pin(port, "127.0.0.9", "127.0.0.1", "127.0.0.8")))
	if err != nil || addr.Addr().String() != "127.0.0.1" {
		t.Fatalf("%v %v", addr, err)
	}
	c.Close()
	if !slices.Equal(tried, []string{"127.0.0.9", "127.0.0.1"}) {
		t.Errorf("tried %v", tried)
	}
	if _, _, err := d.Dial(t.Context(), Direct(pin(port, "127.0.0.9", "127.0.0.8"))); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("all dead: %v", err)
	}
}

// TestStagger: an address that says nothing does not hold up the next for longer than the stagger.
func TestStagger(t *testing.T) {
	port := listen(t)
	// The check runs right before the connect, so it stands for a connect that hangs.
	release := make(chan struct{})
	d := &Dialer{Stagger: 20 * time.Millisecond, Check: func(a netip.AddrPort) error {
		if a.Addr().String() == "127.0.0.5" {
			<-release
			return errors.New("late")
		}
		return nil
	}}
	c, addr, err := d.Dial(t.Context(), Direct(pin(port, "127.0.0.5", "127.0.0.1")))
	close(release)
	if err != nil || addr.Addr().String() != "127.0.0.1" {
		t.Fatalf("%v %v", addr, err)
	}
	c.Close()
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := (&Dialer{Check: allow}).Dial(ctx, Direct(pin(listen(t), "127.0.0.1"))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestInterleave(t *testing.T) {
	got := interleave(Direct(pin(1, "192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3", "2001:db8::2")).addrs())
	want := []string{"192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2", "192.0.2.3"}
	for i, a := range got {
		if a.Addr().String() != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
