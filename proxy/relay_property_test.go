package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// side is what one end of a tunnel does: it sends so many bytes in pieces of its own, reads at its own pace, and ends in
// its own way.
type side struct {
	sends   int
	piece   int
	reads   int  // bytes a read
	resets  bool // after what it sends
	patient bool // ends only once the other one has
}

func randomSide(r *rand.Rand) side {
	sizes := []int{0, 1, 10, 1000, 40_000, 300_000, 3_000_000}
	pieces := []int{1, 100, 5000, 70_000, 1 << 20}
	s := side{sends: sizes[r.IntN(len(sizes))], piece: pieces[r.IntN(len(pieces))], reads: pieces[1+r.IntN(len(pieces)-1)], resets: r.IntN(8) == 0, patient: r.IntN(3) == 0}
	if s.piece == 1 {
		s.sends = min(s.sends, 2000)
	}
	if s.reads == 100 {
		s.reads = 1000
	}
	return s
}

// pattern is what a side sends: never a beginning of TLS or of text, so that nothing is held.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8(sha256.Sum256(fmt.Append(nil, seed)))
	_, _ = src.Read(b)
	if n > 0 {
		b[0] = 0
	}
	return b
}

// play carries out a side and gives what it received, and whether that ended cleanly.
func (s side) play(c *net.TCPConn, r io.Reader, out []byte) (received []byte, clean bool) {
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for rest := out; len(rest) > 0; {
			n := min(s.piece, len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		if s.patient && !s.resets {
			<-ended
		}
		if s.resets {
			_ = c.SetLinger(0)
			c.Close()
			return
		}
		_ = c.CloseWrite()
	})
	buf := make([]byte, s.reads)
	for {
		n, err := r.Read(buf)
		received = append(received, buf[:n]...)
		if err != nil {
			clean = errors.Is(err, io.EOF)
			break
		}
	}
	close(ended)
	wg.Wait()
	return received, clean
}

// TestTunnelIsACopier: what comes out of a tunnel is what went in, in order, whatever the sizes, the pace and the way in
// which either side ends. Where a side resets, what arrived of its bytes is a beginning of them.
func TestTunnelIsACopier(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	runs, tunnels := 60, 0
	if testing.Short() {
		runs = 10
	}
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		client, server := randomSide(r), randomSide(r)
		if client.patient && server.patient {
			server.patient = false
		}
		up, down := pattern(seed, client.sends), pattern(seed+1000, server.sends)
		type result struct {
			got   []byte
			clean bool
		}
		served := make(chan result, 1)
		o := newOrigin(t, func(c *net.TCPConn, br *bufio.Reader) {
			got, clean := server.play(c, br, down)
			served <- result{got, clean}
		})
		c := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", o.port))
		if r := c.response("CONNECT"); r.StatusCode == 502 && server.resets {
			c.Close() // it was gone before it was there
			<-served
			continue
		} else if r.StatusCode != 200 {
			t.Fatalf("seed %d: %s", seed, r.Status)
		}
		tunnels++
		got, clean := client.play(c.TCPConn, c.r, up)
		c.Close()
		s := <-served
		name := fmt.Sprintf("seed %d, client %+v, server %+v", seed, client, server)
		if !bytes.HasPrefix(down, got) || !bytes.HasPrefix(up, s.got) {
			t.Fatalf("%s: other bytes came out", name)
		}
		if !client.resets && !server.resets && (len(got) != len(down) || len(s.got) != len(up) || !clean || !s.clean) {
			t.Fatalf("%s: %d of %d bytes down (clean %v), %d of %d up (clean %v)", name, len(got), len(down), clean, len(s.got), len(up), s.clean)
		}
	}
	w.await("every close", func() bool { return len(w.closes) == tunnels })
	for _, cl := range w.closes {
		if cl.Why == "" || cl.ClosedBy == "" {
			t.Errorf("%+v", cl)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); w.srv.Active() > 0; time.Sleep(time.Millisecond) { // the last answer is being read
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are held", w.srv.Active())
		}
	}
}

// TestTunnelLimitIsExact: a byte limit ends a tunnel at that byte, both directions together, copied or spliced.
func TestTunnelLimitIsExact(t *testing.T) {
	for _, limit := range []int64{1, 1000, 300_000, 2_000_000} {
		w := newWorld(t, allowNames, withLimits(Limits{TunnelBytes: limit}))
		w.name("allowed.test", "127.0.0.1")
		o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
			_, _ = c.Write(make([]byte, 3_000_000))
			io.Copy(io.Discard, r)
		})
		c := w.tunnelTo("allowed.test", o.port)
		n, _ := io.Copy(io.Discard, c.r)
		w.await("the close", func() bool { return len(w.closes) == 1 })
		if cl := w.closes[0]; n > limit || cl.BytesIn+cl.BytesOut != limit || cl.Why != "bytes" {
			t.Errorf("limit %d: %d bytes came, %+v", limit, n, cl)
		}
	}
}
