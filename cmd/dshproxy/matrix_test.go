//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The words of the matrix. A host is called for the cell that it belongs to.
const (
	tunnelFronts = "connect socks5 inspected"
	clearFronts  = "absolute websocket"
	everyFront   = tunnelFronts + " " + clearFronts
	everyParent  = "http https socks5"
	everyWay     = "direct " + everyParent
	everyTarget  = "allow deny ask pinned missing refused slow"
)

// expectation is what a cell must show: in the answer, in the decision log and in the metrics.
type expectation struct {
	target, fronts, ways string
	verdict, code        string
	outcome              string // of the record
	relayed              string // the code in a parent's own answer, which the client of a plain request gets to see
}

// expectations is the one table that every cell is held against. What the rules refuse reaches no parent and no name
// server, and passes in a dry run. A target with a rule about its addresses keeps to these, whatever parent there is. A failure that the proxy finds itself has the code of its own; one that a parent answers a tunnel with is the
// parent's. A plain request is the parent's to answer, whatever it says.
var expectations = []expectation{
	{"allow", everyFront, everyWay, "allow", "allowed_by_rule", "ok", ""},
	{"deny", everyFront, everyWay, "deny", "denied_by_rule", "refused", ""},
	{"ask", everyFront, everyWay, "ask", "needs_approval", "refused", ""},
	{"pinned", everyFront, everyWay, "allow", "allowed_by_rule", "ok", ""},

	{"allow", everyFront, "dry", "allow", "allowed_by_rule", "ok", ""},
	{"deny", everyFront, "dry", "allow", "dry_run", "ok", ""},
	{"ask", everyFront, "dry", "allow", "dry_run", "ok", ""},

	{"missing", everyFront, "direct", "allow", "dns_error", "failed", ""},
	{"missing", tunnelFronts, everyParent, "allow", "upstream_proxy_error", "failed", ""},
	{"missing", clearFronts, "socks5", "allow", "upstream_proxy_error", "failed", ""},
	{"missing", clearFronts, "http https", "allow", "allowed_by_rule", "ok", "dns_error"},

	{"refused", everyFront, "direct", "allow", "connection_refused", "failed", ""},
	{"refused", tunnelFronts, everyParent, "allow", "upstream_proxy_error", "failed", ""},
	{"refused", clearFronts, "socks5", "allow", "upstream_proxy_error", "failed", ""},
	{"refused", clearFronts, "http https", "allow", "allowed_by_rule", "ok", "connection_refused"},

	{"slow", everyFront, "direct", "allow", "dns_timeout", "failed", ""},
	{"slow", tunnelFronts, everyParent, "allow", "upstream_proxy_error", "failed", ""},
	{"slow", clearFronts, "socks5", "allow", "upstream_proxy_error", "failed", ""},
	{"slow", clearFronts, "http https", "allow", "allowed_by_rule", "ok", "dns_timeout"},
}

// answer is how a code looks on the wire.
type answer struct {
	status     int
	reply      byte   // of SOCKS5 (RFC 1928 §6)
	error      string // of Proxy-Status (RFC 9209 §2.3)
	proxyError string // X-Proxy-Error
}

var answers = map[string]answer{
	"allowed_by_rule":      {200, 0, "", ""},
	"dry_run":              {200, 0, "", ""},
	"denied_by_rule":       {403, 2, "http_request_denied", "blocked-by-denylist"},
	"needs_approval":       {403, 2, "http_request_denied", "blocked-by-policy"},
	"dns_error":            {502, 4, "dns_error", ""},
	"connection_refused":   {502, 5, "connection_refused", ""},
	"dns_timeout":          {504, 6, "dns_timeout", ""},
	"upstream_proxy_error": {502, 1, "connection_refused", ""},
}

func has(words, word string) bool { return slices.Contains(strings.Fields(words), word) }

// cell is one test of the matrix.
type cell struct {
	target, front, way string
	want               expectation
}

// host is different in every cell, so that what is recorded about one is told from the rest.
func (c *cell) host() string { return c.way + "." + c.front + "." + c.target + ".test" }

// chained reports whether a parent is asked.
func (c *cell) chained() bool {
	return c.way != "direct" && c.way != "dry" && c.target != "pinned" && c.want.verdict == "allow"
}

// dry reports whether the cell passes only because refusals are not enforced.
func (c *cell) dry() bool { return c.want.code == "dry_run" }

// inner reports whether there is a request inside of the tunnel to record.
func (c *cell) inner() bool { return c.front == "inspected" && c.want.outcome == "ok" }

