//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// countedCalls are the system calls that a tunnel makes by itself. How often the scheduler waits, wakes and polls depends on
// the machine.
const countedCalls = "accept4,socket,connect,bind,getsockname,getpeername,setsockopt,getsockopt,epoll_ctl,read,write,readv,writev," +
	"recvfrom,sendto,splice,pipe2,fcntl,shutdown,close,openat,fstat,newfstatat"

// TestSystemCalls guards what a connection costs in system calls, which noise cannot explain: a tunnel that carries a byte each
// way, and a denial.
func TestSystemCalls(t *testing.T) {
	strace := command("strace")(t)
	if out, err := exec.Command(strace, "-c", "-o", os.DevNull, "/bin/true").CombinedOutput(); err != nil {
		t.Skipf("nothing can be traced here: %v %s", err, out)
	}
	dir := t.TempDir()
	program := buildProgram(t, dir)
	origin := echoOrigin(t)
	const n = 300
	for _, tt := range []struct {
		name, target, answer string
		most                 float64 // of one connection
	}{
		{"tunnel", origin, "200", 30},
		{"denial", "127.0.0.9:9", "403", 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			counts := filepath.Join(t.TempDir(), "counts")
			wrapped := filepath.Join(t.TempDir(), "traced")
			// -D: the program keeps the process id, so that it is what the test stops.
			script := fmt.Sprintf("#!/bin/sh\nexec %s -D -f -c -U calls,name -e trace=%s -o %s %s \"$@\"\n", strace, countedCalls, counts, program)
			check(t, os.WriteFile(wrapped, []byte(script), 0o700)) //nolint:gosec // it is a program
			p := startProcess(t, wrapped, "rules:\n  - match: { network: { ips: [127.0.0.1] } }\n    action: allow\n    reason: the origin\n", "")
			for range n {
				oneTunnel(t, p.addresses["proxy"], tt.target, tt.answer)
			}
			p.end(t)
			total := 0.0
			if !eventually(t, 10*time.Second, func() bool {
				text, err := os.ReadFile(counts)
				total = callsOf(string(text))
				return err == nil && total > 0
			}) {
				t.Fatal("no counts")
			}
			const starting = 150 // calls to start and stop, about
			each := (total - starting) / n
			t.Logf("%.1f calls, %.0f in all", each, total)
			if each > tt.most {
				t.Errorf("%.1f system calls, want at most %.0f", each, tt.most)
			}
			if total < 8*n {
				t.Errorf("only %.0f system calls were counted", total)
			}
		})
	}
}

// callsOf adds up the first column of a summary.
func callsOf(summary string) (total float64) {
	for line := range strings.Lines(summary) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			total += n
		}
	}
	return total
}

// oneTunnel opens a tunnel, sends a byte through it and back, and closes it.
func oneTunnel(t *testing.T, proxy, target, answer string) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	check(t, err)
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target)
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	check(t, err)
	if !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 "+answer) {
		t.Fatalf("got %q", buf[:n])
	}
	if answer != "200" {
		_, _ = io.Copy(io.Discard, c)
		return
	}
	_, err = c.Write([]byte{0x80})
	check(t, err)
	if _, err := io.ReadFull(c, buf[:1]); err != nil || buf[0] != 0x80 {
		t.Fatalf("%x %v", buf[0], err)
	}
}

// echoOrigin gives back what it gets.
func echoOrigin(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}
