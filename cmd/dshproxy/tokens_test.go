//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const (
	builderToken = "builder-0123456789abcdef"
	guestToken   = "guest-0123456789abcdef"
	wrongToken   = "wrong-0123456789abcdef"

	exitSOCKS = 97 // of curl, when a SOCKS proxy says no
)

// tokenScene is a proxy that asks who its clients are, and origins that keep all that they are sent.
type tokenScene struct {
	*process
	program   string
	dir       string
	ca        string
	ports     map[string]string // of the origins, by scheme
	variables []string          // with the builder's token

	mu   sync.Mutex
	sent bytes.Buffer // to the origins
}

// TestTokens has real programs prove who they are, in each way that there is. What they prove it with stays with the
// proxy: no origin gets it, and nothing that the proxy writes has it.
func TestTokens(t *testing.T) {
	s := newTokenScene(t)
	t.Run("clients", func(t *testing.T) {
		t.Run("curl", func(t *testing.T) { t.Parallel(); s.testCurl(t) })
		t.Run("websocket", func(t *testing.T) { t.Parallel(); s.testWebSocket(t) })
		t.Run("python", func(t *testing.T) { t.Parallel(); s.testPython(t) })
		t.Run("node", func(t *testing.T) { t.Parallel(); s.testNode(t) })
	})
	s.end(t)
	s.checkSecrecy(t)
	s.checkIdentities(t)
}

func newTokenScene(t *testing.T) *tokenScene {
	t.Helper()
	s := &tokenScene{dir: t.TempDir(), ports: map[string]string{}}
	s.program = buildProgram(t, s.dir)
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(s)
	s.ca, secure.TLS = newCertificate(t)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	s.ports["http"], s.ports["https"] = portOf(plain.Listener.Addr()), portOf(secure.Listener.Addr())
	s.process = startProcess(t, s.program, `rules:
  - match: { agents: [build], network: { domains: ["=`+allowedHost+`"], ips: ["127.0.0.1"] } }
    action: allow
    reason: the origin of the tests
`, `
listen: ['127.0.0.1:0']
dns: {servers: ['`+newNameServer(t).address+`']}
identity:
  tokens:
    - {name: builder, token: `+builderToken+`, agents: [build]}
    - {name: guest, token: `+guestToken+`, agents: [visit]}
`)
	login := filepath.Join(s.dir, "login")
	placeFile(t, login, "builder:"+builderToken+"\n")
	s.variables = printedVariables(t, s.program, "--proxy", "http://"+s.addresses["proxy"], "--token-file", login, "--ca", s.ca)
	return s
}

// ServeHTTP is an origin.
func (s *tokenScene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := httputil.DumpRequest(r, true)
	if err != nil {
		return // the client sees no answer
	}
	s.mu.Lock()
	s.sent.Write(text)
	s.mu.Unlock()
	if r.URL.Path != "/echo" {
		fmt.Fprintln(w, greeting)
		return
	}
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // as above
	}
	defer c.CloseNow()
	for {
		kind, text, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, text) != nil {
			return
		}
	}
}

func (s *tokenScene) url(scheme, host string) string {
	return scheme + "://" + net.JoinHostPort(host, s.ports[scheme])
}

// proxyURL is that of the proxy, with a token in it.
func (s *tokenScene) proxyURL(name, token string) *url.URL {
	return &url.URL{Scheme: "http", Host: s.addresses["proxy"], User: url.UserPassword(name, token)}
}

func (s *tokenScene) testCurl(t *testing.T) {
	program := command("curl")(t)
	for _, tt := range []struct {
		name, login, host string
		exit              int
	}{
		{"allowed", "builder:" + builderToken, allowedHost, 0},
		{"denied", "builder:" + builderToken, "curl.denied.test", exitSOCKS},
		{"another agent", "guest:" + guestToken, allowedHost, exitSOCKS},
		{"wrong token", "builder:" + wrongToken, allowedHost, exitSOCKS},
		{"no token", "", allowedHost, exitSOCKS},
	} {
		for _, scheme := range []string{"http", "https"} {
			args := []string{program, "-sS", "--cacert", s.ca, "--socks5-hostname", s.addresses["proxy"], s.url(scheme, tt.host) + "/hello.txt"}
			if tt.login != "" {
				args = append(args, "--proxy-user", tt.login)
			}
			dir := t.TempDir()
			o := execute(t, dir, []string{"HOME=" + dir}, "", args...)
			if o.exit != tt.exit || (o.exit == 0) != strings.Contains(o.stdout, greeting) {
				t.Errorf("%s, %s: exit code %d, want %d\n%s", tt.name, scheme, o.exit, tt.exit, o)
			}
		}
	}
}

