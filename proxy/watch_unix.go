//go:build unix

package proxy

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch notices what the client does while somebody waits for something else, without reading a byte.
type watch struct {
	conn *conn
	tell watcher

	mu      sync.Mutex
	timer   *time.Timer
	turn    int           // of start: the timer of an earlier one means nothing any more
	running chan struct{} // closed when the look is over; nil before it has begun
}

// start looks from a moment on.
func (w *watch) start(c *conn, after time.Duration, tell watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.tell, w.running = c, tell, nil
	w.turn++
	turn := w.turn
	w.timer = time.AfterFunc(after, func() { w.look(turn) })
}

// end waits until nobody looks any more. The connection is the caller's alone then.
func (w *watch) end() {
	w.mu.Lock()
	timer, running := w.timer, w.running
	w.timer = nil
	w.turn++
	w.mu.Unlock()
	if timer == nil {
		return
	}
	timer.Stop()
	if running == nil {
		return // it has not begun, and does not any more
	}
	_ = w.conn.nc.SetReadDeadline(time.Unix(1, 0))
	<-running
	_ = w.conn.nc.SetReadDeadline(time.Time{})
}

// look waits for the first thing that happens on the client's side.
func (w *watch) look(turn int) {
	w.mu.Lock()
	if w.turn != turn {
		w.mu.Unlock()
		return
	}
	running := make(chan struct{})
	w.running = running
	w.mu.Unlock()
	defer close(running)
	defer w.conn.srv.recovered()
	client, ok := w.conn.nc.(syscall.Conn)
	if !ok {
		return
	}
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
		w.tell.clientGone()
	default:
		w.tell.clientEnded()
	}
}
