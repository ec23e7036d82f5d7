package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"strings"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy"

	"github.com/elazarl/goproxy"
)

// Options configure an Engine.
type Options struct {
	// Domains are what is inspected: "x" with everything under it, "*.x" only that, "=x" exactly x.
	Domains []string
	// CACert and CAKey are the CA in PEM. Certificates behind the first are sent along with each leaf.
	CACert, CAKey []byte
	// Roots verify the origins; nil means those of the system.
	Roots *x509.CertPool
	// Pseudonym names this process in Via (RFC 9110 §7.6.3), and a request that carries it already is a loop. Empty adds
	// no Via.
	Pseudonym string
	// Limits bound a tunnel; the zero value has defaults.
	Limits Limits
	// Log is told of internal errors and of clients that do not trust the CA; nil discards.
	Log *slog.Logger
}

// Limits bound what one tunnel may hold and how long it may wait. A zero field has the default in parentheses.
type Limits struct {
	HeadBytes     int           // of a request or response head (64 KiB)
	HeadFields    int           // of a request (200)
	HeadTimeout   time.Duration // for the handshake with the client, and for a whole HTTP/1 request head (10 s)
	KeepAliveIdle time.Duration // between requests (90 s)
	Answer        time.Duration // dial and handshake with the origin, each (4.5 s)
	ResponseHead  time.Duration // from request to response head (0: none)
	Idle          time.Duration // without a byte from or to the client (1 h)
	Streams       int           // requests at once in one HTTP/2 tunnel, and connections to its origin (100)
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.HeadBytes, 64<<10)
	setDefault(&l.HeadFields, 200)
	setDefault(&l.HeadTimeout, 10*time.Second)
	setDefault(&l.KeepAliveIdle, 90*time.Second)
	setDefault(&l.Answer, 4500*time.Millisecond)
	setDefault(&l.Idle, time.Hour)
	setDefault(&l.Streams, 100)
	return l
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Engine inspects tunnels. It is safe for concurrent use and holds nothing that needs closing.
type Engine struct {
	domains   domains
	leaves    *leaves
	roots     *x509.CertPool
	pseudonym string
	limits    Limits
	log       *slog.Logger
	errors    *log.Logger // for net/http
	proxy     *goproxy.ProxyHttpServer
	now       func() time.Time
}

var _ proxy.Inspector = (*Engine)(nil)

// New makes an Engine. It refuses a CA that has expired, is none, does not match its key, or cannot speak for every one
// of the domains.
func New(o Options) (*Engine, error) {
	d, err := parseDomains(o.Domains)
	if err != nil {
		return nil, fmt.Errorf("inspection: %w", err)
	}
	ca, err := loadAuthority(o.CACert, o.CAKey, time.Now())
	if err != nil {
		return nil, fmt.Errorf("inspection CA: %w", err)
	}
	l, err := newLeaves(ca)
	if err != nil {
		return nil, fmt.Errorf("inspection: %w", err)
	}
	if err := ca.speaksFor(d, l, time.Now()); err != nil {
		return nil, fmt.Errorf("inspection CA: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		domains: d, leaves: l, roots: o.Roots, pseudonym: o.Pseudonym, limits: o.Limits.withDefaults(), log: o.Log, now: time.Now,
		errors: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	e.proxy = newGoproxy(e.errors)
	return e, nil
}

// NotAfter tells when the CA expires. From then on every handshake fails.
func (e *Engine) NotAfter() time.Time { return e.leaves.ca.cert.NotAfter }

// Covers reports whether tunnels to a host are inspected. Any spelling of the host will do.
func (e *Engine) Covers(host string) bool {
	t, err := netrule.ParseConnect(host + ":443")
	return err == nil && e.domains.cover(t)
}

// Inspect serves one tunnel. It returns when the client or the context has ended it, and has closed both sides then.
func (e *Engine) Inspect(ctx context.Context, it *proxy.InspectedTunnel) {
	defer it.Client.Close()
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("internal error", "panic", p)
		}
	}()
	target, err := netrule.ParseConnect(netrule.Target{Host: it.Host, Port: it.Port}.Authority())
	if err != nil || !e.domains.cover(target) {
		e.log.Error("a tunnel that is not to be inspected", "host", it.Host)
		return
	}
	target.Scheme = netrule.SchemeHTTPS // its hello has said so
	t := newTunnel(ctx, e, it, target)
	defer t.close()
	conn, err := t.handshake()
	if err != nil {
		e.reportHandshake(target, err)
		return
	}
	t.serve(conn)
}

// reportHandshake says what an operator can mend; the rest is noise.
func (e *Engine) reportHandshake(target netrule.Target, err error) {
	var alert tls.AlertError
	var op *net.OpError
	refused := errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error"
	if text := err.Error(); refused && (strings.Contains(text, "certificate") || strings.Contains(text, "unknown")) {
		e.log.Warn("a client does not trust the inspection CA", "host", target.Host, "error", text)
		return
	}
	e.log.Debug("a client's handshake failed", "host", target.Host, "error", err)
}
