package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"dshproxy/netrule"
)

// BenchmarkOpening is what looking at the first bytes of a tunnel costs, apart from the tunnel.
func BenchmarkOpening(b *testing.B) {
	policy := netrule.NewPolicy(netrule.Options{Mode: netrule.AllowAll})
	srv := &Server{Gate: &Gate{Policies: func(string) (*netrule.Policy, error) { return policy, nil }}}
	srv.init()
	defer close(srv.stopSweep)
	target, err := netrule.ParseConnect("a.test:443")
	if err != nil {
		b.Fatal(err)
	}
	for name, first := range map[string][]byte{
		"other": []byte("\x00\x01\x02"), "SSH": []byte("SSH-2.0-OpenSSH_9.6\r\n"), "TLS": helloOf(b, &tls.Config{ServerName: "a.test"}),
	} {
		b.Run(name, func(b *testing.B) {
			t := &tunnel{srv: srv, fl: &flight{policy: policy, query: netrule.Query{Target: target}}}
			b.ReportAllocs()
			for b.Loop() {
				t.opening = opening{tunnel: t}
				if _, next, code := t.opening.take(first, false); next != stepPass {
					b.Fatal(next, code)
				}
			}
		})
	}
}

// TestOpeningAllocates: a tunnel that is not TLS costs nothing beside itself.
func TestOpeningAllocates(t *testing.T) {
	policy := netrule.NewPolicy(netrule.Options{Mode: netrule.AllowAll})
	srv := &Server{Gate: &Gate{Policies: func(string) (*netrule.Policy, error) { return policy, nil }}}
	srv.init()
	defer close(srv.stopSweep)
	one := &tunnel{srv: srv, fl: &flight{policy: policy}}
	first := []byte("\x00bytes")
	src := &plainReader{io.MultiReader(), make([]byte, 10)}
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go io.Copy(io.Discard, server)
	pools, count := newBufferPools(), one.fl.in.Add
	if n := testing.AllocsPerRun(100, func() {
		one.opening = opening{tunnel: one}
		p := pump{dst: client, fl: one.fl, count: count, pools: pools, first: &one.opening}
		if end, done := p.beginWith(first, src); done {
			t.Fatal(end)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
