//go:build !linux

package proxy

import "net"

// writeLast writes what is followed by a half-close at once.
func writeLast(c net.Conn, b []byte) error {
	_, err := c.Write(b)
	return err
}