// served reports whether the origin is reached.
func (c *cell) served() bool { return c.want.outcome == "ok" && c.want.relayed == "" }

// cells are those of one way, each with the one row that is about it.
func cells(t *testing.T, way string) (out []cell) {
	t.Helper()
	for _, target := range strings.Fields(everyTarget) {
		for _, front := range strings.Fields(everyFront) {
			c := cell{target: target, front: front, way: way}
			rows := 0
			for _, e := range expectations {
				if e.target == target && has(e.fronts, front) && has(e.ways, way) {
					c.want = e
					rows++
				}
			}
			if rows == 0 && way == "dry" {
				continue // what comes of the others has nothing to do with it
			}
			if rows != 1 {
				t.Fatalf("%d rows are about %s, want 1", rows, c.host())
			}
			out = append(out, c)
		}
	}
	return out
}

// matrix is what the cells share.
type matrix struct {
	program string
	names   *nameServer
	origin  *webOrigin
	ports   map[string]string // of the origins by scheme; refused is one where nobody listens
	roots   map[string]string // files: origin, parent, inspector
	key     string            // file of the inspector's key
	parents map[string]string // their URLs
	login   string            // file with the credentials for them
	parent  *process
}

// TestMatrix holds every kind of request, over every kind of upstream, to every kind of end, against one table: what the
// client sees, what is recorded and what is counted agree.
func TestMatrix(t *testing.T) {
	m := newMatrix(t)
	for _, way := range strings.Fields(everyWay + " dry") {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m.testWay(t, way)
		})
	}
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := newMatrixOrigins(t, buildProgram(t, t.TempDir()), newNameServer(t))
	m.makeCA(t)
	m.startParent(t)
	return m
}

// newMatrixOrigins starts the two origins of a matrix that has no parent yet.
func newMatrixOrigins(t *testing.T, program string, names *nameServer) *matrix {
	t.Helper()
	m := &matrix{
		program: program, names: names, origin: &webOrigin{counter: counter{n: map[string]int{}}},
		ports: map[string]string{"refused": closedPort(t)}, roots: map[string]string{}, parents: map[string]string{},
	}
	m.origin.HandleFunc("GET /hello.txt", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, greeting) })
	m.origin.HandleFunc("GET /echo", echo)
	start := func(config *tls.Config) string {
		server := httptest.NewUnstartedServer(m.origin)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that leave are part of the tests
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				m.origin.add(connections)
			}
		}
		if server.TLS = config; config == nil {
			server.Start()
		} else {
			server.StartTLS()
		}
		t.Cleanup(server.Close)
		return portOf(server.Listener.Addr())
	}
	m.ports["http"] = start(nil)
	var config *tls.Config
	var certified []string
	for _, target := range strings.Fields(everyTarget) {
		for _, front := range strings.Fields(tunnelFronts) {
			certified = append(certified, "*."+front+"."+target+".test")
		}
	}
	m.roots["origin"], config = newCertificate(t, certified...)
	m.ports["https"] = start(config)
	return m
}

// connections is what an origin counts its connections under.
const connections = "connections"

func portOf(a net.Addr) string { return strconv.Itoa(a.(*net.TCPAddr).Port) }

// closedPort gives a port of 127.0.0.1 that is taken, and where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	check(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	check(t, err)
	return strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
}

// makeCA has the program make the authority of the inspector.
func (m *matrix) makeCA(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	o := execute(t, t.TempDir(), []string{"HOME=" + dir}, "", m.program, "ca", "init", "--workspace", t.TempDir(), "--dir", dir, "--domain", "test")
	if o.exit != 0 {
		t.Fatalf("ca init ends with %d:\n%s", o.exit, o)
	}
	m.roots["inspector"], m.key = filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile)
}

// startParent starts the proxy behind the others. It gives up sooner than they do, so that it is the one to say so.
func (m *matrix) startParent(t *testing.T) {
	t.Helper()
	m.roots["parent"], _ = newCertificate(t, "127.0.0.1")
	m.parent = startProcess(t, m.program, "rules:\n  - match: { network: { ips: [127.0.0.1] } }\n    action: allow\n    reason: what it is for\n", `
listen:
  - {name: proxy, address: '127.0.0.1:0'}
  - {name: secure, address: '127.0.0.1:0', tls: {cert: `+m.roots["parent"]+`, key: `+filepath.Join(filepath.Dir(m.roots["parent"]), "key.pem")+`}}
dns: {servers: ['`+m.names.address+`']}
limits: {answer: 500ms}
`)
	m.parents["http"] = "http://" + m.parent.addresses["proxy"]
	m.parents["socks5"] = "socks5://" + m.parent.addresses["proxy"]
	m.parents["https"] = "https://" + m.parent.addresses["secure"]
}

