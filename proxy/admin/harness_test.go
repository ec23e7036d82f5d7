package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "0123456789abcdef0123456789abcdef"

// backend is a proxy that only takes notes.
type backend struct {
	ring *decisionlog.Ring

	mu      sync.Mutex
	calls   []string
	stopped bool
	err     error // of every method that can fail
	panics  bool
}

func (b *backend) note(call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call)
	if b.panics {
		panic("a fault of the backend")
	}
	return b.err
}

func (b *backend) taken() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := strings.Join(b.calls, ", ")
	b.calls = nil
	return calls
}

func (b *backend) Status() Status {
	_ = b.note("status")
	b.mu.Lock()
	defer b.mu.Unlock()
	return Status{Version: "v1", Listeners: []Listener{{"proxy", "127.0.0.1:3128"}}, Mode: "whitelist", Enforce: true, Stopped: b.stopped}
}

func (b *backend) Records() *decisionlog.Ring {
	_ = b.note("records")
	return b.ring
}

func (b *backend) Tunnels() []Tunnel {
	_ = b.note("tunnels")
	return nil
}

func (b *backend) Rules() Rules {
	_ = b.note("rules")
	return Rules{}
}

func (b *backend) Check(_ context.Context, c Call) (Verdict, error) {
	return Verdict{Action: "deny", Code: "denied_by_rule", Rule: &Ref{File: "/r", Line: 3}}, b.note("check " + c.Tool + " " + string(c.Args))
}

func (b *backend) ExplainCall(_ context.Context, c Call) (CallExplanation, error) {
	return CallExplanation{Verdict: Verdict{Action: "ask"}}, b.note("explain call " + c.Tool)
}

func (b *backend) Explain(_ context.Context, q TargetQuery) (Explanation, error) {
	text := "explain " + q.Target.String()
	for _, a := range q.Addrs {
		text += " " + a.String()
	}
	return Explanation{Target: q.Target.String(), Action: "allow"}, b.note(text)
}

func (b *backend) Reload(context.Context) (Reloaded, error) {
	return Reloaded{Changed: true, Rules: 4}, b.note("reload")
}

func (b *backend) Allow(_ context.Context, t netrule.Target, private bool) (Allowed, error) {
	text := "allow " + t.String()
	if private {
		text += " private"
	}
	return Allowed{Written: true, Target: t.String(), Action: "allow"}, b.note(text)
}

func (b *backend) Stop(context.Context) error   { return b.setStopped("stop", true) }
func (b *backend) Resume(context.Context) error { return b.setStopped("resume", false) }

func (b *backend) setStopped(call string, v bool) error {
	err := b.note(call)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = v
	return err
}

// world is a server on a real listener, and a client that may say anything to it.
type world struct {
	backend *backend
	addr    net.Addr
	server  *http.Server
	client  *http.Client
	log     *lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newWorld(t *testing.T, network string, change func(*Options)) *world {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{backend: &backend{ring: decisionlog.NewRing(10)}, addr: l.Addr(), log: &lockedBuffer{}}
	o := Options{Backend: w.backend, Token: testToken, Hosts: []string{"admin.test"}, Addr: l.Addr(), Log: slog.New(slog.NewTextHandler(w.log, nil))}
	if change != nil {
		change(&o)
	}
	w.server = Server(Handler(o))
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(l) }()
	w.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, l.Addr().Network(), l.Addr().String())
	}}}
	t.Cleanup(func() {
		// It waits for connections that net/http keeps half closed for a while after an early answer.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// host is what a well-behaved client names.
func (w *world) host() string {
	if w.addr.Network() == "unix" {
		return "localhost"
	}
	return w.addr.String()
}

// request makes a request that is well-behaved until the test changes it.
func (w *world) request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, "http://host.invalid"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = w.host()
	req.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// send gives status, head and body of the answer; of a stream only the beginning.
func (w *world) send(t *testing.T, req *http.Request) (int, http.Header, string) {
	t.Helper()
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body []byte
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		body = make([]byte, 64)
		n, _ := resp.Body.Read(body)
		body = body[:n]
	} else if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// errorCode gives the code of an error answer, having checked its shape.
func errorCode(t *testing.T, body string) string {
	t.Helper()
	var v map[string]map[string]string
	if err := json.Unmarshal([]byte(body), &v); err != nil || len(v) != 1 || v["error"]["code"] == "" || v["error"]["message"] == "" {
		t.Errorf("no error: %s (%v)", body, err)
	}
	return v["error"]["code"]
}
