package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// watchDialAfter is how long a lookup or a dial may take before somebody looks whether its client is still there.
const watchDialAfter = 200 * time.Millisecond

// patience is the time that lookup and dial may take together, as a context. It costs one timer until somebody has
// really waited: only then the client is watched, in case it leaves. It calls functions at its end itself, as package
// context asks of a context that needs no goroutine for those that are made of it.
type patience struct {
	conn     *conn
	deadline time.Time

	mu    sync.Mutex
	runs  bool          // between begin and end
	turn  int           // of begin: the timer of an earlier one means nothing any more
	timer *time.Timer   // runs once somebody waits
	done  chan struct{} // made for the first who asks
	calls []*atEnd
	err   error

	watch     watch // of the client
	leaveBase func() bool
}

// atEnd is a function that is called when the time is over.
type atEnd struct{ f func() }

// begin starts the time anew.
func (p *patience) begin(c *conn) {
	p.end()
	p.mu.Lock()
	p.conn, p.deadline, p.err = c, time.Now().Add(c.srv.Limits.Answer), nil
	p.runs = true
	p.turn++
	p.mu.Unlock()
}

// goOn begins the time anew unless it runs: a lookup and the dial behind it share it, a second dial has one of its own.
func (p *patience) goOn(c *conn) {
	p.mu.Lock()
	runs := p.runs
	p.mu.Unlock()
	if !runs {
		p.begin(c)
	}
}

// end takes everything back. The client's connection is the owner's alone again.
func (p *patience) end() {
	p.mu.Lock()
	leave := p.leaveBase
	p.leaveBase, p.runs = nil, false
	p.finish(context.Canceled)
	p.mu.Unlock()
	if leave != nil {
		leave()
		p.watch.end()
	}
}

// finish ends the time once. The caller holds mu.
func (p *patience) finish(err error) {
	if p.err == nil {
		p.err = err
	}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.done != nil {
		close(p.done)
		p.done = nil
	}
	for _, c := range p.calls {
		go c.f()
	}
	p.calls = nil
}

// arm starts the timer, for somebody waits. The caller holds mu.
func (p *patience) arm() {
	if p.timer != nil {
		return
	}
	turn := p.turn
	p.timer = time.AfterFunc(min(watchDialAfter, p.conn.srv.Limits.Answer), func() { p.tick(turn) })
}

// tick begins the watch, and ends the time when it is over.
func (p *patience) tick(turn int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn != turn || p.timer == nil {
		return
	}
	left := time.Until(p.deadline)
	if left <= 0 {
		p.finish(context.DeadlineExceeded)
		return
	}
	p.timer.Reset(left)
	if p.leaveBase == nil {
		p.leaveBase = context.AfterFunc(p.conn.srv.base, func() { p.giveUp(turn) })
		p.watch.start(p.conn, 0, p)
	}
}

// giveUp ends the time early, for the server closes by force.
func (p *patience) giveUp(turn int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == turn {
		p.finish(context.Canceled)
	}
}

// clientGone ends the time early. The watch ends with the time, so it is that of now.
func (p *patience) clientGone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(context.Canceled)
}

// clientEnded changes nothing: some clients still wait.
func (p *patience) clientEnded() {}

// Deadline is when the time is over.
func (p *patience) Deadline() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deadline, true
}

// ended is the Done of a time that is over.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed at the end of the time.
func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return ended
	}
	if p.done == nil {
		p.done = make(chan struct{})
	}
	p.arm()
	return p.done
}

// AfterFunc has f called in a goroutine of its own at the end of the time. stop takes that back and reports whether it
// was in time.
func (p *patience) AfterFunc(f func()) (stop func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		go f()
		return func() bool { return false }
	}
	c := &atEnd{f}
	p.calls = append(p.calls, c)
	p.arm()
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.calls, c)
		if i < 0 {
			return false
		}
		p.calls = slices.Delete(p.calls, i, i+1)
		return true
	}
}

// Err says whether and how the time has ended.
func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return p.err
	case !time.Now().Before(p.deadline):
		return context.DeadlineExceeded
	default:
		return p.conn.srv.base.Err()
	}
}

// Value has none.
func (p *patience) Value(any) any { return nil }
