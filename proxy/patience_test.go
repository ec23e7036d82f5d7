package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dshproxy/resolve"
)

// waiting makes a connection that may wait, and what closes its server by force.
func waiting(answer time.Duration) (*conn, context.CancelFunc) {
	base, cancel := context.WithCancel(context.Background())
	nc, _ := net.Pipe()
	return &conn{nc: nc, srv: &Server{Limits: Limits{Answer: answer}, base: base}}, cancel
}

// TestPatience: it is a context like those of the standard library, for those that are made of it too.
func TestPatience(t *testing.T) {
	const answer = time.Second
	for name, tt := range map[string]struct {
		end   func(c *conn, closeServer context.CancelFunc)
		after time.Duration
		err   error
	}{
		"deadline":   {func(*conn, context.CancelFunc) {}, answer, context.DeadlineExceeded},
		"end":        {func(c *conn, _ context.CancelFunc) { c.endWait() }, 0, context.Canceled},
		"client":     {func(c *conn, _ context.CancelFunc) { c.patience.clientGone() }, 0, context.Canceled},
		"half-close": {func(c *conn, _ context.CancelFunc) { c.patience.clientEnded() }, answer, context.DeadlineExceeded},
		"server":     {func(_ *conn, closeServer context.CancelFunc) { closeServer() }, watchDialAfter, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, closeServer := waiting(answer)
				defer closeServer()
				start := time.Now()
				p := c.beginWait()
				if d, ok := p.Deadline(); !ok || d.Sub(start) != answer || p.Err() != nil || p.Value("x") != nil {
					t.Errorf("it begins with %v %v %v", d.Sub(start), ok, p.Err())
				}
				calls := 0
				p.AfterFunc(func() { calls++ })
				stop := p.AfterFunc(func() { t.Error("called, though taken back") })
				if !stop() || stop() {
					t.Error("stop does not tell")
				}
				child, cancel := context.WithCancel(p)
				defer cancel()
				later, cancelLater := context.WithTimeout(child, time.Hour)
				defer cancelLater()
				done := p.Done()
				tt.end(c, closeServer)
				<-done
				<-later.Done()
				synctest.Wait()
				if took := time.Since(start); took != tt.after {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				if !errors.Is(p.Err(), tt.err) || !errors.Is(child.Err(), tt.err) || calls != 1 {
					t.Errorf("%v, its child %v, %d calls", p.Err(), child.Err(), calls)
				}
				p.AfterFunc(func() { calls++ })
				synctest.Wait()
				if calls != 2 {
					t.Errorf("a function that comes late was called %d times", calls-1)
				}
				c.endWait()
			})
		})
	}
}

// TestPatienceUnasked: one that nobody waits for has no timer, and is over all the same.
func TestPatienceUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, closeServer := waiting(time.Second)
		defer closeServer()
		p := c.beginWait()
		time.Sleep(2 * time.Second)
		if !errors.Is(p.Err(), context.DeadlineExceeded) || p.timer != nil {
			t.Errorf("%v", p.Err())
		}
		c.endWait()
		select {
		case <-p.Done():
		default:
			t.Error("Done is open after the end")
		}
	})
}

// TestPatienceLateCalls: what a context calls at its end may come when the connection is at its next request. It must
// still find that the time is over: package context panics otherwise, and the process ends.
func TestPatienceLateCalls(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the calls come once this goroutine waits
	c, closeServer := waiting(time.Hour)
	defer closeServer()
	p := c.beginWait()
	child, cancel := context.WithCancel(p)
	called := make(chan struct{})
	p.AfterFunc(func() { close(called) })
	p.stop(context.DeadlineExceeded) // as its timer does
	cancel()                         // while the dial succeeds
	c.endWait()
	next := c.beginWait()
	<-called
	runtime.Gosched()
	if child.Err() == nil || p.Err() == nil || next.Err() != nil {
		t.Errorf("%v %v, the next %v", child.Err(), p.Err(), next.Err())
	}
	c.endWait()
}

// TestLosersOfARace: dials that lost may still look at their time when the next request has begun (for -race).
func TestLosersOfARace(t *testing.T) {
	w := newWorld(t, `rules: [{match: {network: {domains: ["*"], ips: ["127.0.0.0/8"]}}, action: allow, reason: r}]`)
	w.srv.Dialer.Stagger = time.Microsecond
	w.name("a.test", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
	o := httpOrigin(t, func(*http.Request, string) string {
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
	})
	const requests = 20
	for range 30 {
		c := w.dial().send(strings.Repeat(fmt.Sprintf("GET http://a.test:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", o.port), requests))
		for range requests {
			if r := c.response("GET"); r.StatusCode != http.StatusOK {
				t.Fatal(r.Status)
			}
		}
		c.Close()
	}
}

// TestPanicGivesBack: after a panic nothing is waited for any more, and what was counted is given back.
func TestPanicGivesBack(t *testing.T) {
	w := newWorld(t, allowNames)
	var waits []context.Context
	w.gate.Lookup = func(ctx context.Context, _ string, _ bool) (resolve.Answer, error) {
		waits = append(waits, ctx)
		_ = ctx.Done() // it waits
		panic("a bug")
	}
	for range 3 {
		c := w.dial().send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("y", 20_000) + "\r\n\r\n")
		if s := c.response("GET").StatusCode; s != http.StatusInternalServerError {
			t.Errorf("status %d", s)
		}
		c.Close()
		w.srv.conns.wait()
	}
	for _, ctx := range waits {
		if ctx.Err() == nil {
			t.Error("the wait goes on")
		}
	}
	if held := w.srv.budget.held.Load(); held != 0 {
		t.Errorf("%d bytes of heads are still counted", held)
	}
	w.gate.Lookup = func(context.Context, string, bool) (resolve.Answer, error) {
		return resolve.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, nil
	}
	o := httpOrigin(t, func(*http.Request, string) string { return okReply("x") })
	if s := w.status(fmt.Sprintf("GET http://allowed.test:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", o.port)); s != http.StatusOK {
		t.Errorf("afterwards: status %d", s)
	}
}
