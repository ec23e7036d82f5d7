package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// watchDialAfter is how long a lookup or a dial may take before somebody looks whether its client is still there.
const watchDialAfter = 200 * time.Millisecond

// patience is the time that the lookup and the dial of one request may take together, as a context. It costs one timer
// until somebody has really waited: only then the client is watched, in case it leaves. It calls functions at its end
// itself, as package context asks of a context that needs no goroutine for those that are made of it; they may come late,
// so no other request gets the same one.
type patience struct {
	conn     *conn
	deadline time.Time

	mu    sync.Mutex
	timer *time.Timer   // runs once somebody waits
	done  chan struct{} // made for the first who asks
	calls []*atEnd
	err   error // once it is over

	watch     watch // of the client
	leaveBase func() bool
}

// atEnd is a function that is called when the time is over.
type atEnd struct{ f func() }

// beginWait starts the time of a request.
func (c *conn) beginWait() *patience {
	c.endWait()
	c.patience = &patience{conn: c, deadline: time.Now().Add(c.srv.Limits.Answer)}
	return c.patience
}

// goOnWaiting gives the time that runs, or starts one: a lookup and the dial behind it share it, a second dial has one of
// its own.
func (c *conn) goOnWaiting() *patience {
	if c.patience == nil {
		return c.beginWait()
	}
	return c.patience
}

// endWait ends the time, if one runs. The client's connection is the owner's alone again.
func (c *conn) endWait() {
	if c.patience != nil {
		c.patience.end()
		c.patience = nil
	}
}

func (p *patience) end() {
	p.mu.Lock()
	leave := p.leaveBase
	p.leaveBase = nil
	p.finish(context.Canceled)
	p.mu.Unlock()
	if leave != nil {
		leave()
		p.watch.end()
	}
}

// finish ends the time, for the first reason that there is. The caller holds mu.
func (p *patience) finish(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.done != nil {
		close(p.done)
	}
	for _, c := range p.calls {
		go c.f()
	}
	p.calls = nil
}

// stop ends the time from another goroutine.
func (p *patience) stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(err)
}

// arm starts the timer, for somebody waits. The caller holds mu.
func (p *patience) arm() {
	if p.timer == nil {
		p.timer = time.AfterFunc(min(watchDialAfter, p.conn.srv.Limits.Answer), p.tick)
	}
}

// tick begins the watch, and ends the time when it is over.
func (p *patience) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.deadline)
	switch {
	case p.err != nil:
	case left <= 0:
		p.finish(context.DeadlineExceeded)
	default:
		p.timer.Reset(left)
		if p.leaveBase == nil {
			p.leaveBase = context.AfterFunc(p.conn.srv.base, func() { p.stop(context.Canceled) })
			p.watch.start(p.conn, 0, p)
		}
	}
}

// clientGone ends the time early.
func (p *patience) clientGone() { p.stop(context.Canceled) }

// clientEnded changes nothing: some clients still wait.
func (p *patience) clientEnded() {}

// Deadline is when the time is over.
func (p *patience) Deadline() (time.Time, bool) { return p.deadline, true }

// ended is the Done of a time that was over before anybody asked.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed at the end of the time.
func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done != nil:
	case p.err != nil:
		p.done = ended
	default:
		p.done = make(chan struct{})
		p.arm()
	}
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

// Err says whether and how the wait has ended.
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
