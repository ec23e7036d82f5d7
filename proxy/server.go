package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/proxy/identity"
	"dshproxy/upstream"
)

// Observer is told what happened. Records are valid only during the call. Methods are called from many goroutines and
// must not block.
type Observer interface {
	// Connected is called for each accepted connection.
	Connected(listener string)
	Decided(*decisionlog.Decision)
	Closed(*decisionlog.Close)
}

// Server serves clients. Set the fields, then call Serve once a listener. The zero value refuses everything.
type Server struct {
	// Gate decides; nil refuses everything.
	Gate *Gate
	// Dialer makes the connections; nil fails them all. Its Check should be the Gate's.
	Dialer *upstream.Dialer
	// Book tells who clients are; nil, or a nil book, refuses everybody. It is asked with each request.
	Book func() *identity.Book
	// SNI is what becomes of a name in a tunnel's TLS hello that is not the one that was asked for.
	SNI SNIMode
	// Inspector terminates the TLS of the tunnels that it covers; nil leaves all of them opaque.
	Inspector Inspector
	Limits    Limits
	// Observers are told in turn.
	Observers []Observer
	// Log is for the operator; nil discards.
	Log *slog.Logger
	// Workspace is the folder that paths in denials are shown relative to.
	Workspace string
	// DenyMessage is a line of the operator's in every denial.
	DenyMessage string
	// PolicyHash names the policy of a workspace in records; nil leaves it out.
	PolicyHash func(workspace string) string

	once      sync.Once
	clients   clients
	flights   flights
	conns     connSet
	pools     *bufferPools
	pipes     *pipePool
	budget    budget
	pseudonym string
	loops     tracked[*acceptLoop]
	base      context.Context // ends when connections are closed by force
	endBase   context.CancelFunc
	draining  atomic.Bool
	stopped   atomic.Bool
	reserve   chan struct{}
	changed   chan struct{}
	stopSweep chan struct{}
	open      sync.Mutex
	opened    []net.Listener
}

// reserveSlots answer 503 to connections over the limit; beyond them accept pauses.
const reserveSlots = 64

func (s *Server) init() {
	s.once.Do(func() {
		s.Limits = s.Limits.withDefaults()
		s.clients = clients{limits: &s.Limits, byKey: map[string]*client{}}
		s.flights.init()
		s.conns.init()
		s.loops.init()
		s.base, s.endBase = context.WithCancel(context.Background())
		s.pools = newBufferPools()
		s.pipes = newPipePool()
		s.budget.limit = s.Limits.HeldBytes
		s.reserve = make(chan struct{}, reserveSlots)
		s.changed = make(chan struct{}, 1)
		s.stopSweep = make(chan struct{})
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		if s.Gate == nil {
			s.Gate = &Gate{}
		}
		if s.Dialer == nil {
			s.Dialer = &upstream.Dialer{}
		}
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails, by its documentation
		s.pseudonym = "dshproxy-" + hex.EncodeToString(b[:])
		go s.housekeeping()
	})
}

// Pseudonym is the name of this process in Via.
func (s *Server) Pseudonym() string {
	s.init()
	return s.pseudonym
}

// Active gives the number of client connections.
func (s *Server) Active() int {
	s.init()
	return s.clients.active()
}

// stuckAfter is how long an accept loop may be busy with one connection before it counts as stuck.
const stuckAfter = 10 * time.Second

// acceptLoop tells since when, in unix nanoseconds, a loop has been busy; 0 while it waits for a connection.
type acceptLoop struct {
	busy  atomic.Int64
	place place[*acceptLoop]
}

func (l *acceptLoop) where() *place[*acceptLoop] { return &l.place }

// Alive reports whether connections are accepted: every loop waits for one, or got one less than 10 s ago.
func (s *Server) Alive() bool {
	s.init()
	loops := s.loops.snapshot()
	for _, l := range loops {
		if busy := l.busy.Load(); busy != 0 && time.Now().UnixNano()-busy > int64(stuckAfter) {
			return false
		}
	}
	return len(loops) > 0
}

// book gives who clients are now.
func (s *Server) book() *identity.Book {
	if s.Book == nil {
		return nil
	}
	return s.Book()
}

// shut gives the code with which requests are answered while none are taken.
func (s *Server) shut() (netrule.Code, bool) {
	switch {
	case s.stopped.Load():
		return netrule.CodeStopped, true
	case s.draining.Load():
		return netrule.CodeDraining, true
	default:
		return netrule.CodeInternalError, false
	}
}

// Stop refuses everything from now on and ends all that is in flight, until Resume.
func (s *Server) Stop() {
	s.init()
	s.stopped.Store(true)
	for _, f := range s.flights.snapshot() {
		f.stop(netrule.CodeStopped)
	}
}

// launch enters a flight into the books. A stop that came between its admission and now has not seen it.
func (s *Server) launch(f *flight) {
	s.flights.launch(f, s.Gate)
	if s.stopped.Load() {
		f.stop(netrule.CodeStopped)
	}
}

