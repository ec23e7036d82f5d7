package proxy

import (
	"net"
	"sync"
	"time"
)

// originStream is the target side of a tunnel.
type originStream = net.TCPConn

// tunnel moves bytes between a client and a target until both sides have ended.
type tunnel struct {
	srv    *Server
	client net.Conn
	target *originStream
	slot   *client
	fl     *flight
	// bytes that were read before the tunnel began and go first
	toTarget, toClient []byte
	headLen            int // of toClient: our own words, which are not counted

	once sync.Once
	mu   sync.Mutex
	done int // directions that have ended
}

func (t *tunnel) start() {
	t.srv.flights.launch(t.fl, t.srv.Gate)
	go t.copyToTarget()
	go t.copyToClient()
}

func (t *tunnel) copyToTarget() {
	defer t.ended()
	early := t.toTarget
	t.toTarget = nil
	t.half(t.target, t.client, early, 0, t.fl.in.Add, "client", "target")
}

func (t *tunnel) copyToClient() {
	defer t.ended()
	early := t.toClient
	t.toClient = nil
	t.half(t.client, t.target, early, t.headLen, t.fl.out.Add, "target", "client")
}

// half is one direction: early bytes, then a relay to the end of src, then a half-close that tells dst so. Anything but
// a clean end closes both sides.
func (t *tunnel) half(dst, src net.Conn, early []byte, uncounted int, count func(int64) int64, srcName, dstName string) {
	p := pump{dst: dst, src: src, fl: t.fl, count: count, pools: t.srv.pools, pipes: t.srv.pipes, limit: t.srv.Limits.TunnelBytes}
	if len(early) > 0 {
		if _, err := dst.Write(early); err != nil {
			t.fl.note(dstName, "error")
			t.close()
			return
		}
		count(int64(len(early) - uncounted))
		t.fl.touch()
	}
	switch end := p.run(); end {
	case endEOF:
		t.fl.note(srcName, "eof")
		t.fl.half.Store(true)
		t.fl.touch()
		if t.otherEnded() {
			return // both are closed at once
		}
		if half, ok := dst.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.close()
		}
	case endBytes:
		t.fl.note("proxy", "bytes")
		t.close()
	case endRead:
		t.fl.note(srcName, "error")
		t.close()
	case endWrite:
		t.fl.note(dstName, "error")
		t.close()
	}
}

func (t *tunnel) otherEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done > 0
}

// ended is called by each direction; the second closes both sides and the books.
func (t *tunnel) ended() {
	if p := recover(); p != nil {
		t.srv.Log.Error("internal error", "panic", p)
		t.fl.note("proxy", "internal_error")
		t.close()
	}
	t.mu.Lock()
	t.done++
	last := t.done == 2
	t.mu.Unlock()
	if !last {
		return
	}
	t.close()
	t.srv.flights.remove(t.fl)
	t.srv.clients.leave(t.slot)
	record := t.fl.land(time.Now())
	for _, o := range t.srv.Observers {
		o.Closed(&record)
	}
}

// close ends both sides at once, and with that both directions.
func (t *tunnel) close() {
	t.once.Do(func() {
		t.client.Close()
		t.target.Close()
	})
}

// relayEnd is why a direction ended.
type relayEnd uint8

const (
	endEOF relayEnd = iota
	endRead
	endWrite
	endBytes
)
