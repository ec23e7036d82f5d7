//go:build unix

package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// isQuiet reports whether an idle connection is open and has nothing to read.
func isQuiet(c *net.TCPConn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = rc.Control(func(fd uintptr) {
		events := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(events[:], 0)
		quiet = n == 0 && err == nil
	})
	return err == nil && quiet
}
