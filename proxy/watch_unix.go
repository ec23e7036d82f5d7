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

// watchClient notices that the client left while the origin thinks, without reading a byte: a reset ends the exchange,
// an end of stream puts it on the half-close clock, for some clients close their side and still wait. The result ends
// the watch and waits until it has ended. With a request body the pump reads the client already.
func (x *exchange) watchClient(hasBody bool) (stop func()) {
	client, ok := x.nc.(syscall.Conn)
	if hasBody || !ok {
		return func() {}
	}
	var mu sync.Mutex
	stopped, running := false, make(chan struct{})
	timer := time.AfterFunc(watchAfter, func() {
		defer close(running)
		mu.Lock()
		if stopped {
			mu.Unlock()
			return
		}
		mu.Unlock()
		x.watch(client)
	})
	return func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		if timer.Stop() {
			return
		}
		_ = x.nc.SetReadDeadline(time.Unix(1, 0))
		<-running
		_ = x.nc.SetReadDeadline(time.Time{})
	}
}

// watch waits for the first thing that happens on the client's side.
func (x *exchange) watch(client syscall.Conn) {
	defer x.srv.recovered()
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
		x.fl.note("client", "error")
		x.fl.end()
	default:
		x.fl.half.Store(true)
	}
}
