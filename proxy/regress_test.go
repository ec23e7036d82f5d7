package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"dshproxy/netrule"
)

// TestOneClientCannotStallOthers: connections of a client that holds all it may do not hold up accept.
func TestOneClientCannotStallOthers(t *testing.T) {
	w := newWorld(t, allowNames, withLimits(Limits{Connections: 5000, PerClient: 2}))
	for range 300 {
		w.dial() // silent, from 127.0.0.1
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 7)}, Timeout: 5 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	other := &testConn{c.(*net.TCPConn), t, bufio.NewReader(c), &w.mu}
	if r := other.send("CONNECT denied.test:1 HTTP/1.1\r\n\r\n").response("GET"); r.StatusCode != 403 {
		t.Errorf("another client got %s", r.Status)
	}
	if !w.srv.Alive() {
		t.Error("the accept loop counts as stuck")
	}
}

// TestReloadDuringAdmission: a policy that changes while the name is looked up is the one that holds.
func TestReloadDuringAdmission(t *testing.T) {
	for _, request := range []string{"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", "GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		w := newWorld(t, allowNames)
		w.name("allowed.test", "127.0.0.1")
		o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) { io.Copy(c, r) })
		inner := w.lookup
		w.gate.Lookup = func(ctx ctxType, name string, both bool) (answerType, error) {
			w.setPolicy("rules: []", netrule.Options{Mode: netrule.Whitelist})
			w.srv.PolicyChanged()
			return inner(ctx, name, both)
		}
		if got := w.status(fmt.Sprintf(request, o.port)); got != 403 {
			t.Errorf("%s: %d", request, got)
		}
	}
}

// TestRefusedTargetsAreRecordedBare: what a record shows of a malformed target is its authority, without a password.
func TestRefusedTargetsAreRecordedBare(t *testing.T) {
	w := newWorld(t, allowNames)
	for _, target := range []string{"http://user:SECRET@h.test/?token=SECRET", "ws://h.test/SECRET?SECRET", "http://a;b/SECRET", "ftp://u:SECRET@h/SECRET"} {
		w.status("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if text := fmt.Sprintf("%+v", w.lastRecord()); strings.Contains(text, "SECRET") {
			t.Errorf("LOG-09: %s", text)
		}
	}
}

// readsCut reports whether the client sees that a response is not whole.
func readsCut(t *testing.T, c *testConn, method string) (string, bool) {
	t.Helper()
	r, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	return string(b), err != nil
}

// TestCutsShow: whatever cuts a response that ends with the connection, the client sees a reset and not an end.
func TestCutsShow(t *testing.T) {
	t.Run("cut chunks to HTTP/1.0", func(t *testing.T) {
		w, _, base := forwardWorld(t, scripted("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", nil))
		if body, cut := readsCut(t, w.dial().send("GET "+base+"/ HTTP/1.0\r\n\r\n"), "GET"); !cut {
			t.Errorf("%q looks whole", body)
		}
	})
	t.Run("idle", func(t *testing.T) {
		w := newWorld(t, allowNames, withLimits(Limits{Idle: 60 * time.Millisecond}))
		w.name("allowed.test", "127.0.0.1")
		o := newOrigin(t, scripted("HTTP/1.1 200 OK\r\n\r\npart", func(c *net.TCPConn) { io.Copy(io.Discard, c) }))
		if body, cut := readsCut(t, w.dial().send(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)), "GET"); !cut {
			t.Errorf("%q looks whole", body)
		}
	})
	t.Run("revoked", func(t *testing.T) {
		w, _, base := forwardWorld(t, scripted("HTTP/1.1 200 OK\r\n\r\npart", func(c *net.TCPConn) { io.Copy(io.Discard, c) }))
		c := w.dial().send("GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		w.await("the decision", func() bool { return len(w.records) == 1 })
		w.setPolicy("rules: []", netrule.Options{Mode: netrule.Whitelist})
		w.srv.PolicyChanged()
		if body, cut := readsCut(t, c, "GET"); !cut {
			t.Errorf("%q looks whole", body)
		}
	})
}