// startChild starts the proxy that the clients of the cells talk to. The loopback is open to it, so that only a parent
// that is left out would show.
func (m *matrix) startChild(t *testing.T, way string) *process {
	t.Helper()
	rules := "rules:\n  - match: { network: { domains: [inside.test], schemes: [http] } }\n    action: deny\n    reason: only in TLS\n" +
		"  - match: { network: { domains: [pinned.test], ips: [127.0.0.1] } }\n    action: allow\n    reason: keeps to its address\n"
	for _, r := range []struct{ domains, action string }{{"deny.test", "deny"}, {"ask.test", "ask"}, {"inside.test, allow.test, missing.test, refused.test, slow.test", "allow"}} {
		rules += "  - match: { network: { domains: [" + r.domains + "] } }\n    action: " + r.action + "\n    reason: a cell\n"
	}
	settings := "listen: ['127.0.0.1:0']\nlimits: {answer: 1s}\ndns: {servers: ['" + m.names.address + "']}\nnetwork:\n  privateAllowed: [127.0.0.0/8]\n"
	if way == "dry" {
		settings = "enforce: false\n" + settings
	}
	if parent, ok := m.parents[way]; ok {
		settings += "  upstreamProxy: " + parent + "\n"
	}
	if strings.HasSuffix(way, "https") {
		settings += "  upstreamCAFile: " + m.roots["parent"] + "\n"
	}
	if m.login != "" {
		settings += "  upstreamCredentialsFile: " + m.login + "\n"
	}
	if m.key == "" {
		return startProcess(t, m.program, rules, settings)
	}
	settings += "inspect:\n  domains: ['*.inspected." + strings.ReplaceAll(everyTarget, " ", ".test', '*.inspected.") + ".test']\n  caFile: " + m.roots["inspector"] + "\n  keyFile: " + m.key + "\n"
	return startProcess(t, m.program, rules, settings, "SSL_CERT_FILE="+m.roots["origin"])
}

func (m *matrix) testWay(t *testing.T, way string) {
	p := m.startChild(t, way)
	all := cells(t, way)
	for _, c := range all {
		t.Run(c.target+"/"+c.front, func(t *testing.T) { m.testCell(t, p, &c) })
	}
	if way != "dry" {
		t.Run("inside", func(t *testing.T) { m.testInside(t, p, way) })
	}
	p.end(t) // the log is whole now
	records := p.records(t)
	for _, c := range all {
		if decisions, closes := about(records, c.host()); len(decisions) != c.records() || closes != c.closes() {
			t.Errorf("%s: %d decisions and %d closes in the end, want %d and %d", c.host(), len(decisions), closes, c.records(), c.closes())
		}
	}
	if all := slices.DeleteFunc(records, func(r logRecord) bool { return r.Msg != "decision" || strings.HasSuffix(r.Host, ".test") }); len(all) > 0 {
		t.Errorf("records that no cell asked for: %+v", all)
	}
}

// records is the number of decisions that are recorded about the cell.
func (c *cell) records() int {
	if c.inner() {
		return 2
	}
	return 1
}

// closes is the number of ends that are recorded: of what came about.
func (c *cell) closes() int {
	if c.want.outcome == "ok" {
		return 1
	}
	return 0
}

const countersOfCells = "dshproxy_decisions_total dshproxy_refusals_total dshproxy_delegated_total dshproxy_log_folded_total dshproxy_log_dropped_total"

func (m *matrix) testCell(t *testing.T, p *process, c *cell) {
	before := p.scrape(t)
	got := m.ask(t, p, c)
	m.checkAnswer(t, c, &got)
	var decisions []logRecord
	closes := 0
	eventually(t, 5*time.Second, func() bool {
		decisions, closes = about(p.records(t), c.host())
		return len(decisions) >= c.records() && closes >= c.closes()
	})
	m.checkRecords(t, c, &got, decisions)
	after := p.scrape(t)
	if counted, want := after.since(before, strings.Fields(countersOfCells)...), c.counts(); !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
	lookups := len(after.since(before, "dshproxy_dns_lookups_total")) > 0
	if want := !c.chained() && c.want.verdict == "allow"; lookups != want {
		t.Errorf("the proxy looked a name up: %t, want %t", lookups, want)
	}
	asked := m.names.asked(c.host()) > 0
	if want := c.want.verdict == "allow" && (m.parent != nil || !c.chained()); asked != want {
		t.Errorf("somebody looked the name up: %t, want %t", asked, want)
	}
	m.checkBehind(t, c)
}