func (s *tokenScene) testWebSocket(t *testing.T) {
	roots := x509.NewCertPool()
	text, err := os.ReadFile(s.ca)
	check(t, err)
	roots.AppendCertsFromPEM(text)
	transport := func(login *url.URL) *http.Transport {
		tr := &http.Transport{Proxy: http.ProxyURL(login), TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	builder := s.proxyURL("builder", builderToken)
	tunnelled := transport(builder)
	tunnelled.Proxy = nil
	tunnelled.DialContext = func(ctx context.Context, _, authority string) (net.Conn, error) {
		return dialTunnel(ctx, builder, authority)
	}
	for _, tt := range []struct {
		name, scheme string
		transport    *http.Transport
	}{
		{"absolute-form", "http", transport(builder)},
		{"CONNECT and TLS", "https", transport(builder)},
		{"CONNECT in clear", "http", tunnelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			opts := &websocket.DialOptions{HTTPClient: &http.Client{Transport: tt.transport}}
			c, _, err := websocket.Dial(ctx, s.url(tt.scheme, allowedHost)+"/echo", opts)
			check(t, err)
			defer c.CloseNow()
			for _, size := range []int{1, 30_000} { // the second is more than a read gives at once
				want := strings.Repeat("w", size)
				check(t, c.Write(ctx, websocket.MessageText, []byte(want)))
				_, got, err := c.Read(ctx)
				if err != nil || string(got) != want {
					t.Errorf("%d bytes came back, want %d: %v", len(got), size, err)
				}
			}
			check(t, c.Close(websocket.StatusNormalClosure, ""))
			if _, _, err := websocket.Dial(ctx, s.url(tt.scheme, "websocket.denied.test")+"/echo", opts); err == nil || !strings.Contains(err.Error(), "403") && !strings.Contains(err.Error(), "Forbidden by dshproxy") {
				t.Errorf("denied: %v, want 403", err)
			}
		})
	}
}

// dialTunnel asks for a tunnel with the token of a URL.
func dialTunnel(ctx context.Context, proxy *url.URL, authority string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", proxy.Host)
	if err != nil {
		return nil, err
	}
	login := base64.StdEncoding.EncodeToString([]byte(proxy.User.String()))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", authority, login); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	const want = "HTTP/1.1 200 Connection Established\r\n\r\n"
	answer := make([]byte, len(want))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != want {
		return nil, errors.Join(fmt.Errorf("answer %q", answer), err, c.Close())
	}
	return c, nil
}

const pythonRequests = `import sys
try:
    import requests
    r = requests.get(sys.argv[1], timeout=30)
    r.raise_for_status()
    sys.stdout.write(r.text)
except ImportError:
    import urllib.request
    sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
`

func (s *tokenScene) testPython(t *testing.T) {
	s.testFetch(t, "python", `403:? (Client Error: )?Forbidden by dshproxy`, realPython(t), "-c", pythonRequests)
}

func (s *tokenScene) testNode(t *testing.T) {
	s.testFetch(t, "node", undiciSay+`|`+bodyFirst, newNode(t), "-e", nodeFetch)
}

// testFetch has a program find the proxy and the token in the variables.
func (s *tokenScene) testFetch(t *testing.T, name, says string, args ...string) {
	for _, scheme := range []string{"http", "https"} {
		dir := t.TempDir()
		env := append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, s.variables...)
		o := execute(t, dir, env, "", append(args, s.url(scheme, allowedHost)+"/hello.txt")...)
		if o.exit != 0 || !strings.Contains(o.stdout, greeting) {
			t.Errorf("%s: exit code %d\n%s", scheme, o.exit, o)
		}
		o = execute(t, dir, env, "", append(args, s.url(scheme, name+".denied.test")+"/hello.txt")...)
		if o.exit != 1 || !regexp.MustCompile(says).MatchString(o.String()) {
			t.Errorf("%s, denied: exit code %d, want 1 and %s in\n%s", scheme, o.exit, says, o)
		}
	}
}

// checkSecrecy looks for the tokens, bare and as Basic credentials have them, wherever they may have gone.
func (s *tokenScene) checkSecrecy(t *testing.T) {
	t.Helper()
	decisions, err := os.ReadFile(s.decisions)
	check(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(s.sent.String(), allowedHost) || !bytes.Contains(decisions, []byte(allowedHost)) || !strings.Contains(s.log.String(), "listening") {
		t.Fatal("nothing was recorded, so this would find nothing")
	}
	for name, text := range map[string]string{"the origin": s.sent.String(), "the decision log": string(decisions), "stderr": s.log.String()} {
		for _, login := range []string{"builder:" + builderToken, "guest:" + guestToken, "builder:" + wrongToken} {
			_, token, _ := strings.Cut(login, ":")
			if strings.Contains(text, token) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(login))) {
				t.Errorf("%s got the token %s:\n%s", name, token, text)
			}
		}
		if strings.Contains(strings.ToLower(text), "proxy-authorization") {
			t.Errorf("%s got the field with the credentials", name)
		}
	}
}

// checkIdentities holds the records against who asked: the builder alone gets to the origin.
func (s *tokenScene) checkIdentities(t *testing.T) {
	t.Helper()
	codes := map[string]int{}
	for _, r := range s.records(t) {
		if r.Msg != "decision" {
			continue
		}
		is := r.Identity + " " + r.Code
		codes[is] += max(1, r.Repeated)
		switch {
		case is == "builder allowed_by_rule" && r.Host == allowedHost:
		case is == "builder not_allowed" && strings.HasSuffix(r.Host, ".denied.test"):
		case is == "guest not_allowed" && r.Host == allowedHost:
		case is == " auth_required":
		default:
			t.Errorf("record: %+v", r)
		}
	}
	for _, want := range []string{"builder allowed_by_rule", "builder not_allowed", "guest not_allowed", " auth_required"} {
		if codes[want] == 0 {
			t.Errorf("no record of %s: %v", want, codes)
		}
	}
}