// TestEveryRequestIsAnswered: once a byte of a request has come, there is an answer, and one decision record.
func TestEveryRequestIsAnswered(t *testing.T) {
	const get = "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n"
	tests := []struct {
		name, origin, request string
		interim               int
		status                int
	}{
		{"dies after 100", "HTTP/1.1 100 Continue\r\n\r\n", get, 1, 502},
		{"garbage after 103", "HTTP/1.1 103 E\r\n\r\ngarbage\r\n\r\n", get, 1, 502},
		{"unasked 101 after 100", "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", get, 1, 502},
		{"flood of 1xx", strings.Repeat("HTTP/1.1 103 E\r\n\r\n", 500), get, maxInterim, 502},
		{"101 for something else (FRM-37)", "HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nraw", "GET %s/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 0, 502},
		{"closes", "", get, 0, 502},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, _, base := forwardWorld(t, scripted(tt.origin, nil))
			c := w.dial().send(fmt.Sprintf(tt.request, base))
			for range tt.interim {
				if r := c.response("GET"); r.StatusCode >= 200 {
					t.Fatalf("%s instead of a 1xx", r.Status)
				}
			}
			if r := c.response("GET"); r.StatusCode != tt.status {
				t.Errorf("%s", r.Status)
			}
			if n := len(w.records); n != 1 || w.records[0].Outcome != outcomeFailed {
				t.Errorf("%d records: %+v", n, w.records)
			}
		})
	}
	t.Run("idle before the head", func(t *testing.T) {
		w := newWorld(t, allowNames, withLimits(Limits{Idle: 60 * time.Millisecond}))
		w.name("allowed.test", "127.0.0.1")
		o := newOrigin(t, func(_ *net.TCPConn, r *bufio.Reader) { io.Copy(io.Discard, r) })
		if got := w.status(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)); got != 504 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("cut request body", func(t *testing.T) {
		w, _, base := forwardWorld(t, func(_ *net.TCPConn, r *bufio.Reader) { io.Copy(io.Discard, r) })
		c := w.dial().send("POST " + base + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc")
		c.CloseWrite()
		if r := c.response("POST"); r.StatusCode != 400 {
			t.Errorf("%s", r.Status)
		}
	})
	t.Run("bytes before a bad chunk", func(t *testing.T) {
		w, _, base := forwardWorld(t, scripted("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n", nil))
		if body, cut := readsCut(t, w.dial().send(fmt.Sprintf(get, base)), "GET"); body != "hi" || !cut {
			t.Errorf("%q, cut %v", body, cut)
		}
	})
}

// TestKeptConnectionsSurviveBodies: a quick answer to a request with a body does not end the connection.
func TestKeptConnectionsSurviveBodies(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(*http.Request, string) string { return okReply("ok") })
	head := fmt.Sprintf("POST http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", o.port)
	c := w.dial()
	for i := range 300 {
		if r := c.send(head).send("hello").response("POST"); r.StatusCode != 200 || r.Close {
			t.Fatalf("request %d: %s, close %v", i, r.Status, r.Close)
		}
	}
	c.send(strings.Repeat(head+"hello", 50))
	for i := range 50 {
		if r := c.response("POST"); r.StatusCode != 200 || r.Close {
			t.Fatalf("pipelined request %d: %s, close %v", i, r.Status, r.Close)
		}
	}
}

// TestTimeoutIsNoDeath: a reused connection that is only slow is not replaced, so a request is sent once.
func TestTimeoutIsNoDeath(t *testing.T) {
	w := newWorld(t, allowNames, withLimits(Limits{ResponseHead: 100 * time.Millisecond}))
	w.name("allowed.test", "127.0.0.1")
	o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, okReply("first"))
		io.Copy(io.Discard, r)
	})
	c := w.dial()
	if r := c.send(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)).response("GET"); r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
	if r := c.send(fmt.Sprintf("DELETE http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port)).response("DELETE"); r.StatusCode != 504 || o.accepted() != 1 {
		t.Errorf("%s over %d connections", r.Status, o.accepted())
	}
}

// TestLongNames: field names are held against prefixes however long they are.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(_ *http.Request, head string) string {
		return "HTTP/1.1 200 OK\r\nX-Dshproxy-" + long + ": forged\r\nProxy_Status: dshproxy; error=a\r\n" +
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(head), head)
	})
	r := w.dial().send(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization-%s: leak\r\n\r\n", o.port, long)).response("GET")
	if body := bodyOf(r); strings.Contains(body, "leak") {
		t.Errorf("the origin got %q", body)
	}
	if text := fmt.Sprint(r.Header); strings.Contains(text, "forged") || strings.Contains(text, "dshproxy; error") {
		t.Errorf("the client got %s", text)
	}
}

