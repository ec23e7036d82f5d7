package proxy

import (
	"bytes"
	"errors"
	"time"

	"dshproxy/netrule"
)

// opening holds what a client sends first through a tunnel until it is known what it speaks: TLS, HTTP/1 in clear, or
// something else. Nothing of it is passed on before. There is no clock before the first byte, and none for text that may
// still become a request; a TLS hello must be whole within Limits.Hello of its first byte.
type opening struct {
	tunnel *tunnel
	held   []byte
	timed  bool
	tls    bool // the client has begun to speak TLS
	deep   bool // looking at it took a large stack
	hello  clientHello
	behind int          // bytes that came with the hello, after it
	second *secondHello // watches for another hello, once the first has passed; nil expects none
	why    *Admission   // the judgement that refused it, if one did
}

// step is what to do with the bytes so far.
type step uint8

const (
	stepRefuse  step = iota // the tunnel ends
	stepMore                // hold them and read on
	stepPass                // send them on; the tunnel is one of bytes from now on
	stepHTTP                // the forwarder serves them
	stepInspect             // TLS is terminated here
)

// take looks at more bytes; end says that no more will come. send is what has come so far, valid until the next read.
func (o *opening) take(b []byte, end bool) (send []byte, next step, code netrule.Code) {
	send = b
	if o.held != nil {
		o.held = append(o.held, b...)
		send = o.held
	}
	if len(send) == 0 {
		if !end {
			return nil, stepMore, 0
		}
		return nil, stepPass, 0 // nothing was ever sent
	}
	if isRecord(send[0]) {
		next, code = o.takeHello(send, end)
	} else {
		next, code = o.takeText(send, end)
	}
	if next == stepMore && o.held == nil {
		o.held = bytes.Clone(send)
	}
	return send, next, code
}

func (o *opening) takeHello(b []byte, end bool) (step, netrule.Code) {
	if !o.tls {
		o.tls, o.deep = true, true
		growStack() // once, instead of step by step while the hello is judged
	}
	hello, rest, err := parseHello(b)
	switch {
	case errors.Is(err, errHelloMore) && !end:
		if !o.timed {
			o.timed = true
			_ = o.tunnel.client.SetReadDeadline(time.Now().Add(o.tunnel.srv.Limits.Hello)) // a closed connection ends the read by itself
		}
		return stepMore, 0
	case err != nil:
		return stepRefuse, netrule.CodeTLSIncomplete
	}
	o.hello = hello
	next, code := o.tunnel.judgeTLS(&hello)
	if next == stepPass && o.tunnel.srv.SNI == SNIEnforce {
		o.behind = len(rest)
		o.second = expectHello(&o.hello)
	}
	return next, code
}

func (o *opening) takeText(b []byte, end bool) (step, netrule.Code) {
	switch readsAs(b, end, o.tunnel.srv.Limits.HeadBytes) {
	case textMore:
		return stepMore, 0
	case textHTTP:
		return stepHTTP, 0
	default:
		return o.tunnel.judgeOther()
	}
}

// settle takes the clock of the hello off.
func (o *opening) settle() {
	if o.timed {
		o.timed = false
		_ = o.tunnel.client.SetReadDeadline(time.Time{}) // as above
	}
}

type textKind uint8

const (
	textOther textKind = iota
	textMore
	textHTTP
)

// preface begins HTTP/2 without TLS (RFC 9113 §3.4), which no reader of HTTP/1 takes for a request.
var preface = []byte("PRI * HTTP/2.0\r\n")

// readsAs tells whether a text is an HTTP/1 request, as the most lenient origin would read it: empty lines and blanks
// before it, a method of any length, tabs between its parts, or any byte behind the method do not hide one, and neither
// does a line without an end. The forwarder then refuses what is not strict. Text is held to the end of its first line; a
// first word that can be no method shows at once that it is something else.
func readsAs(b []byte, end bool, limit int) textKind {
	text := bytes.TrimLeft(b, "\r\n\t\v\f ")
	line, _, whole := bytes.Cut(text, []byte("\n"))
	method := 0
	for method < len(line) && isToken(line[method]) {
		method++
	}
	switch {
	case method < len(line) && !isBlank(line[method]) && line[method] != '\r':
		return textOther
	case bytes.HasPrefix(text, preface):
		return textOther
	case whole && bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")):
		return textHTTP
	case whole || end:
		return textOther
	case len(b) > limit:
		return textHTTP // with a head that is too large
	default:
		return textMore
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\v' || c == '\f' }

// isRecord reports the first byte of a TLS record of any kind: before a hello some readers skip an alert.
func isRecord(c byte) bool { return 0x14 <= c && c <= 0x18 }

// alertAccessDenied ends TLS before it has begun (RFC 8446 §6.2): fatal, access_denied.
var alertAccessDenied = []byte{0x15, 3, 3, 0, 2, 2, 49}

// sayGoodbye tells a TLS client that it was refused, and lets it read that: a close with unread bytes would be a reset.
func (t *tunnel) sayGoodbye(tls bool) {
	_ = t.client.SetDeadline(time.Now().Add(lingerFor)) // a closed connection needs no farewell
	if tls {
		if writeLast(t.client, alertAccessDenied) != nil {
			return
		}
	}
	drain(t.client, t.srv.pools)
}
