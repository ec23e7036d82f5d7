package proxy

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
	"dshproxy/proxy/identity"
	"dshproxy/upstream"
)

// flight is a connection that carries bytes: a tunnel, an upgrade or a forwarded exchange. It is swept for idleness by
// the clock, and judged again on every reload.
type flight struct {
	*party
	id        string
	protocol  string
	workspace string
	dest      upstream.Destination
	dialed    netip.AddrPort  // invalid where a parent has resolved the name
	policy    *netrule.Policy // that admitted it
	start     time.Time
	limit     int64   // of its bytes, both ways together; 0 is none
	within    *flight // the tunnel that carries it; its bytes are that one's, too

	// keepAlive switches on TCP keep-alive probes; the sweep calls it once the flight has lived for a while, which saves
	// short ones the system calls.
	keepAlive func()
	probed    bool // of the sweep alone

	moves   atomic.Int64 // times that something has moved either way
	looked  atomic.Int64 // of them, those that somebody has looked at
	last    atomic.Int64 // unix nanoseconds of the look that first saw the last move
	in, out atomic.Int64 // bytes from and to the client
	half    atomic.Bool  // one side has ended

	place place[*flight]

	end   func() // closes both sides; called by stop, under mu, and never once the flight is over
	mu    sync.Mutex
	query netrule.Query   // what is judged again; guarded by mu
	sni   *netrule.Target // another name that its TLS was admitted for; nil for none
	why   string          // set by the first to end it
	by    string
	code  netrule.Code // of stop
	over  bool
}

func (f *flight) where() *place[*flight] { return &f.place }

// touch notes that something has moved. Whoever looks finds out when: looking at the clock at each move would cost more.
func (f *flight) touch() {
	f.moves.Add(1)
	if f.within != nil {
		f.within.moves.Add(1)
	}
}

// idle tells for how long nothing has moved, as far as anybody has looked: the sweep does now and then.
func (f *flight) idle(now time.Time) time.Duration {
	if moves := f.moves.Load(); moves != f.looked.Load() {
		f.last.Store(now.UnixNano()) // first, for another may look at the same time
		f.looked.Store(moves)
	}
	return time.Duration(now.UnixNano() - f.last.Load())
}

// carried counts bytes: inward ones come from the client. Over its limit the flight is stopped; who knows before how much it
// may move asks left.
func (f *flight) carried(inward bool, n int64) {
	if inward {
		f.in.Add(n)
	} else {
		f.out.Add(n)
	}
	if left, limited := f.left(); limited && left < 0 {
		f.stop(netrule.CodeBytes)
	}
	if f.within != nil {
		f.within.carried(inward, n)
	}
}

// current gives what the flight is judged by now.
func (f *flight) current() netrule.Query {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.query
}

// seen notes what a tunnel has turned out to carry, and the name that its TLS is for.
func (f *flight) seen(scheme netrule.Scheme, name netrule.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.query.Target.Scheme = scheme
	if name.Host != f.query.Target.Host {
		other := name // a copy of its own: most tunnels have none
		f.sni = &other
	}
}

// carries is seen for what has no name of its own.
func (f *flight) carries(scheme netrule.Scheme) {
	f.mu.Lock()
	f.query.Target.Scheme = scheme
	f.mu.Unlock()
}

// name gives the target that the flight's TLS is for.
func (f *flight) name() netrule.Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sni != nil {
		return *f.sni
	}
	return f.query.Target
}

// renew tells who the client is now. One who cannot be told any more is unknown.
func (f *flight) renew(book *identity.Book, now time.Time) (changed bool) {
	if !f.proved {
		return false
	}
	who, ok := book.Renew(f.who, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	agents := who.Agents
	if !ok {
		agents = nil
	}
	changed = !slices.Equal(agents, f.query.Agents)
	f.query.Agents = agents
	return changed
}

// allowed judges the flight by the rules of now: its target and the name in its TLS, at the address that it has.
func (f *flight) allowed(g *Gate) bool {
	q := f.current()
	if !g.StillAllowed(q, f.dest, f.dialed, f.workspace) {
		return false
	}
	name := f.name()
	return name.Host == q.Target.Host || g.StillAllowed(netrule.Query{Target: name, Agents: q.Agents}, f.dest, f.dialed, f.workspace)
}

// note says who ended the flight and why; the first to say so is right.
func (f *flight) note(by, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == "" {
		f.by, f.why = by, why
	}
}

// stop ends the flight from the proxy's side. One that is over already is left alone: its connections may serve the
// next request by now.
func (f *flight) stop(code netrule.Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	if f.why == "" || f.why == "eof" { // the end of one side was not that of the flight
		f.by, f.why, f.code = "proxy", code.String(), code
	}
	f.end()
}

// stopped gives the code with which the proxy ended the flight, or CodeInternalError when it did not.
func (f *flight) stopped() netrule.Code {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.code
}

// ended reports whether somebody has said why the flight ends.
func (f *flight) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why != ""
}

