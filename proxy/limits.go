package proxy

import (
	"context"
	"strconv"
	"sync"
	"time"

	"dshproxy/proxy/identity"
)

// Limits bound what clients can hold. A zero field means its default, given in brackets; negative durations mean none.
type Limits struct {
	Connections   int           // in all (20000)
	PerClient     int           // of one client (half of Connections)
	HeadBytes     int           // of a message head (64 KiB)
	HeadFields    int           // fields of a head (200)
	HeadTimeout   time.Duration // from accept, or the first byte of a later head, to its end (10 s)
	KeepAliveIdle time.Duration // between requests (90 s)
	Answer        time.Duration // lookup and dial together (4.5 s)
	Idle          time.Duration // of a tunnel or stream, in both directions (1 h)
	HalfClose     time.Duration // idle after one side has ended (10 min)
	Lifetime      time.Duration // of a tunnel (none)
	TunnelBytes   int64         // in both directions together (none)
	ClientLookups int           // lookups in flight of one client (32)
	ClientDials   int           // dials in flight of one client (256)
	ResponseHead  time.Duration // from request to response head (none)
	Hello         time.Duration // from the first byte of a TLS hello in a tunnel to its last (5 s)
	HeldBytes     int64         // of all heads that are being read, beyond their first 4 KiB (64 MiB)
}

// withDefaults fills the zero fields.
func (l Limits) withDefaults() Limits {
	setDefault(&l.Connections, 20000)
	setDefault(&l.PerClient, max(1, l.Connections/2))
	setDefault(&l.HeadBytes, 64<<10)
	setDefault(&l.HeadFields, 200)
	setDefault(&l.HeadTimeout, 10*time.Second)
	setDefault(&l.KeepAliveIdle, 90*time.Second)
	setDefault(&l.Answer, 4500*time.Millisecond)
	setDefault(&l.Idle, time.Hour)
	setDefault(&l.HalfClose, 10*time.Minute)
	setDefault(&l.ClientLookups, 32)
	setDefault(&l.ClientDials, 256)
	setDefault(&l.Hello, 5*time.Second)
	setDefault(&l.HeldBytes, 64<<20)
	return l
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// client is what one client holds: an identity, else a user, an address (IPv6 by /64), or a listener.
type client struct {
	key            string
	conns          int    // guarded by clients.mu
	nobody         *party // of those of its connections that have proved nothing; guarded by clients.mu
	lookups, dials chan struct{}
}

// enterLookup waits for a place within the answer budget.
func (c *client) enterLookup(ctx context.Context) bool { return enter(ctx, c.lookups) }
func (c *client) leaveLookup()                         { <-c.lookups }
func (c *client) enterDial(ctx context.Context) bool   { return enter(ctx, c.dials) }
func (c *client) leaveDial()                           { <-c.dials }

func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// clients counts connections, in total and by client.
type clients struct {
	mu     sync.Mutex
	limits *Limits
	total  int
	byKey  map[string]*client
}

// admission to the proxy as such, before any byte is read.
type slot uint8

const (
	slotTaken slot = iota
	slotClientFull
	slotServerFull
)

// enter takes a slot for a connection to a listener. Without one the party is that of the connection alone.
func (c *clients) enter(key string, at *front) (*client, *party, slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= c.limits.Connections {
		return nil, &party{front: at, key: key}, slotServerFull
	}
	one := c.byKey[key]
	if one == nil {
		one = &client{key: key, lookups: make(chan struct{}, c.limits.ClientLookups), dials: make(chan struct{}, c.limits.ClientDials)}
	}
	if one.nobody == nil || one.nobody.front != at {
		one.nobody = &party{front: at, key: one.key}
	}
	if one.conns >= c.limits.PerClient {
		return nil, one.nobody, slotClientFull
	}
	c.byKey[key] = one
	one.conns++
	c.total++
	return one, one.nobody, slotTaken
}

// move counts a connection under another client. False leaves it where it was: the other one is full.
func (c *clients) move(from *client, key string) (*client, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.byKey[key]
	if to == nil {
		to = &client{key: key, lookups: make(chan struct{}, c.limits.ClientLookups), dials: make(chan struct{}, c.limits.ClientDials)}
	}
	if to.conns >= c.limits.PerClient {
		return nil, false
	}
	c.byKey[key] = to
	to.conns++
	if from.conns--; from.conns == 0 {
		delete(c.byKey, from.key)
	}
	return to, true
}

// leave gives the slot back.
func (c *clients) leave(one *client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if one.conns--; one.conns == 0 {
		delete(c.byKey, one.key)
	}
}

// active gives the number of slots taken.
func (c *clients) active() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// clientKey names the client of a connection of which nothing is proved: its user, its address or its listener.
func clientKey(f *identity.Facts) string {
	switch addr := f.Source; {
	case f.HasPeer:
		return "uid:" + strconv.Itoa(f.PeerUID)
	case !addr.IsValid():
		return "listener:" + f.Listener
	case addr.Is4():
		return addr.String()
	default:
		p, _ := addr.Prefix(64)
		return p.String()
	}
}
