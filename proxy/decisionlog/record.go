// Package decisionlog has the records of what the proxy decided and of how connections ended, and writes them as JSON
// lines: folded, budgeted, and never in the way of a connection.
//
// The shape of the lines is fixed by schema.json beside this file. Text from the wire is escaped to ASCII and capped.
package decisionlog

import (
	"bytes"
	_ "embed"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"dshproxy/netrule"
)

// Schema is the JSON Schema of a line.
//
//go:embed schema.json
var Schema string

// Decision is one request or tunnel that was judged, or refused before it could be.
type Decision struct {
	Time     time.Time
	ID       string
	Listener string
	Client   string // what limits are counted by: an identity, a uid, an address
	Identity string // empty while none is proved
	Protocol string // connect, http, socks5, inspected, unknown
	// Stage is "tunnel" for what a tunnel turned out to carry, empty for what was asked for.
	Stage string
	// Upstream is the parent proxy on the way, with its password masked; Delegated says that it resolves the name.
	Upstream  string
	Delegated bool
	// SNI is the name in a TLS hello, ECH says that an encrypted one is in it.
	SNI string
	ECH bool
	// Request is a request inside inspected TLS.
	Request *Request
	Target  netrule.Target
	// RawTarget is what the client asked for when it could not be parsed.
	RawTarget string
	// Judged is false where no policy was asked: the line then has no verdict.
	Judged   bool
	Decision netrule.Decision
	// Code is the outcome: that of the decision, or of what happened afterwards.
	Code netrule.Code
	// Outcome is "ok", "refused" or "failed".
	Outcome string
	Dialed  netip.AddrPort
	// LookedUp and DialTried say that the durations mean something.
	LookedUp, DialTried bool
	DNS, Dial, Decide   time.Duration
	Policy              string // hash of the policy that was asked
	Repeated            int    // how many refusals of the kind this line stands for; 0 on a line of its own
	Cause               string // of a failure, for the operator; never shown to the client
}

// Request is a request inside inspected TLS.
type Request struct {
	Method string
	Path   string // without the query
	Status int
}

// Denied reports whether the record is a refusal, whatever its kind.
func (d *Decision) Denied() bool { return d.Outcome == "refused" }

// Close is the end of a tunnel, upgrade or forwarded stream.
type Close struct {
	Time     time.Time
	ID       string
	Listener string
	SNI      string // another name than that of the target, which TLS was admitted for
	BytesIn  int64  // from the client
	BytesOut int64  // to the client
	Duration time.Duration
	ClosedBy string // client, target, proxy
	Why      string // eof, error, or a code: idle, lifetime, bytes, revoked, draining
}

// Reload is an attempt to load rules or settings.
type Reload struct {
	Time   time.Time
	OK     bool
	Rules  int
	Policy string
	Error  string
}

const (
	maxHost   = 256
	maxClient = 128
	maxReason = 1024
	maxCause  = 256
	maxAddrs  = 32 // of an answer, in a line
)

// appendTo writes the line of a decision.
func (d *Decision) appendTo(b []byte) []byte {
	b = appendHead(b, "decision", d.Time)
	b = appendField(b, "id", d.ID, 64)
	b = appendField(b, "listener", d.Listener, 64)
	b = appendField(b, "client", d.Client, maxClient)
	if d.Identity != "" {
		b = appendField(b, "identity", d.Identity, maxClient)
	}
	b = appendField(b, "scheme", d.Target.Scheme.String(), 8)
	if d.Target.Host != "" {
		b = appendField(b, "host", d.Target.Host, maxHost)
	} else {
		b = appendField(b, "host", d.RawTarget, maxHost)
	}
	b = appendInt(b, "port", int64(d.Target.Port))
	if d.Judged {
		b = appendField(b, "verdict", d.Decision.Action.String(), 8)
	}
	b = appendField(b, "code", d.Code.String(), 32)
	if r := d.Decision.Rule; d.Judged && r.Valid() {
		b = appendRule(b, r)
	}
	if d.Judged {
		b = appendField(b, "mode", d.Decision.Mode.String(), 16)
		b = appendBool(b, "matched", d.Decision.Matched())
	}
	if d.Decision.DryRun {
		b = appendBool(b, "dry_run", true)
		b = appendField(b, "would", d.Decision.Would.String(), 8)
		b = appendField(b, "would_code", d.Decision.WouldCode.String(), 32)
	}
	b = appendAddrs(b, d.Decision.Addrs)
	if d.Dialed.IsValid() {
		b = append(b, `,"dialed":"`...)
		b = append(d.Dialed.AppendTo(b), '"')
	}
	if d.Upstream != "" {
		b = appendField(b, "upstream", d.Upstream, maxHost)
	}
	if d.Delegated {
		b = appendField(b, "resolution", "delegated", 16)
	}
	if d.Stage != "" {
		b = appendField(b, "stage", d.Stage, 16)
	}
	if d.SNI != "" {
		b = appendField(b, "sni", d.SNI, maxHost)
	}
	if d.ECH {
		b = appendBool(b, "ech", true)
	}
	if r := d.Request; r != nil {
		b = appendString(append(b, `,"request":{"method":`...), r.Method, 32)
		b = appendField(b, "path", r.Path, 1024)
		b = append(appendInt(b, "status", int64(r.Status)), '}')
	}
	b = appendField(b, "outcome", d.Outcome, 16)
	if d.LookedUp {
		b = appendMillis(b, "dns_ms", d.DNS)
	}
	if d.DialTried {
		b = appendMillis(b, "dial_ms", d.Dial)
	}
	if d.Policy != "" {
		b = appendField(b, "policy", d.Policy, 64)
	}
	if d.Cause != "" {
		b = appendField(b, "cause", d.Cause, maxCause)
	}
	if d.Repeated > 0 {
		b = appendInt(b, "repeated", int64(d.Repeated))
	}
	return append(b, "}\n"...)
}