// counts is what the cell adds to the counters: to all of them.
func (c *cell) counts() series {
	out := series{fmt.Sprintf(`dshproxy_decisions_total{code=%q,dry_run="%t",verdict=%q}`, c.want.code, c.dry(), c.want.verdict): float64(c.records())}
	if c.chained() {
		out["dshproxy_delegated_total"] = 1
	}
	return out
}

func (m *matrix) checkAnswer(t *testing.T, c *cell, got *seen) {
	t.Helper()
	want := answers[c.want.code]
	switch {
	case c.front == "socks5":
		if got.reply != want.reply {
			t.Errorf("SOCKS reply %d, want %d", got.reply, want.reply)
		}
	case c.want.relayed != "":
		if status := answers[c.want.relayed].status; got.status != status || !strings.Contains(got.body, "# code: "+c.want.relayed+" ") {
			t.Errorf("status %d with the body\n%swant that of the parent, %d %s", got.status, got.body, status, c.want.relayed)
		}
		for _, name := range []string{"X-Dshproxy-Code", "X-Dshproxy-Id", "X-Proxy-Error", "Proxy-Status"} {
			if value := got.fields.Get(name); value != "" {
				t.Errorf("the parent's %s: %s came through, with which it could forge an answer of ours", name, value)
			}
		}
	case c.want.outcome != "ok":
		checkRefusal(t, c, got)
	case got.status != want.status:
		t.Errorf("status %d, want %d", got.status, want.status)
	}
	if served := got.body == greeting+"\n"; served != c.served() {
		t.Errorf("served: %t with the body %q, want %t", served, got.body, c.served())
	}
}

func checkRefusal(t *testing.T, c *cell, got *seen) {
	t.Helper()
	want := answers[c.want.code]
	if got.status != want.status {
		t.Errorf("status %d, want %d", got.status, want.status)
	}
	for name, value := range map[string]string{"X-Dshproxy-Code": c.want.code, "X-Proxy-Error": want.proxyError} {
		if is := got.fields.Get(name); is != value {
			t.Errorf("%s: %q, want %q", name, is, value)
		}
	}
	if is, start := got.fields.Get("Proxy-Status"), "dshproxy; error="+want.error+`; details="`+c.want.code+`"`; !strings.HasPrefix(is, start) {
		t.Errorf("Proxy-Status: %s, want %s", is, start)
	}
}

func (m *matrix) checkRecords(t *testing.T, c *cell, got *seen, decisions []logRecord) {
	t.Helper()
	if len(decisions) != c.records() {
		t.Fatalf("%d records, want %d: %+v", len(decisions), c.records(), decisions)
	}
	r := decisions[0]
	is := fmt.Sprintf("verdict %s code %s outcome %s upstream %s resolution %s stage %s port %d", r.Verdict, r.Code, r.Outcome, r.Upstream, r.Resolution, r.Stage, r.Port)
	upstream, resolution := "", ""
	if c.chained() {
		upstream, resolution = m.parents[c.way], "delegated"
	}
	if want := fmt.Sprintf("verdict %s code %s outcome %s upstream %s resolution %s stage  port %s", c.want.verdict, c.want.code, c.want.outcome, upstream, resolution, m.port(c)); is != want {
		t.Errorf("record: %s\nwant:   %s", is, want)
	}
	if c.want.code == "upstream_proxy_error" && !strings.Contains(r.Cause, "parent proxy "+m.parents[c.way]) {
		t.Errorf("cause %q, want one that names the parent", r.Cause)
	}
	if id := got.fields.Get("X-Dshproxy-Id"); id != "" && id != r.ID || r.ID == "" {
		t.Errorf("the answer has the id %q, the record %q", id, r.ID)
	}
	for _, r := range decisions {
		if would := map[bool]string{true: c.target}[c.dry()]; r.DryRun != c.dry() || r.Would != would {
			t.Errorf("stage %q: dry_run %t would %q, want %t and %q", r.Stage, r.DryRun, r.Would, c.dry(), would)
		}
	}
	if !c.inner() {
		return
	}
	i := decisions[1]
	is = fmt.Sprintf("verdict %s code %s outcome %s stage %s %+v", i.Verdict, i.Code, i.Outcome, i.Stage, i.Request)
	if want := "verdict allow code " + c.want.code + " outcome ok stage tunnel &{Method:GET Path:/hello.txt Status:200}"; is != want || i.ID != r.ID {
		t.Errorf("inner record %s: %s\nwant %s: %s", i.ID, is, r.ID, want)
	}
}

