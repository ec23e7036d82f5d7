//go:build unix

package proxy

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchAfter is how long a response may take before somebody looks whether the client is still there.
const watchAfter = time.Second

// watchClient watches while the origin thinks: a reset ends the exchange, an end of stream puts it on the half-close
// clock, for some clients close their side and still wait. With a request body the pump reads the client already.
func (x *exchange) watchClient(hasBody bool) (stop func()) {
	if hasBody {
		return func() {}
	}
	return x.watchFor(watchAfter, func() {
		x.fl.note("client", "error")
		x.fl.end()
	}, func() { x.fl.half.Store(true) })
}

// watchFor notices what the client does while somebody waits for something else, without reading a byte, from a moment
// on. The result ends the watch and waits until it has ended.
func (c *conn) watchFor(after time.Duration, gone, ended func()) (stop func()) {
	client, ok := c.nc.(syscall.Conn)
	if !ok {
		return func() {}
	}
	var mu sync.Mutex
	stopped, running := false, make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(running)
		mu.Lock()
		if stopped {
			mu.Unlock()
			return
		}
		mu.Unlock()
		c.peek(client, gone, ended)
	})
	return func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		if timer.Stop() {
			return
		}
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-running
		_ = c.nc.SetReadDeadline(time.Time{})
	}
}

// peek waits for the first thing that happens on the client's side.
func (c *conn) peek(client syscall.Conn, gone, ended func()) {
	defer c.srv.recovered()
	rc, err := client.SyscallConn()
	if err != nil {
		return
	}
	var n int
	var peekErr error
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(peekErr, unix.EAGAIN)
	})
	switch {
	case err != nil, n > 0 && peekErr == nil:
	case peekErr != nil:
		gone()
	default:
		ended()
	}
}
