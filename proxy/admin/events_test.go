package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dshproxy/proxy/decisionlog"
)

// subscribe opens an event stream and reads its first line.
func (w *world) subscribe(t *testing.T) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := w.client.Do(w.request(t, "GET", "/v1/events", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	r := bufio.NewReader(resp.Body)
	if got := readEvent(t, r); got != ": connected" {
		t.Fatalf("the stream begins with %q", got)
	}
	return resp, r
}

// readEvent gives the lines up to the next empty one.
func readEvent(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", lines, err)
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return strings.Join(lines, "|")
		}
		lines = append(lines, line)
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t, "unix", nil)
	resp, r := w.subscribe(t)
	w.backend.ring.Decided(&decisionlog.Decision{ID: "1\nevent: reload", Outcome: "refused"})
	w.backend.ring.Closed(&decisionlog.Close{ID: "1"})
	w.backend.ring.Reloaded(&decisionlog.Reload{OK: true})
	for _, kind := range []string{"decision", "close", "reload"} {
		got := readEvent(t, r)
		data, ok := strings.CutPrefix(got, "event: "+kind+"|data: ")
		var line struct{ Msg string }
		if err := json.Unmarshal([]byte(data), &line); !ok || err != nil || line.Msg != kind {
			t.Errorf("%s: %q %v", kind, got, err)
		}
	}
	// The end of the server ends the stream, and with it the subscription.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("at the end: %q %v", rest, err)
	}
	resp.Body.Close()
}

// TestEventsBounded: there are only so many subscribers, and one who leaves makes room.
func TestEventsBounded(t *testing.T) {
	w := newWorld(t, "tcp", nil)
	var open []*http.Response
	for range 16 {
		resp, _ := w.subscribe(t)
		open = append(open, resp)
	}
	status, _, body := w.send(t, w.request(t, "GET", "/v1/events", ""))
	if status != 429 || errorCode(t, body) != "too_many_subscribers" {
		t.Errorf("one too many: %d %s", status, body)
	}
	open[0].Body.Close()
	deadline := time.Now().Add(10 * time.Second)
	for status = 429; status == 429 && time.Now().Before(deadline); {
		status, _, _ = w.send(t, w.request(t, "GET", "/v1/events", ""))
	}
	if status != 200 {
		t.Errorf("after one has left: %d", status)
	}
}

// pipes is a listener without a network, for bubbles.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// inBubble runs a test against a server in fake time. The client has sent its request for events.
func inBubble(t *testing.T, test func(t *testing.T, ring *decisionlog.Ring, client net.Conn, r *bufio.Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		b := &backend{ring: decisionlog.NewRing(1)}
		s := Server(Handler(Options{Backend: b, Token: testToken, Addr: l.Addr()}))
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		client, server := net.Pipe()
		l.conns <- server
		fmt.Fprintf(client, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", testToken)
		test(t, b.ring, client, bufio.NewReader(client))
		client.Close()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// TestHeartbeat: a quiet stream shows that it lives, far beyond the timeouts of other requests.
func TestHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *decisionlog.Ring, _ net.Conn, r *bufio.Reader) {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, start := bufio.NewReader(resp.Body), time.Now()
		if got := readEvent(t, body); got != ": connected" {
			t.Errorf("first %q", got)
		}
		for i := range 20 {
			if got := readEvent(t, body); got != ": heartbeat" {
				t.Errorf("got %q", got)
			}
			if want := time.Duration(i+1) * heartbeat; time.Since(start) != want {
				t.Errorf("heartbeat after %v, want %v", time.Since(start), want)
			}
		}
	})
}

// TestSlowSubscriber: a reader that pauses loses events and is told how many; nobody waits for it.
func TestSlowSubscriber(t *testing.T) {
	inBubble(t, func(t *testing.T, ring *decisionlog.Ring, _ net.Conn, r *bufio.Reader) {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body := bufio.NewReader(resp.Body)
		readEvent(t, body)
		synctest.Wait()
		const sent = 5000
		start := time.Now()
		for i := range sent {
			ring.Closed(&decisionlog.Close{ID: fmt.Sprint(i)})
			if i%100 == 0 {
				synctest.Wait() // the stream is stuck with a full buffer by now
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("the proxy waited %v", time.Since(start))
		}
		var got, dropped int
		for got+dropped < sent {
			event := readEvent(t, body)
			var n int
			if _, err := fmt.Sscanf(event, `event: dropped|data: {"dropped":%d}`, &n); err == nil {
				dropped += n
			} else if strings.HasPrefix(event, "event: close|") {
				got++
			}
			if time.Since(start) > time.Minute {
				break
			}
		}
		if dropped == 0 || got == 0 || got+dropped != sent {
			t.Errorf("%d came, %d dropped, of %d", got, dropped, sent)
		}
	})
}

// TestStuckSubscriber: a reader that takes nothing is given up (SELF-13).
func TestStuckSubscriber(t *testing.T) {
	inBubble(t, func(t *testing.T, ring *decisionlog.Ring, _ net.Conn, _ *bufio.Reader) {
		start := time.Now()
		for range 16 - 1 {
			sub, err := ring.Subscribe()
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
		}
		synctest.Wait()
		if _, err := ring.Subscribe(); !errors.Is(err, decisionlog.ErrTooManySubscribers) {
			t.Errorf("the stream has not subscribed: %v", err)
		}
		time.Sleep(eventWait + time.Second)
		synctest.Wait()
		sub, err := ring.Subscribe()
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		sub.Close()
	})
}