// TestFlagsOfTheLastRequest: a refusal speaks to the request at hand, not to the one before.
func TestFlagsOfTheLastRequest(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	o := httpOrigin(t, func(*http.Request, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" })
	c := w.dial().send(fmt.Sprintf("HEAD http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n", o.port))
	c.response("HEAD")
	r := c.send("GET x\n\n").response("GET")
	if r.StatusCode != 400 || !strings.HasPrefix(bodyOf(r), "# ") {
		t.Errorf("%s %v", r.Status, r.Header)
	}
}

// TestNameOfOwnListener: a name at an own listener is a loop, whether a rule opens the address or not.
func TestNameOfOwnListener(t *testing.T) {
	w := newWorld(t, `rules: [{match: {network: {domains: ["plain.test"]}}, action: allow, reason: r}]`)
	w.name("plain.test", "127.0.0.1")
	_, port, _ := net.SplitHostPort(w.addr)
	if got := w.status("CONNECT plain.test:" + port + " HTTP/1.1\r\n\r\n"); got != 508 {
		t.Errorf("SELF-07: %d", got)
	}
}

// TestAllAddressesAreJudged: a deny rule sees addresses beyond those that are dialled (DNS-13).
func TestAllAddressesAreJudged(t *testing.T) {
	w := newWorld(t, `rules:
  - match: { network: { ips: ["10.0.0.0/8"] } }
    action: deny
    reason: r
  - match: { network: { domains: ["many.test"], ips: ["127.0.0.0/8"] } }
    action: allow
    reason: r
`)
	var answer []string
	for i := range 60 {
		answer = append(answer, fmt.Sprintf("127.0.1.%d", i))
	}
	w.name("many.test", append(answer, "10.0.0.5")...)
	if got := w.status("CONNECT many.test:9 HTTP/1.1\r\n\r\n"); got != 403 {
		t.Errorf("got %d", got)
	}
}

// TestClientLeavesDuringLookup: nobody is dialled for a client that has reset its connection.
func TestClientLeavesDuringLookup(t *testing.T) {
	w := newWorld(t, allowNames)
	o := newOrigin(t, func(*net.TCPConn, *bufio.Reader) {})
	asked, left := make(chan struct{}), make(chan struct{})
	w.gate.Lookup = func(ctx ctxType, _ string, _ bool) (answerType, error) {
		close(asked)
		<-ctx.Done()
		close(left)
		return answerType{}, ctx.Err()
	}
	c := w.dial().send(fmt.Sprintf("CONNECT allowed.test:%d HTTP/1.1\r\n\r\n", o.port))
	<-asked
	start := time.Now()
	c.SetLinger(0)
	c.Close()
	<-left
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("noticed after %v, by the answer limit", took)
	}
	w.await("the record", func() bool { return len(w.records) == 1 })
	if o.accepted() != 0 {
		t.Error("the origin was dialled")
	}
}

// TestSecondSignalDuringLookup: a forced shutdown does not wait for a lookup.
func TestSecondSignalDuringLookup(t *testing.T) {
	w := newWorld(t, allowNames, withLimits(Limits{Answer: time.Minute}))
	asked := make(chan struct{})
	w.gate.Lookup = func(ctx ctxType, _ string, _ bool) (answerType, error) {
		close(asked)
		<-ctx.Done()
		return answerType{}, ctx.Err()
	}
	w.dial().send("CONNECT allowed.test:9 HTTP/1.1\r\n\r\n")
	<-asked
	ctx, cancel := contextWithCancel()
	cancel()
	start := time.Now()
	_ = w.srv.Shutdown(ctx)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestLargeRefusedUpload: a client that sends its whole body before it looks still reads the refusal (DOS-19).
func TestLargeRefusedUpload(t *testing.T) {
	w := newWorld(t, allowNames)
	body := strings.Repeat("x", 8<<20)
	c := w.dial().send(fmt.Sprintf("PUT http://denied.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body)))
	if _, err := io.WriteString(c, body); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("the upload failed: %v", err)
	}
	if r := c.response("PUT"); r.StatusCode != 403 {
		t.Errorf("%s", r.Status)
	}
}
