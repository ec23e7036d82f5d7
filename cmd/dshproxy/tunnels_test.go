//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestTunnels runs programs that need more than the variables, or speak no HTTP, through the program as a user starts it.
func TestTunnels(t *testing.T) {
	s := newScene(t)
	t.Run("connect", func(t *testing.T) { s.testConnect(t) })
	t.Run("git over ssh", func(t *testing.T) { s.testSSH(t) })
	t.Run("grpc", func(t *testing.T) { s.testGRPC(t) })
}

// deny names a host that the proxy refuses, and tells the scene.
func (s *scene) deny(host string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = append(s.denied, host)
	return host
}

// testConnect has the command find the proxy in the variables alone.
func (s *scene) testConnect(t *testing.T) {
	dir := t.TempDir()
	request := "GET /hello.txt HTTP/1.1\r\nHost: " + s.authority(allowedHost, "http") + "\r\nConnection: close\r\n\r\n"
	o := execute(t, dir, s.environment(t, dir), request, s.program, "connect", allowedHost, s.ports["http"])
	if o.exit != 0 || !strings.HasPrefix(o.stdout, "HTTP/1.1 200 OK\r\n") || !strings.Contains(o.stdout, greeting) || o.stderr != "" {
		t.Errorf("allowed: exit code %d\n%s", o.exit, o)
	}
	target := net.JoinHostPort(s.deny("connect.denied.test"), s.ports["http"])
	o = execute(t, dir, s.environment(t, dir), request, s.program, "connect", "connect.denied.test", s.ports["http"])
	for _, want := range []string{
		"# [network: denied] whitelist mode: no rule allows this target\n", "# target: " + target + "\n", "\n# This is policy, not an outage.",
		"\ndshproxy: error: connect: the proxy answers 403 Forbidden by dshproxy: no rule allows " + target + "\n",
	} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("denied: stderr has no %q", want)
		}
	}
	if o.exit != exitDeny || o.stdout != "" {
		t.Errorf("denied: exit code %d\n%s", o.exit, o)
	}
}

// sshScene is a repository that only ssh leads to.
type sshScene struct {
	port   string
	config string // of the client
	path   string // of the repository
}

// testSSH clones over ssh with the command that dshproxy env prints, evaluated in a shell.
func (s *scene) testSSH(t *testing.T) {
	d := newSSHScene(t)
	clone := func(dir, host string) outcome {
		script := `eval "$("$1" env --proxy "$2" --for git)" && GIT_SSH_COMMAND="$GIT_SSH_COMMAND -F $3" exec git clone -q "$4" repo`
		return execute(t, dir, s.environment(t, dir), "", "sh", "-c", script, "sh", s.program, s.proxy, d.config, "ssh://"+net.JoinHostPort(host, d.port)+d.path)
	}
	dir := t.TempDir()
	if o := clone(dir, allowedHost); o.exit != 0 {
		t.Fatalf("allowed: exit code %d\n%s", o.exit, o)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "repo", "greeting.txt")); !strings.Contains(string(text), greeting) {
		t.Errorf("cloned %q, %v", text, err)
	}
	// The same from the client's own settings, as --for ssh prints them.
	text, err := exec.CommandContext(t.Context(), s.program, "env", "--shell", "json", "--proxy", s.proxy, "--for", "ssh").Output()
	check(t, err)
	var printed struct{ Settings []clientFile }
	check(t, json.Unmarshal(text, &printed))
	config, err := os.ReadFile(d.config)
	check(t, err)
	write(t, dir, "ssh_config", string(config)+printed.Settings[0].Text)
	o := execute(t, dir, s.environment(t, dir), "typed", "ssh", "-F", "ssh_config", "-p", d.port, allowedHost, "cat; echo", greeting)
	if o.exit != 0 || o.stdout != "typed"+greeting+"\n" {
		t.Errorf("ssh: exit code %d\n%s", o.exit, o)
	}
	host := s.deny("ssh.denied.test")
	o = clone(t.TempDir(), host)
	if want := "the proxy answers 403 Forbidden by dshproxy: no rule allows " + net.JoinHostPort(host, d.port); o.exit != 128 || !strings.Contains(o.stderr, want) {
		t.Errorf("denied: exit code %d, want 128, and %q in\n%s", o.exit, want, o)
	}
	if n := s.names.asked(host); n != 0 {
		t.Errorf("%s was looked up %d times, want 0", host, n)
	}
}

func newSSHScene(t *testing.T) *sshScene {
	t.Helper()
	command("ssh")(t)
	git, dir := command("git")(t), t.TempDir()
	for _, key := range []string{"host", "client"} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	public := func(key string) string {
		text, err := os.ReadFile(filepath.Join(dir, key+".pub"))
		check(t, err)
		return string(text)
	}
	me, err := user.Current()
	check(t, err)
	write(t, dir, "authorized_keys", public("client"))
	write(t, dir, "sshd_config", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %[1]s/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n"+
		"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nAllowUsers %s\n", dir, me.Username))
	d := &sshScene{port: startSSHD(t, dir), config: filepath.Join(dir, "ssh_config"), path: bareRepository(t, git)}
	write(t, dir, "known_hosts", fmt.Sprintf("[%s]:%s %s", allowedHost, d.port, public("host")))
	write(t, dir, "ssh_config", fmt.Sprintf("Host *\n  User %s\n  IdentityFile %s/client\n  IdentitiesOnly yes\n  IdentityAgent none\n"+
		"  UserKnownHostsFile %[2]s/known_hosts\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n  BatchMode yes\n", me.Username, dir))
	return d
}

// startSSHD answers each connection on a free port with an sshd of its own, as inetd would, and ends them all with the
// test.
func startSSHD(t *testing.T, dir string) (port string) {
	t.Helper()
	const program, separation = "/usr/sbin/sshd", "/run/sshd"
	if _, err := os.Stat(program); err != nil {
		missing(t, "sshd is not installed: run .ci/clients, or apt-get install openssh-server")
	}
	if _, err := os.Stat(separation); err != nil && os.Getuid() == 0 {
		missing(t, "%s does not exist, and sshd wants it: run .ci/clients", separation)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	logFile := filepath.Join(dir, "sshd.log")
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			f, err := c.(*net.TCPConn).File()
			c.Close()
			if err != nil {
				t.Error(err)
				return
			}
			cmd := exec.CommandContext(t.Context(), program, "-i", "-f", filepath.Join(dir, "sshd_config"), "-E", logFile)
			cmd.Stdin, cmd.Stdout = f, f
			running.Go(func() {
				defer f.Close()
				_ = cmd.Run() // how it ends, the client says
			})
		}
	})
	t.Cleanup(func() { // t.Context has ended by now, and with it every sshd
		l.Close()
		running.Wait()
		if text, err := os.ReadFile(logFile); t.Failed() && err == nil {
			t.Logf("sshd says:\n%s", text)
		}
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
