package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Server is a name server. The zero value is invalid; ParseServer makes one.
type Server struct {
	Addr netip.AddrPort
	Net  string // "udp", "tcp" or "tcp-tls"
	// Name is what the certificate of a tcp-tls server must be for; empty means its address.
	Name string
}

// ParseServer reads IP, IP:port, tcp://IP[:port] or tls://IP[:port]. The port is 53, or 853 for tls.
func ParseServer(s string) (Server, error) {
	server := Server{Net: "udp"}
	rest, port := s, uint16(53)
	if after, ok := strings.CutPrefix(s, "tcp://"); ok {
		rest, server.Net = after, "tcp"
	} else if after, ok := strings.CutPrefix(s, "tls://"); ok {
		rest, server.Net, port = after, "tcp-tls", 853
	}
	if addr, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		server.Addr = netip.AddrPortFrom(addr, port)
		return server, nil
	}
	ap, err := netip.ParseAddrPort(rest)
	if err != nil || ap.Port() == 0 {
		return Server{}, fmt.Errorf("dns server %q: want IP, IP:port, tcp://IP or tls://IP", s)
	}
	server.Addr = ap
	return server, nil
}

// result is the answer for one family, with the time it may be kept.
type result struct {
	addrs []netip.Addr
	err   *Error
	ttl   time.Duration
}

const (
	maxTTL      = 5 * time.Minute
	minTTL      = time.Second
	negativeTTL = 30 * time.Second
	failureTTL  = time.Second
)

// askServers tries the servers in turn: the next one when one fails, or has not answered for a second. The first
// answer that settles the question wins. Two tries are made at a single server.
func (r *Resolver) askServers(ctx context.Context, k key, servers []Server) result {
	if len(servers) == 0 {
		return result{err: &Error{Name: k.name, Err: errors.New("no name server")}, ttl: failureTTL}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tries := max(2, len(servers))
	results := make(chan result, tries)
	started, pending := 0, 0
	start := func() {
		server := servers[started%len(servers)]
		started++
		pending++
		go func() { results <- r.askOne(ctx, k, server) }()
	}
	start()
	next := time.NewTicker(nextServerAfter)
	defer next.Stop()
	last := result{err: &Error{Name: k.name, Timeout: true}}
	for pending > 0 {
		select {
		case got := <-results:
			pending--
			if got.settles() {
				return got
			}
			last = got
			if started < tries {
				start()
			}
		case <-next.C:
			if started < tries && len(servers) > 1 {
				start()
			}
		case <-ctx.Done():
			return result{err: &Error{Name: k.name, Timeout: true, Err: ctx.Err()}, ttl: failureTTL}
		}
	}
	last.ttl = failureTTL
	return last
}

// settles reports whether no other server need be asked.
func (r *result) settles() bool {
	return r.err == nil || r.err.noData()
}

// askOne asks one server, over TCP when the answer was cut.
func (r *Resolver) askOne(ctx context.Context, k key, server Server) (res result) {
	defer func() {
		if p := recover(); p != nil {
			res = result{err: &Error{Name: k.name, Err: errors.New("a malformed answer")}}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	question := new(dns.Msg)
	qtype := dns.TypeA
	if k.v6 {
		qtype = dns.TypeAAAA
	}
	question.SetQuestion(k.name+".", qtype)
	question.SetEdns0(1232, false)
	answer, err := exchange(ctx, question, server, r.opts.Timeout)
	if err == nil && answer.Truncated && server.Net == "udp" {
		server.Net = "tcp"
		answer, err = exchange(ctx, question, server, r.opts.Timeout)
	}
	if err != nil {
		var ne net.Error
		timeout := errors.As(err, &ne) && ne.Timeout() || ctx.Err() != nil
		return result{err: &Error{Name: k.name, Timeout: timeout, Err: err}}
	}
	return read(k, answer)
}

func exchange(ctx context.Context, question *dns.Msg, server Server, timeout time.Duration) (*dns.Msg, error) {
	client := &dns.Client{Net: server.Net, Timeout: timeout}
	if server.Net == "tcp-tls" {
		client.TLSConfig = tlsConfig(server)
	}
	answer, _, err := client.ExchangeContext(ctx, question, server.Addr.String())
	if err != nil {
		return nil, err
	}
	if !answer.Response || len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, question.Question[0].Name) || answer.Question[0].Qtype != question.Question[0].Qtype {
		return nil, errors.New("an answer to another question")
	}
	return answer, nil
}

// read takes the addresses out of an answer, following its aliases from the name that was asked about (RFC 1034 §3.6.2).
func read(k key, answer *dns.Msg) result {
	if answer.Rcode != dns.RcodeSuccess {
		rcode := dns.RcodeToString[answer.Rcode]
		if rcode == "" {
			rcode = fmt.Sprint("RCODE", answer.Rcode)
		}
		return result{err: &Error{Name: k.name, Rcode: rcode}, ttl: negative(answer)}
	}
	owner, ttl := k.name+".", uint32(maxTTL/time.Second)
	for range 16 {
		alias := ""
		for _, rr := range answer.Answer {
			if c, ok := rr.(*dns.CNAME); ok && strings.EqualFold(c.Hdr.Name, owner) {
				alias, ttl = c.Target, min(ttl, c.Hdr.Ttl)
				break
			}
		}
		if alias == "" {
			break
		}
		owner = alias
	}
	out := result{}
	for _, rr := range answer.Answer {
		if addr, ok := addrOf(rr, k.v6); ok && strings.EqualFold(rr.Header().Name, owner) && len(out.addrs) < maxAddrs {
			out.addrs = append(out.addrs, addr)
			ttl = min(ttl, rr.Header().Ttl)
		}
	}
	if len(out.addrs) == 0 {
		return result{err: &Error{Name: k.name, Rcode: rcodeNoData}, ttl: negative(answer)}
	}
	out.ttl = max(time.Duration(ttl)*time.Second, minTTL)
	return out
}

func addrOf(rr dns.RR, v6 bool) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		if v6 {
			return netip.Addr{}, false
		}
		ip = rr.A.To4()
	case *dns.AAAA:
		if !v6 {
			return netip.Addr{}, false
		}
		ip = rr.AAAA.To16()
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// negative gives how long a negative answer may be kept (RFC 2308 §5), within 1 s and 30 s.
func negative(answer *dns.Msg) time.Duration {
	for _, rr := range answer.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			ttl := time.Duration(min(soa.Minttl, soa.Hdr.Ttl)) * time.Second
			return min(max(ttl, minTTL), negativeTTL)
		}
	}
	return minTTL
}

// askSystem lets the operating system resolve.
func askSystem(ctx context.Context, k key) result {
	network := "ip4"
	if k.v6 {
		network = "ip6"
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, network, k.name+".")
	if err == nil && len(addrs) > 0 {
		for i := range addrs {
			addrs[i] = addrs[i].Unmap().WithZone("")
		}
		return result{addrs: addrs[:min(len(addrs), maxAddrs)], ttl: minTTL}
	}
	var de *net.DNSError
	switch {
	case errors.As(err, &de) && de.IsNotFound:
		return result{err: &Error{Name: k.name, Rcode: rcodeNoData}, ttl: minTTL} // the system does not tell which
	case errors.As(err, &de) && de.IsTimeout:
		return result{err: &Error{Name: k.name, Timeout: true, Err: err}, ttl: failureTTL}
	default:
		return result{err: &Error{Name: k.name, Err: err}, ttl: failureTTL}
	}
}
