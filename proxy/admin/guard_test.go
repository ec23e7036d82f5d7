package admin

import (
	"net"
	"testing"
)

// TestHosts: only names of the listener's own are its own, in every spelling (SELF-09, SELF-15).
func TestHosts(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9129}
	port80 := &net.TCPAddr{IP: net.IPv6loopback, Port: 80}
	lan := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 9129}
	everywhere := &net.TCPAddr{IP: net.IPv6unspecified, Port: 9129}
	socket := &net.UnixAddr{Name: "/run/s", Net: "unix"}
	tests := []struct {
		addr net.Addr
		host string
		own  bool
	}{
		{loopback, "127.0.0.1:9129", true},
		{loopback, "127.255.0.1:9129", true},
		{loopback, "localhost:9129", true},
		{loopback, "LOCALHOST:9129", true},
		{loopback, "[::1]:9129", true},
		{loopback, "[::ffff:127.0.0.1]:9129", true},
		{loopback, "127.0.0.1:9128", false},
		{loopback, "127.0.0.1", false},
		{loopback, "127.0.0.1:", false},
		{loopback, "127.0.0.1:09129", false},
		{loopback, "127.0.0.1:9129:9129", false},
		{loopback, "localhost.:9129", false},
		{loopback, "localhost.evil.example:9129", false},
		{loopback, "evil.example:9129", false},
		{loopback, "127.0.0.1.evil.example:9129", false},
		{loopback, "0x7f.1:9129", false},
		{loopback, "127.1:9129", false},
		{loopback, "2130706433:9129", false},
		{loopback, "0.0.0.0:9129", false},
		{loopback, "192.0.2.7:9129", false},
		{loopback, "::1:9129", false},
		{loopback, "[127.0.0.1]:9129", false},
		{loopback, "[localhost]:9129", false},
		{loopback, "[::1%25lo]:9129", false},
		{loopback, "[::1]9129", false},
		{loopback, "[::1", false},
		{loopback, "u@localhost:9129", false},
		{loopback, "", false},
		{loopback, ":9129", false},
		{loopback, "admin.test", true},
		{loopback, "ADMIN.test:9129", true},
		{loopback, "admin.test:9130", false},
		{loopback, "admin.test:", false},
		{loopback, "ported.test:8443", true},
		{loopback, "ported.test", false},
		{loopback, "ported.test:9129", false},
		{port80, "localhost", true},
		{port80, "[::1]", true},
		{port80, "localhost:80", true},
		{port80, "localhost:8080", false},
		{lan, "192.0.2.7:9129", true},
		{lan, "127.0.0.1:9129", true},
		{lan, "192.0.2.8:9129", false},
		{everywhere, "127.0.0.1:9129", true},
		{everywhere, "[::]:9129", false},
		{everywhere, "192.0.2.7:9129", false},
		{socket, "", true},
		{socket, "localhost", true},
		{socket, "unix", true},
		{socket, "127.0.0.1", true},
		{socket, "localhost:80", true},
		{socket, "evil.example", false},
		{socket, "192.0.2.7", false},
		{socket, "admin.test", true},
		{nil, "localhost", false},
		{nil, "", false},
		{nil, "admin.test", true},
	}
	for _, tt := range tests {
		h := newHosts(tt.addr, []string{"Admin.test", "ported.test:8443", ""})
		if got := h.own(tt.host); got != tt.own {
			t.Errorf("listener %v, Host %q: own %v", tt.addr, tt.host, got)
		}
	}
	var zero hosts
	if zero.own("localhost:80") || zero.own("") || zero.ownOrigin("http://localhost") {
		t.Error("the zero value knows hosts")
	}
}

// TestOrigins: SELF-10.
func TestOrigins(t *testing.T) {
	tcp := newHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9129}, []string{"admin.test", "ported.test:8443"})
	socket := newHosts(&net.UnixAddr{Name: "/run/s", Net: "unix"}, []string{"admin.test"})
	tests := []struct {
		hosts  *hosts
		origin string
		own    bool
	}{
		{&tcp, "http://127.0.0.1:9129", true},
		{&tcp, "http://localhost:9129", true},
		{&tcp, "https://127.0.0.1:9129", false},
		{&tcp, "http://127.0.0.1:3000", false},
		{&tcp, "http://127.0.0.1", false},
		{&tcp, "http://evil.example:9129", false},
		{&tcp, "http://127.0.0.1:9129/", false},
		{&tcp, "http://127.0.0.1:9129@evil.example", false},
		{&tcp, "http://127.0.0.1:9129 http://evil.example", false},
		{&tcp, "ftp://127.0.0.1:9129", false},
		{&tcp, "127.0.0.1:9129", false},
		{&tcp, "null", false},
		{&tcp, "", false},
		{&tcp, "https://admin.test", true},
		{&tcp, "http://admin.test:9129", true},
		{&tcp, "ftp://admin.test", false},
		{&tcp, "https://ported.test:8443", true},
		{&tcp, "https://ported.test", false},
		{&socket, "http://localhost", false},
		{&socket, "http://", false},
		{&socket, "https://admin.test", true},
	}
	for _, tt := range tests {
		if got := tt.hosts.ownOrigin(tt.origin); got != tt.own {
			t.Errorf("%q: own %v", tt.origin, got)
		}
	}
}

func FuzzHosts(f *testing.F) {
	for _, s := range []string{"localhost:9129", "[::1]:9129", "a:b:c", "[", "]:", "127.0.0.1:9129", "admin.test"} {
		f.Add(s)
	}
	h := newHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9129}, nil)
	f.Fuzz(func(t *testing.T, host string) {
		if !h.own(host) {
			return
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil || port != "9129" {
			t.Fatalf("%q is own without the port: %v", host, err)
		}
		if ip := net.ParseIP(name); len(name) != len("localhost") && (ip == nil || !ip.IsLoopback()) {
			t.Fatalf("%q is own and no loopback address", host)
		}
	})
}
