package decisionlog

import (
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
)

const (
	foldWindow   = 10 * time.Second
	clientBudget = 200    // refusals a second and client that are written out
	allowBudget  = 50_000 // allows and closes a second, all clients together
	maxFolds     = 8192   // kinds of refusals that are told apart; more are folded by code alone
)

// Log folds and budgets records and hands them to a Writer. The first refusal of a kind (client, host, port, code) is
// written at once; its repeats within ten seconds become one line with a count.
type Log struct {
	w      *Writer
	folded atomic.Int64

	mu      sync.Mutex
	folds   map[foldKey]*fold
	clients map[string]int // refusals written this second
	allows  int
	second  int64

	stop chan struct{}
	done chan struct{}
}

type foldKey struct {
	client, host string
	port         uint16
	scheme       netrule.Scheme
	code         netrule.Code
}

type fold struct {
	last    Decision
	ends    time.Time
	repeats int
}

// NewLog starts a log. Close ends it and its writer.
func NewLog(w *Writer) *Log {
	l := &Log{w: w, folds: map[foldKey]*fold{}, clients: map[string]int{}, stop: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Folded gives the number of records that became part of another line.
func (l *Log) Folded() int64 { return l.folded.Load() }

// Dropped gives the number of lines lost.
func (l *Log) Dropped() int64 { return l.w.Dropped() }

// Decided records a decision.
func (l *Log) Decided(d *Decision) {
	text := line{of: d}
	defer text.release()
	l.decided(&text)
}

func (l *Log) decided(text *line) {
	d := text.of
	if !d.Denied() {
		if l.spendAllow(d.Time) {
			l.w.write(text.bytes())
		} else {
			l.folded.Add(1)
		}
		return
	}
	if l.foldIn(d) {
		l.folded.Add(1)
		return
	}
	l.w.write(text.bytes())
}

// Closed records the end of a connection.
func (l *Log) Closed(c *Close) {
	if l.spendAllow(c.Time) {
		l.w.append(c.appendTo)
	} else {
		l.folded.Add(1)
	}
}

// Reloaded records a reload.
func (l *Log) Reloaded(r *Reload) { l.w.append(r.appendTo) }

// tick starts the budgets of a new second. The caller holds mu.
func (l *Log) tick(now time.Time) {
	if s := now.Unix(); s != l.second {
		l.second = s
		l.allows = 0
		clear(l.clients)
	}
}

func (l *Log) spendAllow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick(now)
	l.allows++
	return l.allows <= allowBudget
}

// foldIn reports whether the refusal is a repeat or over its client's budget, and then counts it.
func (l *Log) foldIn(d *Decision) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick(d.Time)
	k := foldKey{d.Client, d.Target.Host, d.Target.Port, d.Target.Scheme, d.Code}
	if f := l.folds[k]; f != nil && d.Time.Before(f.ends) {
		f.repeats++
		f.last = *d
		return true
	} else if f != nil {
		l.emit(k, f)
	}
	if l.clients[d.Client]++; l.clients[d.Client] <= clientBudget && len(l.folds) < maxFolds {
		l.folds[k] = &fold{ends: d.Time.Add(foldWindow)}
		return false
	}
	// Over the budget: one line a client and code.
	k.host, k.port, k.scheme = "", 0, netrule.SchemeUnknown
	if len(l.folds) >= maxFolds {
		k.client = ""
	}
	f := l.folds[k]
	if f == nil {
		f = &fold{ends: d.Time.Add(foldWindow)}
		l.folds[k] = f
	}
	f.repeats++
	f.last = *d
	f.last.Target.Host, f.last.Target.Port, f.last.RawTarget, f.last.Decision.Addrs = "", 0, "", nil
	return true
}

// emit writes the line of a fold that has ended, if anything was folded, and forgets it. The caller holds mu.
func (l *Log) emit(k foldKey, f *fold) {
	delete(l.folds, k)
	if f.repeats > 0 {
		f.last.Repeated = f.repeats
		l.w.append(f.last.appendTo)
	}
}

func (l *Log) run() {
	defer close(l.done)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			l.expire(now)
		case <-l.stop:
			return
		}
	}
}

func (l *Log) expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, f := range l.folds {
		if !now.Before(f.ends) {
			l.emit(k, f)
		}
	}
}

// Close writes what is folded and pending, and ends the log.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
	l.mu.Lock()
	for k, f := range l.folds {
		l.emit(k, f)
	}
	l.mu.Unlock()
	l.w.Close()
}
