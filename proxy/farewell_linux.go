package proxy

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// writeLast writes what is followed by a half-close at once: the bytes and the end of the stream then leave in one
// segment, and the client wakes once for both.
func writeLast(c net.Conn, b []byte) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		_, err := c.Write(b)
		return err
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = rc.Write(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			switch {
			case err == nil:
				b = b[n:]
			case errors.Is(err, unix.EAGAIN):
				return false
			case !errors.Is(err, unix.EINTR):
				sendErr = err
				return true
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return sendErr
}
