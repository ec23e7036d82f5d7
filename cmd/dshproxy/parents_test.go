//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	parentUser     = "user"
	parentPassword = "right-password"
	// parentHash is what "openssl passwd -5 -salt dshproxy right-password" prints.
	parentHash = "$5$dshproxy$ybqyuL8AyRULjAEutybYsSVDAO.hLTIzh.pcmyxx/44"

	nobody = 65534
)

// realParent is a proxy of others to go through.
type realParent struct {
	name string
	// command writes what the program needs into a folder, and gives its arguments and its environment.
	command func(t *testing.T, dir, port string, login bool) (args, env []string)
}

var realParents = []realParent{{"squid", squid}, {"tinyproxy", tinyproxy}}

// TestRealParents goes through proxies of others, with credentials and without. One that refuses ours is an upstream
// error, and never a reason to connect directly, which the settings would let us.
func TestRealParents(t *testing.T) {
	program, names := buildProgram(t, t.TempDir()), newNameServer(t)
	for _, parent := range realParents {
		for _, login := range []string{"none", "right", "wrong"} {
			t.Run(parent.name+"/"+login, func(t *testing.T) {
				t.Parallel()
				m := newMatrixOrigins(t, program, names)
				m.parents[parent.name] = "http://" + parent.start(t, login != "none")
				if login != "none" {
					m.login = filepath.Join(t.TempDir(), "login")
					placeFile(t, m.login, parentUser+":"+login+"-password\n")
				}
				m.testRealParent(t, parent.name, login)
			})
		}
	}
}

func (m *matrix) testRealParent(t *testing.T, name, login string) {
	p := m.startChild(t, name)
	good := expectation{verdict: "allow", code: "allowed_by_rule", outcome: "ok"}
	bad := expectation{verdict: "allow", code: "upstream_proxy_error", outcome: "failed"}
	wants := map[string]expectation{}
	for _, front := range []string{"connect", "absolute", "socks5"} {
		c := cell{target: "allow", front: front, way: name, want: good}
		if login == "wrong" {
			c.want = bad
		}
		got := m.ask(t, p, &c)
		if name == "tinyproxy" && login == "wrong" && front == "absolute" {
			// It answers a wrong password with 401, in which nothing tells it from an origin's: the client sees that.
			c.want = good
			if got.status != http.StatusUnauthorized || strings.Contains(got.body, greeting) {
				t.Errorf("status %d with the body %q, want 401", got.status, got.body)
			}
		} else {
			m.checkAnswer(t, &c, &got)
		}
		wants[c.host()] = c.want
		n := 0
		if login != "wrong" {
			n = 1
		}
		if asked := m.origin.asked(net.JoinHostPort(c.host(), m.port(&c))); asked != n {
			t.Errorf("%s: the origin got %d requests, want %d", front, asked, n)
		}
	}
	p.end(t)
	text, err := os.ReadFile(p.decisions)
	check(t, err)
	if strings.Contains(string(text)+p.log.String(), "-password") {
		t.Errorf("the password is in the log:\n%s%s", text, &p.log)
	}
	address := strings.TrimPrefix(m.parents[name], "http://")
	for _, r := range p.records(t) {
		want := wants[r.Host]
		is := r.Verdict + " " + r.Code + " " + r.Outcome + " " + r.Resolution
		if r.Msg == "decision" && (is != want.verdict+" "+want.code+" "+want.outcome+" delegated" || !strings.HasSuffix(r.Upstream, address)) {
			t.Errorf("record: %+v", r)
		}
	}
	if n := m.origin.asked(connections); login == "wrong" && n > 0 || login != "wrong" && n == 0 {
		t.Errorf("the origin got %d connections", n)
	}
}

// TestDeadParents has parents that are down, and such that say nothing: an upstream error within the time for an answer,
// and never a direct connection, which the settings would let us.
func TestDeadParents(t *testing.T) {
	program, names := buildProgram(t, t.TempDir()), newNameServer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connections
	check(t, err)
	t.Cleanup(func() { silent.Close() })
	addresses := map[string]string{"down": "127.0.0.1:" + closedPort(t), "silent": silent.Addr().String()}
	for how, address := range addresses {
		for _, scheme := range strings.Fields(everyParent) {
			way := how + "-" + scheme
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				m := newMatrixOrigins(t, program, names)
				m.parents[way] = scheme + "://" + address
				m.roots["parent"], _ = newCertificate(t, "127.0.0.1")
				m.testDeadParent(t, way)
			})
		}
	}
}

func (m *matrix) testDeadParent(t *testing.T, way string) {
	p := m.startChild(t, way)
	for _, front := range []string{"connect", "socks5", "absolute", "websocket"} {
		if way == "silent-http" && has(clearFronts, front) {
			continue // a plain request is on its way then, and its answer has all the time that limits.responseHead gives
		}
		c := cell{target: "allow", front: front, way: way, want: expectation{verdict: "allow", code: "upstream_proxy_error", outcome: "failed"}}
		t.Run(front, func(t *testing.T) { m.testCell(t, p, &c) })
	}
	if n := m.origin.asked(connections); n > 0 {
		t.Errorf("the origin got %d connections, want none", n)
	}
}

