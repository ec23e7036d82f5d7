package proxy

import (
	"context"
	"sync"
	"time"
)

// patience is the time that lookup and dial may take together, as a context. It costs next to nothing until somebody
// really waits: only then a timer runs, and the client is watched, in case it leaves.
type patience struct {
	conn     *conn
	deadline time.Time

	mu     sync.Mutex
	real   context.Context
	cancel context.CancelFunc
	stop   func() // of the watch
}

// begin starts the time anew.
func (p *patience) begin(c *conn) {
	p.end()
	p.conn, p.deadline = c, time.Now().Add(c.srv.Limits.Answer)
}

// end takes everything back. The client's connection is the owner's alone again.
func (p *patience) end() {
	p.mu.Lock()
	cancel, stop := p.cancel, p.stop
	p.real, p.cancel, p.stop = nil, nil, nil
	p.mu.Unlock()
	if cancel != nil {
		stop()
		cancel()
	}
}

// started gives the context that a wait needs.
func (p *patience) started() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.real == nil {
		p.real, p.cancel = context.WithDeadline(p.conn.srv.base, p.deadline)
		p.stop = p.conn.watch(p.cancel)
	}
	return p.real
}

// Deadline is when the time is over.
func (p *patience) Deadline() (time.Time, bool) { return p.deadline, true }

// Done begins the watch.
func (p *patience) Done() <-chan struct{} { return p.started().Done() }

// Err says whether and how the wait has ended.
func (p *patience) Err() error {
	p.mu.Lock()
	real := p.real
	p.mu.Unlock()
	switch {
	case real != nil:
		return real.Err()
	case !time.Now().Before(p.deadline):
		return context.DeadlineExceeded
	default:
		return p.conn.srv.base.Err()
	}
}

// Value lets contexts that are made of this one find the real one.
func (p *patience) Value(key any) any { return p.started().Value(key) }
