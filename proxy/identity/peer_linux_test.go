package identity

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// pair gives both ends of a connection.
func pair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = (&net.Dialer{}).DialContext(t.Context(), network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestPeerUID(t *testing.T) {
	_, server := pair(t, "unix", filepath.Join(t.TempDir(), "s"))
	if uid, ok := PeerUID(server); !ok || uid != os.Getuid() {
		t.Errorf("unix: %d %v, want %d", uid, ok, os.Getuid())
	}
	server.Close()
	if uid, ok := PeerUID(server); ok || uid != 0 {
		t.Errorf("closed: %d %v", uid, ok)
	}
	_, server = pair(t, "tcp", "127.0.0.1:0")
	if uid, ok := PeerUID(server); ok || uid != 0 {
		t.Errorf("tcp: %d %v", uid, ok)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if uid, ok := PeerUID(a); ok || uid != 0 {
		t.Errorf("a pipe of Go's: %d %v", uid, ok)
	}
}
