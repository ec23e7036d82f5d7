//go:build linux

package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// testGRPC calls a plaintext gRPC server, to which the client asks for a tunnel. The client is a process of its own: the
// variables are read once.
func (s *scene) testGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		server.Stop()
		check(t, <-ended)
	}()
	self, err := os.Executable()
	check(t, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	call := func(host string) outcome {
		dir := t.TempDir()
		env := append(s.environment(t, dir), "CALL_GRPC="+net.JoinHostPort(host, port))
		return execute(t, dir, env, "", self, "-test.run=^TestCallGRPC$", "-test.v")
	}
	if o := call(allowedHost); o.exit != 0 || !strings.Contains(o.stdout, "answer: SERVING") {
		t.Errorf("allowed: exit code %d\n%s", o.exit, o)
	}
	host := s.deny("grpc.denied.test")
	want := "403 Forbidden by dshproxy: no rule allows " + net.JoinHostPort(host, port)
	if o := call(host); o.exit == 0 || !strings.Contains(o.stdout, want) {
		t.Errorf("denied: exit code %d, want %q in\n%s", o.exit, want, o)
	}
	if n := s.names.asked(host); n != 0 {
		t.Errorf("%s was looked up %d times, want 0", host, n)
	}
}

// TestCallGRPC is no test: it is the client of testGRPC.
func TestCallGRPC(t *testing.T) {
	target := os.Getenv("CALL_GRPC")
	if target == "" {
		t.Skip("only for TestTunnels")
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	check(t, err)
	t.Logf("answer: %s", answer.GetStatus())
}