// decided hands out a decision.
func (s *Server) decided(r *decisionlog.Decision) {
	for _, o := range s.Observers {
		o.Decided(r)
	}
}

// closed hands out the end of a flight.
func (s *Server) closed(r *decisionlog.Close) {
	for _, o := range s.Observers {
		o.Closed(r)
	}
}

// Resume takes requests again.
func (s *Server) Resume() { s.stopped.Store(false) }

// Stopped reports whether Stop holds.
func (s *Server) Stopped() bool { return s.stopped.Load() }

// Draining reports whether the server has stopped taking work.
func (s *Server) Draining() bool { return s.draining.Load() }

// PolicyChanged makes everything in flight be judged again, soon and off the accept path.
func (s *Server) PolicyChanged() {
	s.init()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Server) housekeeping() {
	ticker := time.NewTicker(sweepEvery(&s.Limits))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.guarded(func() { s.flights.sweep(now, &s.Limits) })
			if book := s.book(); book.AsksForTokens() {
				s.guarded(func() { s.flights.expire(s.Gate, book, now) })
			}
		case <-s.changed:
			s.guarded(func() { s.flights.rejudge(s.Gate, s.book(), time.Now()) })
		case <-s.stopSweep:
			return
		}
	}
}

// guarded keeps a bug in one turn from ending the process.
func (s *Server) guarded(f func()) {
	defer s.recovered()
	f()
}

func (s *Server) recovered() {
	if p := recover(); p != nil {
		s.Log.Error("internal error", "panic", p, "stack", string(debug.Stack()))
	}
}

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("proxy: server closed")

// Serve accepts connections until the listener fails or Shutdown is called. It closes the listener.
func (s *Server) Serve(l Listener) error {
	s.init()
	s.open.Lock()
	if s.draining.Load() {
		s.open.Unlock()
		l.Close()
		return ErrClosed
	}
	s.opened = append(s.opened, l.Listener)
	s.open.Unlock()
	loop := &acceptLoop{}
	s.loops.add(loop)
	defer s.loops.remove(loop)
	defer l.Close()
	f := &front{&l, l.Name, &voice{full: l.Explain, workspace: s.Workspace, message: s.DenyMessage}}
	backoff := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.draining.Load() || errors.Is(err, net.ErrClosed) {
				return ErrClosed
			}
			// Out of descriptors, most likely: give connections time to end.
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			s.Log.Warn("accept failed", "listener", l.Name, "err", err, "retry", backoff)
			time.Sleep(backoff)
			continue
		}
		backoff = 0
		loop.busy.Store(time.Now().UnixNano())
		s.accept(nc, f)
		loop.busy.Store(0)
	}
}

// accept gives a connection a slot and an owner.
func (s *Server) accept(nc net.Conn, f *front) {
	for _, o := range s.Observers {
		o.Connected(f.name)
	}
	facts := factsOf(nc, f.name)
	key := clientKey(&facts)
	one, who, got := s.clients.enter(key, f)
	c := s.newConn(who, nc)
	c.facts = facts
	if got != slotTaken {
		code := netrule.CodeServerLimit
		if got == slotClientFull {
			code = netrule.CodeClientLimit
		}
		if !s.takeReserve(got) {
			c.turnAwayAtOnce(code)
			return
		}
		go func() {
			defer func() { <-s.reserve }()
			defer s.recovered()
			c.turnAway(code)
		}()
		return
	}
	c.client = one
	s.conns.add(c)
	go c.serve()
}

// takeReserve takes a place to answer a connection that got no slot. Over the total accept pauses until there is one; a
// client over its own limit must not hold up the others.
func (s *Server) takeReserve(why slot) bool {
	if why == slotServerFull {
		s.reserve <- struct{}{}
		return true
	}
	select {
	case s.reserve <- struct{}{}:
		return true
	default:
		return false
	}
}

// Shutdown drains: listeners close, connections without a request close, requests that still come are answered 503, and
// tunnels run until ctx ends, when they are closed with a record. It returns ctx's error if it had to close any.
func (s *Server) Shutdown(ctx context.Context) error {
	s.init()
	s.open.Lock()
	already := s.draining.Swap(true)
	for _, l := range s.opened {
		l.Close()
	}
	s.open.Unlock()
	wakeIdle(&s.conns)
	done := make(chan struct{})
	go func() {
		s.conns.wait()
		s.flights.wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.endBase()
		for _, f := range s.flights.snapshot() {
			f.stop(netrule.CodeDraining)
		}
		closeAll(&s.conns)
		<-done
	}
	if !already {
		close(s.stopSweep)
		s.endBase()
		s.pipes.close()
	}
	return err
}

// connSet tracks the client connections whose owner still reads requests.
type connSet = tracked[*conn]

// wakeIdle ends the wait of connections that have sent nothing yet.
func wakeIdle(cs *connSet) {
	for _, c := range cs.snapshot() {
		c.wakeIdle()
	}
}

func closeAll(cs *connSet) {
	for _, c := range cs.snapshot() {
		c.raw.Close()
	}
}
