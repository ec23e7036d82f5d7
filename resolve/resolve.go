// Package resolve looks names up: once a connection, absolutely, within bounds.
//
// It asks the servers of resolv.conf or those it is given, the hosts file first, A and AAAA in parallel, over TCP where
// an answer is cut; it caches by TTL and lets callers of the same name share one query. Elsewhere than on Linux the
// operating system resolves unless servers are given. The package decides nothing: whether a name may be asked about,
// and which of its addresses may be dialled, is settled by proxy.Gate, whose Pinned it defines.
package resolve

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options configure a Resolver. The zero value is the system's configuration with the defaults below.
type Options struct {
	// Servers are asked in turn; nil means those of ResolvConf, re-read every 5 s, or the operating system's resolver
	// elsewhere than on Linux.
	Servers []Server
	// ResolvConf and HostsFile are paths; empty means /etc/resolv.conf and /etc/hosts.
	ResolvConf, HostsFile string
	// Search are suffixes tried, in order, for a name without a dot before the name itself.
	Search []string
	// Timeout of one try at one server; 0 means 2 s.
	Timeout time.Duration
	// MaxLookups caps the queries in flight; 0 means 512. More wait for a place.
	MaxLookups int
	// CacheSize caps the cached answers, one a name and family; 0 means 4096.
	CacheSize int
	// Observe is told of every lookup that went out, with its error; nil means nobody is.
	Observe func(took time.Duration, err error)
}

const (
	defaultTimeout   = 2 * time.Second
	defaultLookups   = 512
	defaultCacheSize = 4096
	maxAddrs         = 4096                  // of one answer; a message cannot hold many more
	secondFamilyWait = 50 * time.Millisecond // RFC 8305 §3
	nextServerAfter  = time.Second
	flightLimit      = 10 * time.Second // of one shared query, whoever still waits for it
)

// Answer is what a lookup gave, IPv4 before IPv6, each in the server's order.
type Answer struct {
	Addrs []netip.Addr
	// Cached is true when no server was asked for it.
	Cached bool
}

// Error is a lookup that gave no address.
type Error struct {
	Name    string
	Rcode   string // "NXDOMAIN", "SERVFAIL", …; "NODATA" for a name without addresses; empty where no answer came
	Timeout bool
	Err     error // may be nil
}

func (e *Error) Error() string {
	switch {
	case e.Timeout:
		return "lookup of " + e.Name + ": timeout"
	case e.Rcode != "":
		return "lookup of " + e.Name + ": " + e.Rcode
	case e.Err != nil:
		return "lookup of " + e.Name + ": " + e.Err.Error()
	default:
		return "lookup of " + e.Name + ": no answer"
	}
}

func (e *Error) Unwrap() error { return e.Err }

// noData reports whether the server has answered that there are no addresses, of this family at least.
func (e *Error) noData() bool { return e.Rcode == rcodeNoData || e.Rcode == rcodeNXDomain }

const (
	rcodeNoData   = "NODATA"
	rcodeNXDomain = "NXDOMAIN"
)

// Resolver looks names up. It is safe for concurrent use.
type Resolver struct {
	opts    Options
	system  *systemConfig
	hosts   *hostsFile
	cache   *cache
	places  chan struct{}
	mu      sync.Mutex
	flights map[key]*flight
}

// key is one question.
type key struct {
	name string
	v6   bool
}

// New makes a resolver. It reads no file yet.
func New(opts Options) *Resolver {
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.MaxLookups == 0 {
		opts.MaxLookups = defaultLookups
	}
	if opts.CacheSize == 0 {
		opts.CacheSize = defaultCacheSize
	}
	if opts.ResolvConf == "" {
		opts.ResolvConf = "/etc/resolv.conf"
	}
	if opts.HostsFile == "" {
		opts.HostsFile = "/etc/hosts"
	}
	return &Resolver{
		opts:    opts,
		system:  &systemConfig{path: opts.ResolvConf},
		hosts:   &hostsFile{path: opts.HostsFile},
		cache:   newCache(opts.CacheSize),
		places:  make(chan struct{}, opts.MaxLookups),
		flights: map[key]*flight{},
	}
}

// Lookup gives the addresses of a canonical name (lower-case, no root dot). The name is taken as absolute (RFC 1034
// §3.1) unless it has no dot and Search says otherwise. With bothFamilies the answer is complete or an error; without,
// one family is enough once it has answered and 50 ms have passed (RFC 8305 §3). localhost and names under it are
// loopback without a query (RFC 6761 §6.3); names under onion do not exist (RFC 7686). Errors are of type *Error.
func (r *Resolver) Lookup(ctx context.Context, name string, bothFamilies bool) (Answer, error) {
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return Answer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, Cached: true}, nil
	case name == "onion" || strings.HasSuffix(name, ".onion"), name == "":
		return Answer{}, &Error{Name: name, Rcode: rcodeNXDomain}
	}
	if addrs := r.hosts.lookup(name); len(addrs) > 0 {
		return Answer{Addrs: addrs, Cached: true}, nil
	}
	if !strings.Contains(name, ".") {
		for _, suffix := range r.opts.Search {
			answer, err := r.lookupAbsolute(ctx, name+"."+suffix, bothFamilies)
			var e *Error
			if err == nil || errors.As(err, &e) && e.Rcode != rcodeNXDomain {
				return answer, err
			}
		}
	}
	return r.lookupAbsolute(ctx, name, bothFamilies)
}

