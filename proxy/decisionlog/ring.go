package decisionlog

import (
	"bytes"
	"encoding/json"
	"sync"

	"dshproxy/netrule"
)

// maxRing is the most decisions of a kind that a ring keeps. A line has some 20 KiB at worst, and half a KiB mostly.
const maxRing = 10_000

// Ring keeps the newest decisions in memory, for whoever asks the running proxy, and tells subscribers what happens.
// Allowed, refused and failed ones have a ring each, so that a flood of one kind does not push out the others. It keeps
// lines as the log writes them, never the records, which end with the call that brings them. Its methods may be called
// from many goroutines and never wait for a subscriber. The zero Ring keeps nothing.
type Ring struct {
	mu      sync.Mutex
	kinds   [ringKinds]ring
	seq     uint64
	scratch []byte
	subs    map[*Subscription]struct{}
}

// Kinds of decisions that do not push each other out.
const (
	ringOK = iota
	ringRefused
	ringFailed
	ringKinds
)

// NewRing makes a ring that keeps the newest size decisions of each kind; none where size is not positive, and never
// more than 10,000.
func NewRing(size int) *Ring {
	r := &Ring{}
	for i := range r.kinds {
		r.kinds[i].size = max(0, min(size, maxRing))
	}
	return r
}

// slot is a kept decision: its line, and what queries look at. Buffers are reused.
type slot struct {
	seq      uint64
	line     []byte
	id, host []byte
	verdict  netrule.Action
	judged   bool
}

// ring is a circle of slots that grows to its size and then goes round.
type ring struct {
	size  int
	slots []slot
	next  int // the slot that is written next, once all are there
}

// claim gives the slot of the oldest decision, or a new one.
func (r *ring) claim() *slot {
	if len(r.slots) < r.size {
		r.slots = append(r.slots, slot{})
		return &r.slots[len(r.slots)-1]
	}
	s := &r.slots[r.next]
	r.next = (r.next + 1) % r.size
	return s
}

// newest gives the slot of the decision that has back newer ones, or nil.
func (r *ring) newest(back int) *slot {
	n := len(r.slots)
	if back >= n {
		return nil
	}
	return &r.slots[(r.next+n-1-back)%n]
}

func kindOf(d *Decision) int {
	switch d.Outcome {
	case "ok":
		return ringOK
	case "refused":
		return ringRefused
	default:
		return ringFailed
	}
}

// Decided keeps a decision and tells the subscribers.
func (r *Ring) Decided(d *Decision) {
	l := line{of: d}
	defer l.release()
	r.decided(&l)
}

func (r *Ring) decided(l *line) {
	d := l.of
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := &r.kinds[kindOf(d)]
	if kind.size == 0 && len(r.subs) == 0 {
		return
	}
	text := bytes.TrimSuffix(l.bytes(), []byte("\n"))
	if kind.size > 0 {
		r.seq++
		s := kind.claim()
		s.seq, s.verdict, s.judged = r.seq, d.Decision.Action, d.Judged
		s.line, s.id, s.host = refill(s.line, text), refill(s.id, d.ID), refill(s.host, hostOf(d))
	}
	r.publish("decision", text)
}

func hostOf(d *Decision) string {
	host := d.Target.Host
	if host == "" {
		host = d.RawTarget
	}
	return host[:min(len(host), maxHost)]
}

// refill copies text into a buffer, which stays near the size of what it holds.
func refill[T string | []byte](buf []byte, text T) []byte {
	if cap(buf) < len(text) || cap(buf) > 4*len(text)+256 {
		buf = make([]byte, 0, len(text))
	}
	return append(buf[:0], text...)
}

// Closed tells the subscribers of the end of a connection.
func (r *Ring) Closed(c *Close) {
	if r.isHeard() {
		r.tell("close", c.appendTo)
	}
}

// Reloaded tells the subscribers of a reload.
func (r *Ring) Reloaded(l *Reload) {
	if r.isHeard() {
		r.tell("reload", l.appendTo)
	}
}

// isHeard reports whether there are subscribers. Most of the time there are none, and telling them takes a larger stack
// than the goroutines of a tunnel have.
func (r *Ring) isHeard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.subs) > 0
}

//go:noinline
func (r *Ring) tell(kind string, add func([]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scratch = add(r.scratch[:0])
	r.publish(kind, bytes.TrimSuffix(r.scratch, []byte("\n")))
}

// RingQuery says which decisions are wanted. The zero query wants all that are kept.
type RingQuery struct {
	Limit   int    // the most there may be; 0 for all
	ID      string // of the decision, as the client was shown it; a connection may have several of the same
	Host    string // in canonical form
	Verdict string // allow, deny or ask; other texts match nothing
}

func (q *RingQuery) matches(s *slot) bool {
	return (q.ID == "" || q.ID == string(s.id)) &&
		(q.Host == "" || q.Host == string(s.host)) &&
		(q.Verdict == "" || s.judged && q.Verdict == s.verdict.String())
}

// Recent gives copies of the lines of decisions, the newest first.
func (r *Ring) Recent(q RingQuery) []json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []json.RawMessage
	var back [ringKinds]int
	for q.Limit <= 0 || len(out) < q.Limit {
		from := -1
		var s *slot
		for i := range r.kinds {
			if c := r.kinds[i].newest(back[i]); c != nil && (s == nil || c.seq > s.seq) {
				from, s = i, c
			}
		}
		if s == nil {
			break
		}
		back[from]++
		if q.matches(s) {
			out = append(out, bytes.Clone(s.line))
		}
	}
	return out
}