func appendAddrs(b []byte, addrs []netrule.AddrVerdict) []byte {
	if len(addrs) == 0 {
		return b
	}
	b = append(b, `,"addresses":[`...)
	for i := range addrs[:min(len(addrs), maxAddrs)] {
		a := &addrs[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"addr":"`...)
		b = append(a.Addr.AppendTo(b), '"')
		b = appendField(b, "class", a.Class.String(), 16)
		b = appendBool(b, "kept", a.Kept)
		if a.Why != "" {
			b = appendField(b, "why", a.Why, 16)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func (c *Close) appendTo(b []byte) []byte {
	b = appendHead(b, "close", c.Time)
	b = appendField(b, "id", c.ID, 64)
	b = appendInt(b, "bytes_in", c.BytesIn)
	b = appendInt(b, "bytes_out", c.BytesOut)
	b = appendMillis(b, "duration_ms", c.Duration)
	b = appendField(b, "closed_by", c.ClosedBy, 16)
	b = appendField(b, "why", c.Why, 32)
	if c.SNI != "" {
		b = appendField(b, "sni", c.SNI, maxHost)
	}
	return append(b, "}\n"...)
}

func (r *Reload) appendTo(b []byte) []byte {
	b = appendHead(b, "reload", r.Time)
	b = appendBool(b, "ok", r.OK)
	b = appendInt(b, "rules", int64(r.Rules))
	if r.Policy != "" {
		b = appendField(b, "policy", r.Policy, 64)
	}
	if r.Error != "" {
		b = appendField(b, "error", r.Error, maxReason)
	}
	return append(b, "}\n"...)
}

//go:noinline
func appendHead(b []byte, msg string, t time.Time) []byte {
	b = append(b, `{"time":"`...)
	b = appendTime(b, t)
	b = append(b, `","msg":"`...)
	return append(append(b, msg...), '"')
}

// secondText is a second in RFC 3339.
type secondText struct {
	unix int64
	text []byte
}

var lastSecond atomic.Pointer[secondText]

// appendTime writes RFC 3339 with microseconds in UTC. Many records share a second, and formatting it takes a larger
// stack than the goroutines of a tunnel have.
func appendTime(b []byte, t time.Time) []byte {
	s := lastSecond.Load()
	if s == nil || s.unix != t.Unix() {
		s = newSecond(t)
	}
	b = append(append(b, s.text...), '.')
	return append(appendDigits(b, t.Nanosecond()/1000, 6), 'Z')
}

//go:noinline
func newSecond(t time.Time) *secondText {
	s := &secondText{unix: t.Unix(), text: t.UTC().AppendFormat(nil, "2006-01-02T15:04:05")}
	lastSecond.Store(s)
	return s
}

// appendDigits writes a number with leading zeros.
func appendDigits(b []byte, n, width int) []byte {
	b = append(b, "000000"[:width]...)
	for i := len(b) - 1; n > 0 && width > 0; i, width = i-1, width-1 {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

// The writers of fields are not inlined: a line has twenty, whose temporaries together would be a large frame.

//go:noinline
func appendField(b []byte, name, value string, limit int) []byte {
	return appendString(appendName(b, name), value, limit)
}

//go:noinline
func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(appendName(b, name), v)
}

// appendMillis writes milliseconds with up to three decimals. A duration that a clock set back made negative is none.
//
//go:noinline
func appendMillis(b []byte, name string, d time.Duration) []byte {
	micros := max(0, d.Microseconds())
	b = strconv.AppendInt(appendName(b, name), micros/1000, 10)
	if rest := int(micros % 1000); rest > 0 {
		b = bytes.TrimRight(appendDigits(append(b, '.'), rest, 3), "0")
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string in ASCII. A byte that is no UTF-8 becomes the text \xNN, so that two different
// hosts never look alike; at most limit bytes of s are written.
func appendString(b []byte, s string, limit int) []byte {
	cut := len(s) > limit
	if cut {
		s = s[:limit]
	}
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, `\u00`...)
				b = append(b, hexDigits[c>>4], hexDigits[c&15])
			default:
				b = append(b, c)
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		if r == utf8.RuneError && size == 1 {
			b = append(b, `\\x`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
			continue
		}
		if r > 0xffff {
			r -= 0x10000
			b = appendU(appendU(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
			continue
		}
		b = appendU(b, r)
	}
	if cut {
		b = append(b, "..."...)
	}
	return append(b, '"')
}

func appendU(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