func (r *Resolver) lookupAbsolute(ctx context.Context, name string, bothFamilies bool) (Answer, error) {
	four, have4 := r.cache.get(key{name, false})
	six, have6 := r.cache.get(key{name, true})
	if have4 && have6 {
		return join(name, four, six, true)
	}
	start := time.Now()
	results := make(chan familyResult, 2)
	waiting := 0
	for _, v6 := range []bool{false, true} {
		if v6 && have6 || !v6 && have4 {
			continue
		}
		waiting++
		go r.await(ctx, key{name, v6}, results)
	}
	answer, err := r.collect(ctx, name, four, six, have4, have6, waiting, results, bothFamilies)
	if r.opts.Observe != nil {
		r.opts.Observe(time.Since(start), err)
	}
	return answer, err
}

type familyResult struct {
	v6     bool
	result result
}

// collect waits for the families that are missing.
func (r *Resolver) collect(ctx context.Context, name string, four, six result, have4, have6 bool, waiting int, results <-chan familyResult, both bool) (Answer, error) {
	var enough <-chan time.Time
	settle := func() {
		if !both && enough == nil && waiting > 0 && (have4 && len(four.addrs) > 0 || have6 && len(six.addrs) > 0) {
			timer := time.NewTimer(secondFamilyWait)
			enough = timer.C
		}
	}
	settle()
	for waiting > 0 {
		select {
		case got := <-results:
			waiting--
			if got.v6 {
				six, have6 = got.result, true
			} else {
				four, have4 = got.result, true
			}
			settle()
			if e := got.result.err; e != nil && e.Rcode == rcodeNXDomain && enough == nil && waiting > 0 {
				// The other family will say the same, unless the server is confused; then its addresses count.
				enough = time.After(nextServerAfter)
			}
		case <-enough:
			waiting = 0
		case <-ctx.Done():
			return Answer{}, &Error{Name: name, Timeout: true, Err: ctx.Err()}
		}
	}
	if !have4 {
		four = result{err: &Error{Name: name, Rcode: rcodeNoData}}
	}
	if !have6 {
		six = result{err: &Error{Name: name, Rcode: rcodeNoData}}
	}
	if both {
		// A rule may turn on an address of the family that failed.
		for _, e := range []*Error{four.err, six.err} {
			if e != nil && !e.noData() {
				return Answer{}, e
			}
		}
	}
	return join(name, four, six, false)
}

// join makes one answer of two families.
func join(name string, four, six result, cached bool) (Answer, error) {
	addrs := make([]netip.Addr, 0, len(four.addrs)+len(six.addrs))
	addrs = append(append(addrs, four.addrs...), six.addrs...)
	if len(addrs) > 0 {
		return Answer{Addrs: addrs[:min(len(addrs), maxAddrs)], Cached: cached}, nil
	}
	nothing := &Error{Name: name, Rcode: rcodeNoData}
	for _, e := range []*Error{four.err, six.err} {
		if e != nil && !e.noData() {
			return Answer{}, e
		}
		if e != nil && e.Rcode == rcodeNXDomain {
			nothing = e
		}
	}
	return Answer{}, nothing
}

// flight is one query that several callers share.
type flight struct {
	done   chan struct{}
	result result
}

// await joins or starts the query of a key and sends its result, which the caller may have stopped waiting for.
func (r *Resolver) await(ctx context.Context, k key, out chan<- familyResult) {
	r.mu.Lock()
	f := r.flights[k]
	if f == nil {
		// A query may have ended since the caller looked into the cache.
		if got, have := r.cache.get(k); have {
			r.mu.Unlock()
			out <- familyResult{k.v6, got}
			return
		}
		f = &flight{done: make(chan struct{})}
		r.flights[k] = f
		go r.fly(k, f)
	}
	r.mu.Unlock()
	select {
	case <-f.done:
		out <- familyResult{k.v6, f.result}
	case <-ctx.Done():
		out <- familyResult{k.v6, result{err: &Error{Name: k.name, Timeout: true, Err: ctx.Err()}}}
	}
}

// fly asks, on a clock of its own: one caller that leaves must not fail the others.
func (r *Resolver) fly(k key, f *flight) {
	ctx, cancel := context.WithTimeout(context.Background(), flightLimit)
	defer cancel()
	f.result = result{err: &Error{Name: k.name, Err: errors.New("the resolver gave up")}}
	defer func() {
		if p := recover(); p != nil { // a hostile answer must not end the process
			f.result = result{err: &Error{Name: k.name, Err: errors.New("a malformed answer")}}
		}
		r.cache.put(k, f.result)
		r.mu.Lock()
		delete(r.flights, k)
		r.mu.Unlock()
		close(f.done)
	}()
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		f.result = result{err: &Error{Name: k.name, Timeout: true, Err: errors.New("too many lookups in flight")}}
		return
	}
	f.result = r.ask(ctx, k)
}

func (r *Resolver) ask(ctx context.Context, k key) result {
	servers := r.opts.Servers
	if servers == nil && runtime.GOOS != "linux" {
		return askSystem(ctx, k)
	}
	if servers == nil {
		servers = r.system.servers()
	}
	return r.askServers(ctx, k, servers)
}