// start starts the parent on a free port and gives its address. Another program may take the port before it does.
func (p *realParent) start(t *testing.T, login bool) string {
	t.Helper()
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		address := l.Addr().String()
		dir := openDir(t)
		args, env := p.command(t, dir, portOf(l.Addr()), login)
		l.Close()
		if r := startOther(t, dir, env, args); r.listens(t, address) {
			return address
		}
	}
	t.Fatalf("%s did not start", p.name)
	return ""
}

// openDir makes a folder that a user without rights can get to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Chmod(filepath.Dir(dir), 0o711))
	return dir
}

// other is a program of others that runs until the test ends.
type other struct {
	cmd   *exec.Cmd
	out   bytes.Buffer // to be read once ended is closed
	ended chan struct{}
}

// startOther starts it in a folder of its own, as nobody where the test is root.
func startOther(t *testing.T, dir string, env, args []string) *other {
	t.Helper()
	o := &other{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	o.cmd.Dir, o.cmd.Env, o.cmd.Stdout, o.cmd.Stderr = dir, append([]string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/sbin:/usr/bin:/bin"}, env...), &o.out, &o.out
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		o.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		check(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, nobody, nobody)
		}))
	}
	o.cmd.WaitDelay = 5 * time.Second
	check(t, o.cmd.Start())
	go func() {
		defer close(o.ended)
		_ = o.cmd.Wait() // how it ends is its own business
	}()
	t.Cleanup(func() {
		_ = o.cmd.Process.Signal(syscall.SIGTERM) // it fails if it has ended
		select {
		case <-o.ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s did not end after SIGTERM", args[0])
			_ = syscall.Kill(-o.cmd.Process.Pid, syscall.SIGKILL)
			<-o.ended
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", args[0], &o.out)
		}
	})
	return o
}

// listens waits until the program accepts connections; false when it ends before.
func (o *other) listens(t *testing.T, address string) bool {
	t.Helper()
	return eventually(t, 30*time.Second, func() bool {
		select {
		case <-o.ended:
			return true
		default:
		}
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) && !o.isOver()
}

func (o *other) isOver() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// installed gives the file of a program or library, of which one of the patterns is the place.
func installed(t *testing.T, name string, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		check(t, err)
		if len(found) > 0 {
			return found[0]
		}
	}
	missing(t, "%s is not installed: run .ci/clients, or apt-get install %[1]s", name)
	return ""
}

// hostsFile writes the names of the cells that go through a parent.
func hostsFile(t *testing.T, dir, parent string) string {
	t.Helper()
	text := "127.0.0.1"
	for _, front := range []string{"connect", "absolute", "socks5"} {
		text += " " + (&cell{target: "allow", front: front, way: parent}).host()
	}
	write(t, dir, "hosts", text+"\n")
	return filepath.Join(dir, "hosts")
}

func squid(t *testing.T, dir, port string, login bool) (args, env []string) {
	program := installed(t, "squid", "/usr/sbin/squid")
	config := fmt.Sprintf(`http_port 127.0.0.1:%s
pid_filename none
coredump_dir %s
cache deny all
memory_cache_shared off
access_log none
cache_log %[2]s/cache.log
cache_store_log none
netdb_filename none
hosts_file %s
shutdown_lifetime 0 seconds
visible_hostname squid.test
max_filedescriptors 1024
`, port, dir, hostsFile(t, dir, "squid"))
	if login {
		helper := installed(t, "squid", "/usr/lib/squid/basic_ncsa_auth", "/usr/libexec/squid/basic_ncsa_auth")
		write(t, dir, "htpasswd", parentUser+":"+parentHash+"\n")
		config += "auth_param basic program " + helper + " " + filepath.Join(dir, "htpasswd") + "\nauth_param basic children 1\n" +
			"acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
	} else {
		config += "http_access allow all\n"
	}
	write(t, dir, "squid.conf", config)
	// Its name is that of its shared memory, which every squid of the machine must have for itself.
	return []string{program, "-n", "dshproxy" + port, "-N", "-f", filepath.Join(dir, "squid.conf")}, nil
}

// tinyproxy asks the machine's resolver for names, in whose place a library stands.
func tinyproxy(t *testing.T, dir, port string, login bool) (args, env []string) {
	program := installed(t, "tinyproxy", "/usr/bin/tinyproxy", "/usr/sbin/tinyproxy")
	library := installed(t, "libnss-wrapper", "/usr/lib/*/libnss_wrapper.so")
	config := "Port " + port + "\nListen 127.0.0.1\nTimeout 60\nMaxClients 20\nLogFile \"" + filepath.Join(dir, "log") + "\"\n"
	if login {
		config += "BasicAuth " + parentUser + " " + parentPassword + "\n"
	}
	write(t, dir, "tinyproxy.conf", config)
	return []string{program, "-d", "-c", filepath.Join(dir, "tinyproxy.conf")},
		[]string{"LD_PRELOAD=" + library, "NSS_WRAPPER_HOSTS=" + hostsFile(t, dir, "tinyproxy")}
}