// checkBehind looks at who else has heard of the cell: the parent exactly if the connection goes through it, the origin
// exactly if it was served.
func (m *matrix) checkBehind(t *testing.T, c *cell) {
	t.Helper()
	if m.parent != nil {
		m.checkParent(t, c)
	}
	want := 0
	if c.served() {
		want = 1
	}
	if n := m.origin.asked(net.JoinHostPort(c.host(), m.port(c))); n != want {
		t.Errorf("the origin got %d requests, want %d", n, want)
	}
}

func (m *matrix) checkParent(t *testing.T, c *cell) {
	t.Helper()
	want := 0
	if c.chained() {
		want = 1
	}
	var got []logRecord
	eventually(t, 5*time.Second, func() bool {
		got, _ = about(m.parent.records(t), c.host())
		got = slices.DeleteFunc(got, func(r logRecord) bool { return r.Stage != "" }) // it may look into a tunnel of ours
		return len(got) >= want
	})
	if len(got) != want {
		t.Errorf("the parent has %d records, want %d: %+v", len(got), want, got)
	}
}

// port is that of the cell's target.
func (m *matrix) port(c *cell) string {
	switch {
	case c.target == "refused":
		return m.ports["refused"]
	case has(tunnelFronts, c.front):
		return m.ports["https"]
	default:
		return m.ports["http"]
	}
}

// testInside asks for a tunnel that the rules admit, and puts a request in it that they refuse: a second record of the
// same tunnel.
func (m *matrix) testInside(t *testing.T, p *process, way string) {
	host := way + ".inside.test"
	authority := net.JoinHostPort(host, m.ports["http"])
	nc, err := net.Dial("tcp", p.addresses["proxy"])
	check(t, err)
	defer nc.Close()
	check(t, nc.SetDeadline(time.Now().Add(15*time.Second)))
	before := p.scrape(t)
	if s := connected(t, nc, authority); s.status != http.StatusOK {
		t.Fatalf("CONNECT: status %d, want 200", s.status)
	}
	got := asked(t, nc, "GET /hello.txt HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	checkRefusal(t, &cell{want: expectation{code: "denied_by_rule"}}, &got)
	nc.Close() // which ends the tunnel
	var decisions []logRecord
	closes := 0
	eventually(t, 5*time.Second, func() bool {
		decisions, closes = about(p.records(t), host)
		return len(decisions) >= 2 && closes >= 1
	})
	if len(decisions) != 2 || closes != 1 {
		t.Fatalf("%d decisions and %d closes, want 2 and 1: %+v", len(decisions), closes, decisions)
	}
	outer, inner := decisions[0], decisions[1]
	if is := outer.Verdict + " " + outer.Code + " " + outer.Outcome + " " + outer.Stage; is != "allow allowed_by_rule ok " {
		t.Errorf("record of the tunnel: %s", is)
	}
	if is := inner.Verdict + " " + inner.Code + " " + inner.Outcome + " " + inner.Stage; is != "deny denied_by_rule refused tunnel" {
		t.Errorf("record of the request in it: %s", is)
	}
	if inner.ID != outer.ID {
		t.Errorf("the request is recorded under the id %s, its tunnel under %s; want one id", inner.ID, outer.ID)
	}
	if id := got.fields.Get("X-Dshproxy-Id"); id != inner.ID {
		t.Errorf("the answer has the id %s, the record %s", id, inner.ID)
	}
	want := series{
		`dshproxy_decisions_total{code="allowed_by_rule",dry_run="false",verdict="allow"}`: 1,
		`dshproxy_decisions_total{code="denied_by_rule",dry_run="false",verdict="deny"}`:   1,
	}
	if way != "direct" {
		want["dshproxy_delegated_total"] = 1
	}
	if counted := p.scrape(t).since(before, strings.Fields(countersOfCells)...); !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
	if n := m.origin.asked(authority); n != 0 {
		t.Errorf("the origin got %d requests, want 0", n)
	}
}

// echo switches to what the tests take for WebSocket, and sends the first line of the client back.
func echo(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "no upgrade", http.StatusUpgradeRequired)
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client sees no answer
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if rw.Flush() != nil {
		return // as above
	}
	line, err := rw.ReadString('\n')
	if err == nil {
		fmt.Fprint(rw, line)
		_ = rw.Flush() // as above
	}
}

// pool reads certificates.
func (m *matrix) pool(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(m.roots[name])
	check(t, err)
	return text
}
