package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
)

// mallocs gives the allocations of n runs, each, of the whole process: clients and origins of the test included.
func mallocs(n int, run func()) float64 {
	run() // pools fill
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		run()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

// TestCosts guards what a request costs in allocations, which noise cannot explain. The bounds are what was measured and
// a tenth; where one is passed, look for what has begun to allocate, and raise it only with a reason.
func TestCosts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := newWorld(t, allowNames)
	w.srv.Observers = nil
	w.name("allowed.test", "127.0.0.1")
	bytes := newOrigin(t, func(c *net.TCPConn, _ *bufio.Reader) {
		var b [1]byte
		for {
			if _, err := c.Read(b[:]); err != nil {
				return
			}
			_, _ = c.Write(b[:])
		}
	})
	web := httpOrigin(t, func(*http.Request, string) string { return okReply("x") })
	connect := []byte(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", bytes.port))
	denied := []byte("CONNECT denied.test:443 HTTP/1.1\r\n\r\n")
	get := []byte(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", web.port))
	buf := make([]byte, 4096)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	kept := dial()
	defer kept.Close()
	for name, tt := range map[string]struct {
		most float64
		run  func()
	}{
		"tunnel": {97, func() {
			c := dial()
			_, _ = c.Write(connect)
			_, _ = io.ReadFull(c, buf[:len(established)])
			_, _ = c.Write([]byte{0x80})
			_, _ = io.ReadFull(c, buf[:1])
			c.Close()
		}},
		"denial": {42, func() {
			c := dial()
			_, _ = c.Write(denied)
			for {
				if _, err := c.Read(buf); err != nil {
					break
				}
			}
			c.Close()
		}},
		"kept request": {44, func() {
			_, _ = kept.Write(get)
			if n, err := kept.Read(buf); err != nil || n == 0 {
				t.Fatal(err)
			}
		}},
	} {
		got := mallocs(200, tt.run)
		t.Logf("%s: %.1f", name, got)
		if got > tt.most {
			t.Errorf("%s: %.1f allocations, want at most %.0f", name, got, tt.most)
		}
	}
}
