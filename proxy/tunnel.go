package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// tunnel moves bytes between a client and a target until both sides have ended. Unless it has been looked at before, what
// the client sends first is held until it is known what it is.
type tunnel struct {
	*party
	srv    *Server
	client net.Conn
	target net.Conn
	slot   *client
	fl     *flight
	// bytes that were read before the tunnel began and go first
	toTarget, toClient []byte
	headLen            int // of toClient: our own words, which are not counted
	opening            opening
	open               bool // the opening is to be looked at
	inward, outward    pump

	// taken says that the side that reads the client has something else to do with both connections: the other side ends
	// without a word.
	taken   atomic.Bool
	answers sync.WaitGroup // the side that reads the target

	closed atomic.Bool
	mu     sync.Mutex
	done   int  // directions that have ended
	left   bool // the client's connection and slot have gone to another tunnel
}

func (t *tunnel) start() {
	t.srv.launch(t.fl)
	t.opening.tunnel = t
	t.answers.Add(1)
	go t.copyToTarget()
	go t.copyToClient()
}

// copyToTarget looks at what the client sends first, if that is wanted. Where looking has grown the stack, it leaves the
// rest to a fresh goroutine: a tunnel may be idle for long.
func (t *tunnel) copyToTarget() {
	early := t.toTarget
	t.toTarget = nil
	p := t.pump(&t.inward, t.target, t.client, true)
	if !t.open {
		t.half(p, early, 0, "client", "target")
		return
	}
	switch over := t.opens(p, early); {
	case over:
	case t.opening.deep:
		go t.half(p, nil, 0, "client", "target")
	default:
		t.half(p, nil, 0, "client", "target")
	}
}

// opens looks at the first bytes, and reports whether that was the end of the direction.
func (t *tunnel) opens(p *pump, early []byte) (over bool) {
	defer func() {
		if r := recover(); r != nil || over {
			t.ended(r)
			over = true
		}
	}()
	p.first = &t.opening
	end, over := p.begin(early)
	if over {
		t.finish(p, end, "client", "target")
	}
	return over
}

func (t *tunnel) copyToClient() {
	defer t.answers.Done()
	early := t.toClient
	t.toClient = nil
	t.half(t.pump(&t.outward, t.client, t.target, false), early, t.headLen, "target", "client")
}

func (t *tunnel) pump(p *pump, dst, src net.Conn, inward bool) *pump {
	p.dst, p.src, p.fl, p.inward, p.pools, p.pipes = dst, src, t.fl, inward, t.srv.pools, t.srv.pipes
	return p
}

// half is one direction: early bytes, then a relay to the end of src.
func (t *tunnel) half(p *pump, early []byte, uncounted int, srcName, dstName string) {
	defer func() { t.ended(recover()) }()
	if len(early) > 0 {
		if _, err := p.dst.Write(early); err != nil {
			t.fail(dstName, "error")
			return
		}
		p.fl.carried(p.inward, int64(len(early)-uncounted))
		t.fl.touch()
	}
	t.finish(p, p.run(), srcName, dstName)
}

// finish ends a direction: a half-close tells dst so. Anything but a clean end closes both sides.
func (t *tunnel) finish(p *pump, end relayEnd, srcName, dstName string) {
	switch end {
	case endEOF:
		if t.taken.Load() {
			return
		}
		t.fl.note(srcName, "eof")
		t.fl.half.Store(true)
		t.fl.touch()
		if t.otherEnded() {
			return // both are closed at once
		}
		if half, ok := p.dst.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.close()
		}
	case endBytes:
		t.fail("proxy", "bytes")
	case endRead:
		t.fail(srcName, "error")
	case endWrite:
		t.fail(dstName, "error")
	case endRefused:
		t.refuse(p.code)
	case endHTTP:
		t.serveHTTP()
	case endInspect:
		t.inspect()
	}
}

// fail ends both sides, unless the other one has taken them over.
func (t *tunnel) fail(by, why string) {
	if t.taken.Load() {
		return
	}
	t.fl.note(by, why)
	t.close()
}

// refuse ends a tunnel whose first bytes may not pass.
func (t *tunnel) refuse(code netrule.Code) {
	t.fl.note("proxy", code.String())
	t.observeInside(code, t.fl.current().Target, t.opening.why, outcomeRefused)
	_ = t.client.SetWriteDeadline(time.Now().Add(lingerFor)) // a client that does not read is not waited for
	t.takeOver()
	t.target.Close()
	t.sayGoodbye(t.opening.tls)
	t.close()
}

// takeOver stops the side that reads the target, without losing a byte of it, and leaves both connections to the caller.
func (t *tunnel) takeOver() {
	t.taken.Store(true)
	_ = t.target.SetReadDeadline(time.Unix(1, 0)) // a closed connection ends the read by itself
	t.answers.Wait()
	_ = t.target.SetReadDeadline(time.Time{}) // as above
}

func (t *tunnel) otherEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done > 0
}

// ended is called by each direction, with what it panicked with; the second closes both sides and the books.
func (t *tunnel) ended(panicked any) {
	if panicked != nil {
		t.broken(panicked)
	}
	t.mu.Lock()
	t.done++
	last := t.done == 2
	t.mu.Unlock()
	if last {
		t.leave()
		t.record()
	}
}

// broken ends both directions after a panic in one.
//
//go:noinline
func (t *tunnel) broken(panicked any) {
	t.srv.Log.Error("internal error", "panic", panicked)
	t.fl.note("proxy", "internal_error")
	t.taken.Store(false)
	t.close()
}

// leave closes what is still open and gives back what the tunnel held.
//
//go:noinline
func (t *tunnel) leave() {
	if !t.left {
		t.close()
		t.srv.clients.leave(t.slot)
	}
	t.srv.flights.remove(t.fl)
}

// record closes the books. Like leave it is apart to keep the stack small: this is where a tunnel's is deepest.
//
//go:noinline
func (t *tunnel) record() {
	record := new(decisionlog.Close)
	t.fl.land(time.Now(), record)
	t.srv.closed(record)
}

// close ends both sides at once, and with that both directions.
func (t *tunnel) close() {
	if t.closed.Swap(true) {
		return
	}
	t.client.Close()
	t.target.Close()
}

// relayEnd is why a direction ended.
type relayEnd uint8

const (
	endEOF relayEnd = iota
	endRead
	endWrite
	endBytes
	endRefused // by what the client sent first
	endHTTP    // it is to be served as HTTP
	endInspect // its TLS is to be terminated
)
