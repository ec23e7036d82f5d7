package decisionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync/atomic"
)

const (
	maxSubscribers = 16
	eventQueue     = 256 // events that wait for one subscriber
)

// ErrTooManySubscribers is what Subscribe fails with.
var ErrTooManySubscribers = errors.New("too many subscribers")

// Event is a line of the log: a decision, a close or a reload, as its kind says. Subscribers share the line and do not
// change it.
type Event struct {
	Kind string
	Line json.RawMessage
}

// Subscription brings events from a Ring, in order. A subscriber that does not keep up loses the newest ones.
type Subscription struct {
	// C brings the events. It is never closed.
	C       <-chan Event
	queue   chan Event
	dropped atomic.Int64
	ring    *Ring
}

// Subscribe starts a subscription; what happened before is not in it. Close ends it. The error is
// ErrTooManySubscribers.
func (r *Ring) Subscribe() (*Subscription, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subs) >= maxSubscribers {
		return nil, ErrTooManySubscribers
	}
	if r.subs == nil {
		r.subs = map[*Subscription]struct{}{}
	}
	queue := make(chan Event, eventQueue)
	s := &Subscription{C: queue, queue: queue, ring: r}
	r.subs[s] = struct{}{}
	return s, nil
}

// TakeDropped gives the number of events lost since it was last asked.
func (s *Subscription) TakeDropped() int64 { return s.dropped.Swap(0) }

// Close ends the subscription. A second call does nothing.
func (s *Subscription) Close() {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	delete(s.ring.subs, s)
}

// publish hands a copy of a line to every subscriber that has room. The caller holds mu.
func (r *Ring) publish(kind string, line []byte) {
	if len(r.subs) == 0 {
		return
	}
	e := Event{kind, bytes.Clone(line)}
	for s := range r.subs {
		select {
		case s.queue <- e:
		default:
			s.dropped.Add(1)
		}
	}
}
