package identity

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerUID gives the user of the process that connected to a unix socket, as the kernel noted it then (SO_PEERCRED). It
// is false for other connections and where the kernel does not know. A user that this process's user namespace has no
// id for shows as the overflow id, 65534 by default: do not give that one rights.
func PeerUID(c net.Conn) (uid int, ok bool) {
	local, isUnix := c.LocalAddr().(*net.UnixAddr)
	raw, hasRaw := c.(syscall.Conn)
	if !isUnix || local == nil || !hasRaw {
		return 0, false
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = rc.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && cred.Uid <= maxUID {
			uid, ok = int(cred.Uid), true
		}
	})
	return uid, ok && err == nil
}
