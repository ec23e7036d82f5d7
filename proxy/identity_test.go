package proxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/identity"
)

const (
	goodToken  = "0123456789abcdef"
	agentRules = `rules:
  - match: { network: { domains: ["=allowed.test"], ips: ["127.0.0.1"] }, agents: [deployers] }
    action: allow
    reason: deploys
  - match: { network: { domains: ["=both.test"], ips: ["127.0.0.1"] } }
    action: allow
    reason: anybody
`
)

func newBook(t testing.TB, c identity.Config) *identity.Book {
	t.Helper()
	b, err := identity.NewBook(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ciToken(expires time.Time) identity.Config {
	return identity.Config{Local: []string{"test"}, Tokens: []identity.Token{{Grant: identity.Grant{Name: "ci", Agents: []string{"deployers"}}, Token: goodToken, Expires: expires}}}
}

func basic(user, password string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
}

// TestTokens: what a request presents, and the answer. Credentials never reach an origin.
func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		name, fields string
		status       int
	}{
		{"basic", basic("ci", goodToken), 200},
		{"bearer", "Proxy-Authorization: Bearer " + goodToken + "\r\n", 200},
		{"lower case", "proxy-authorization: bearer " + goodToken + "\r\n", 200},
		{"nothing", "", 407},
		{"wrong", basic("ci", goodToken+"x"), 407},
		{"another name", basic("root", goodToken), 407},
		{"no base64", "Proxy-Authorization: Basic !!!\r\n", 407},
		{"another scheme", "Proxy-Authorization: Negotiate " + goodToken + "\r\n", 407},
		{"empty", "Proxy-Authorization:\r\n", 407},
		{"twice", basic("ci", goodToken) + basic("ci", goodToken), 400},
		{"the origin's", "Authorization: Bearer " + goodToken + "\r\n", 407},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, agentRules)
			w.name("allowed.test", "127.0.0.1")
			book := newBook(t, ciToken(time.Time{}))
			w.srv.Book = func() *identity.Book { return book }
			var seen string
			o := httpOrigin(t, func(_ *http.Request, head string) string { seen = head; return okReply("x") })
			r := w.dial().send(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.port, tt.fields)).response("GET")
			if r.StatusCode != tt.status {
				t.Fatalf("%s", r.Status)
			}
			if challenge := r.Header.Get("Proxy-Authenticate"); (challenge != "") != (tt.status == 407) || tt.status == 407 && !strings.HasPrefix(challenge, "Basic ") {
				t.Errorf("challenge %q", challenge)
			}
			if strings.Contains(strings.ToLower(seen), "proxy-auth") || strings.Contains(seen, goodToken) {
				t.Errorf("the origin got %q", seen)
			}
			if rec := w.lastRecord(); tt.status == 200 && (rec.Identity != "ci" || rec.Client != "token:ci") || tt.status == 407 && (rec.Code != netrule.CodeAuthRequired || rec.Judged) {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// TestChallengeKeeps: a challenge to a request without body keeps the connection for the same request with credentials.
func TestChallengeKeeps(t *testing.T) {
	w := newWorld(t, agentRules)
	w.name("allowed.test", "127.0.0.1")
	book := newBook(t, ciToken(time.Time{}))
	w.srv.Book = func() *identity.Book { return book }
	o := echo(t)
	c := w.dial()
	for range 2 {
		c.send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", o.port))
		if r := c.response("GET"); r.StatusCode != 407 || r.Close {
			t.Fatalf("%s, close %v", r.Status, r.Close)
		}
	}
	c.send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n%s\r\n", o.port, basic("ci", goodToken)))
	if r := c.response("CONNECT"); r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
	for name, request := range map[string]string{
		"a body":     "POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
		"pipelined":  "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\nGET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"close":      "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"early data": "CONNECT allowed.test:1 HTTP/1.1\r\n\r\n\x16\x03\x01",
	} {
		c := w.dial().send(request)
		if r := c.response("GET"); r.StatusCode != 407 || !r.Close {
			t.Errorf("%s: %s, close %v", name, r.Status, r.Close)
		}
		c.CloseWrite()
		if rest := c.rest(); rest != "" {
			t.Errorf("%s: then %q", name, rest)
		}
	}
}

// TestUnaskedCredentials: where no tokens are configured nobody looks at what is presented.
func TestUnaskedCredentials(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := echo(t)
	c := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\nProxy-Authorization: nonsense\r\n\r\n", o.port))
	if r := c.response("CONNECT"); r.StatusCode != 200 {
		t.Error(r.Status)
	}
}

// TestIdentityEnds: a token that expires or is replaced makes its tunnels those of an unknown client.
func TestIdentityEnds(t *testing.T) {
	for name, end := range map[string]func(book *atomic.Pointer[identity.Book], w *world){
		"replaced": func(book *atomic.Pointer[identity.Book], w *world) {
			c := ciToken(time.Time{})
			c.Tokens[0].Token += "new"
			book.Store(newBook(w.t, c))
			w.srv.PolicyChanged()
		},
		"other rights": func(book *atomic.Pointer[identity.Book], w *world) {
			c := ciToken(time.Time{})
			c.Tokens[0].Agents = []string{"readers"}
			book.Store(newBook(w.t, c))
			w.srv.PolicyChanged()
		},
		"expired": func(*atomic.Pointer[identity.Book], *world) {},
	} {
		t.Run(name, func(t *testing.T) {
			expires := time.Time{}
			if name == "expired" {
				expires = time.Now().Add(300 * time.Millisecond)
			}
			w := newWorld(t, agentRules, withLimits(Limits{Idle: 400 * time.Millisecond, HalfClose: time.Hour}))
			w.name("allowed.test", "127.0.0.1")
			w.name("both.test", "127.0.0.1")
			var book atomic.Pointer[identity.Book]
			book.Store(newBook(t, ciToken(expires)))
			w.srv.Book = book.Load
			o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
				for { // never idle
					if _, err := c.Write([]byte{0}); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			open := func(host string) *testConn {
				c := w.dial().send(fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\n%s\r\n", host, o.port, basic("ci", goodToken)))
				if r := c.response("CONNECT"); r.StatusCode != 200 {
					t.Fatal(r.Status)
				}
				return c
			}
			open("both.test")
			c := open("allowed.test")
			end(&book, w)
			io.Copy(io.Discard, c.r)
			w.await("the close", func() bool { return len(w.closes) > 0 && w.closes[0].Why == "revoked" })
		})
	}
}

// TestOneIdentityOneChain: an identity with a workspace is judged by that one's rules, and by no others.
func TestOneIdentityOneChain(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	c := ciToken(time.Time{})
	c.Tokens[0].Workspace = "/work/ci"
	c.AllowAnonymous = true
	book := newBook(t, c)
	w.srv.Book = func() *identity.Book { return book }
	var asked sync.Map
	policies := w.gate.Policies
	w.gate.Policies = func(workspace string) (*netrule.Policy, error) {
		asked.Store(workspace, true)
		if workspace == "/work/ci" {
			return netrule.NewPolicy(netrule.Options{}), nil
		}
		return policies(workspace)
	}
	o := echo(t)
	for fields, want := range map[string]int{"": 200, basic("ci", goodToken): 403} {
		r := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n%s\r\n", o.port, fields)).response("CONNECT")
		if r.StatusCode != want {
			t.Errorf("%q: %s", fields, r.Status)
		}
	}
	for _, workspace := range []string{"", "/work/ci"} {
		if _, ok := asked.Load(workspace); !ok {
			t.Errorf("%q was not asked for", workspace)
		}
	}
}

// TestClientIsIdentity: limits count by who a client is.
func TestClientIsIdentity(t *testing.T) {
	w := newWorld(t, agentRules, withLimits(Limits{Connections: 10, PerClient: 2}))
	w.name("allowed.test", "127.0.0.1")
	c := ciToken(time.Time{})
	c.Tokens = append(c.Tokens, identity.Token{Grant: identity.Grant{Name: "two", Agents: []string{"deployers"}}, Token: goodToken + "2"})
	book := newBook(t, c)
	w.srv.Book = func() *identity.Book { return book }
	o := echo(t)
	connect := func(user, token string) int {
		r := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n%s\r\n", o.port, basic(user, token))).response("CONNECT")
		return r.StatusCode
	}
	for i, want := range []int{200, 200, 429} {
		if got := connect("ci", goodToken); got != want {
			t.Errorf("connection %d: %d, want %d", i, got, want)
		}
	}
	if got := connect("two", goodToken+"2"); got != 200 {
		t.Errorf("another client: %d", got)
	}
}

// certificate makes a certificate signed by parent, or by itself.
func certificate(t testing.TB, name string, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: parent == nil,
	}
	signer, signerKey := template, any(key)
	if parent != nil {
		signer, signerKey = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// serveOn adds a listener to a world's server.
func (w *world) serveOn(l Listener) string {
	w.t.Helper()
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	l.Listener = nl
	done := make(chan error, 1)
	go func() { done <- w.srv.Serve(l) }()
	w.t.Cleanup(func() { nl.Close(); <-done })
	return nl.Addr().String()
}

// TestTLSListener: a proxy is spoken to in TLS, and a verified certificate says who its client is.
func TestTLSListener(t *testing.T) {
	ca := certificate(t, "the ca", nil)
	server, client, stranger := certificate(t, "proxy.test", &ca), certificate(t, "deployers", &ca), certificate(t, "deployers", nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	w := newWorld(t, agentRules)
	w.name("allowed.test", "127.0.0.1")
	w.name("both.test", "127.0.0.1")
	book := newBook(t, identity.Config{Local: []string{"test"}, Certificates: []identity.Certificate{{CN: "deployers"}}, AllowAnonymous: true})
	w.srv.Book = func() *identity.Book { return book }
	addr := w.serveOn(Listener{Name: "secure", TLS: &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}})
	o := echo(t)
	try := func(host string, certs ...tls.Certificate) (int, error) {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, ServerName: "proxy.test", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &append(certs, tls.Certificate{})[0], nil // whatever the server wants to see
		}})
		if err != nil {
			return 0, err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "CONNECT %s:%d HTTP/1.1\r\n\r\n", host, o.port)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
		if err != nil {
			return 0, err
		}
		if resp.StatusCode == 200 {
			io.WriteString(c, "\x00through")
			got := make([]byte, 8)
			if _, err := io.ReadFull(r, got); err != nil || string(got) != "\x00through" {
				return 0, fmt.Errorf("%q %w", got, err)
			}
			_ = c.CloseWrite()
			_, err = io.ReadAll(r)
		}
		return resp.StatusCode, err
	}
	if status, err := try("allowed.test", client); status != 200 || err != nil {
		t.Errorf("with a certificate: %d %v", status, err)
	}
	if status, err := try("allowed.test"); status != 403 {
		t.Errorf("without one: %d %v", status, err)
	}
	if status, err := try("both.test"); status != 200 || err != nil {
		t.Errorf("without one, where none is needed: %d %v", status, err)
	}
	if status, err := try("allowed.test", stranger); err == nil {
		t.Errorf("with a stranger's: %d", status)
	}
	w.await("the record", func() bool { return len(w.records) > 0 })
	if r := w.records[0]; r.Identity != "deployers" || r.Listener != "secure" {
		t.Errorf("%+v", r)
	}
	// What is no TLS ends without a word, within its time.
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET http://both.test/ HTTP/1.1\r\n\r\n")
	if b, _ := io.ReadAll(c); strings.HasPrefix(string(b), "HTTP/") {
		t.Errorf("clear text got %q", b)
	}
}

// TestProxyHeader: from the networks that must send it, and from nobody else, a PROXY header tells who the client is.
func TestProxyHeader(t *testing.T) {
	const rules = `rules:
  - match: { network: { domains: ["=allowed.test"], ips: ["127.0.0.1"] }, agents: [office] }
    action: allow
    reason: the office
`
	o := echo(t)
	request := fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", o.port)
	for _, tt := range []struct {
		name, sent string
		from       netip.Prefix
		want       string
	}{
		{"version 1", "PROXY TCP4 192.0.2.7 192.0.2.1 1000 3128\r\n", netip.MustParsePrefix("127.0.0.0/8"), "HTTP/1.1 200"},
		{"version 2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x01\x03\xe8\x0c\x38", netip.MustParsePrefix("127.0.0.0/8"), "HTTP/1.1 200"},
		{"another client", "PROXY TCP4 198.51.100.1 192.0.2.1 1000 3128\r\n", netip.MustParsePrefix("127.0.0.0/8"), "HTTP/1.1 403"},
		{"missing", "", netip.MustParsePrefix("127.0.0.0/8"), ""},
		{"not asked for", "PROXY TCP4 192.0.2.7 192.0.2.1 1000 3128\r\n", netip.MustParsePrefix("10.0.0.0/8"), "HTTP/1.1 400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, rules)
			w.name("allowed.test", "127.0.0.1")
			book := newBook(t, identity.Config{AllowAnonymous: true, Sources: []identity.Source{{Grant: identity.Grant{Name: "office"}, Prefix: netip.MustParsePrefix("192.0.2.0/24")}}})
			w.srv.Book = func() *identity.Book { return book }
			addr := w.serveOn(Listener{Name: "balanced", ProxyProtocol: []netip.Prefix{tt.from}})
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			io.WriteString(c, tt.sent+request)
			got := make([]byte, 12)
			n, _ := io.ReadFull(c, got)
			if string(got[:n]) != tt.want {
				t.Errorf("%q, want %q", got[:n], tt.want)
			}
			if tt.want == "HTTP/1.1 200" {
				if r := w.lastRecord(); r.Identity != "office" || r.Client != "source:192.0.2.0/24" {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}