// left gives how many bytes the flight may still carry, and false when there is no limit.
func (f *flight) left() (int64, bool) {
	if f.limit <= 0 {
		return 0, false
	}
	return f.limit - f.in.Load() - f.out.Load(), true
}

// flights are all of a server.
type flights struct{ tracked[*flight] }

// launch enters a flight into the books. A reload that came between its admission and now has not seen it, so it is
// judged again here.
func (fs *flights) launch(f *flight, g *Gate) {
	f.last.Store(f.start.UnixNano())
	fs.add(f)
	if !g.isCurrent(f.policy, f.workspace) && !f.allowed(g) {
		f.stop(netrule.CodeRevoked)
	}
}

// keepAliveAfter is the age from which a connection is probed for a peer that is gone without a word.
const keepAliveAfter = 20 * time.Second

// setKeepAlive switches probes on for the TCP connections among these.
func setKeepAlive(conns ...net.Conn) {
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(true) // a closed connection needs none
		}
	}
}

// sweep ends what has been idle or has lived too long.
func (fs *flights) sweep(now time.Time, l *Limits) {
	for _, f := range fs.snapshot() {
		limit := l.Idle
		if f.half.Load() {
			limit = min(limit, l.HalfClose)
		}
		if !f.probed && f.keepAlive != nil && now.Sub(f.start) > keepAliveAfter {
			f.probed = true
			f.keepAlive()
		}
		switch {
		case limit > 0 && f.idle(now) > limit:
			f.stop(netrule.CodeIdle)
		case l.Lifetime > 0 && now.Sub(f.start) > l.Lifetime:
			f.stop(netrule.CodeLifetime)
		}
	}
}

// rejudgeSlice is how many flights are judged before others get their turn.
const rejudgeSlice = 256

// rejudge ends what the rules and identities of now no longer allow.
func (fs *flights) rejudge(g *Gate, book *identity.Book, now time.Time) {
	for i, f := range fs.snapshot() {
		if i%rejudgeSlice == rejudgeSlice-1 {
			runtime.Gosched()
		}
		f.renew(book, now)
		if !f.allowed(g) {
			f.stop(netrule.CodeRevoked)
		}
	}
}

// expire judges again what was admitted for an identity that has changed since.
func (fs *flights) expire(g *Gate, book *identity.Book, now time.Time) {
	for _, f := range fs.snapshot() {
		if f.renew(book, now) && !f.allowed(g) {
			f.stop(netrule.CodeRevoked)
		}
	}
}

// land ends the flight for good and fills its record, which is blank.
func (f *flight) land(now time.Time, c *decisionlog.Close) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	c.Time, c.ID, c.Listener, c.Duration = now, f.id, f.front.name, now.Sub(f.start)
	c.BytesIn, c.BytesOut, c.ClosedBy, c.Why = f.in.Load(), f.out.Load(), f.by, f.why
	if f.sni != nil {
		c.SNI = f.sni.Host
	}
}

// sweepEvery is a fraction of the shortest limit, within bounds.
func sweepEvery(l *Limits) time.Duration {
	shortest := l.Idle
	for _, d := range []time.Duration{l.HalfClose, l.Lifetime} {
		if d > 0 && (shortest <= 0 || d < shortest) {
			shortest = d
		}
	}
	if shortest <= 0 {
		return 15 * time.Second
	}
	return min(max(shortest/8, 10*time.Millisecond), 15*time.Second)
}

// Tunnel is one tunnel, upgrade or forwarded exchange in flight, for listings.
type Tunnel struct {
	ID, Listener, Client, Identity, Workspace string
	Target                                    netrule.Target
	Dialed                                    netip.AddrPort // invalid where a parent has resolved the name
	SNI                                       string         // another name that its TLS was admitted for
	Upstream                                  string         // parent proxy, without its password
	Started                                   time.Time
	Idle                                      time.Duration
	BytesIn, BytesOut                         int64 // from and to the client
}

// Tunnels lists what is in flight, the oldest first.
func (s *Server) Tunnels() []Tunnel {
	s.init()
	now := time.Now()
	var out []Tunnel
	for _, f := range s.flights.snapshot() {
		q := f.current()
		t := Tunnel{
			ID: f.id, Listener: f.front.name, Client: f.key, Identity: f.who.Name, Workspace: f.workspace, Target: q.Target, Dialed: f.dialed,
			Started: f.start, Idle: f.idle(now), BytesIn: f.in.Load(), BytesOut: f.out.Load(),
		}
		if name := f.name(); name.Host != q.Target.Host {
			t.SNI = name.Host
		}
		if p := f.dest.Parent(); p != nil {
			t.Upstream = p.String()
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Tunnel) int { return a.Started.Compare(b.Started) })
	return out
}
