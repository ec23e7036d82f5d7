package proxy

import (
	"net/http"
	"strconv"
	"strings"
)

// appendRequest generates the request for the origin: nothing of the client's framing or routing is copied.
func (x *exchange) appendRequest(b []byte) []byte {
	h, t := &x.head, x.q.Target
	b = append(append(b, h.method...), ' ')
	parent := x.origin.parent
	if parent != nil { // absolute-form (RFC 9112 §3.2.2); an empty path is one of a server-wide OPTIONS
		b = append(append(b, "http://"...), t.Authority()...)
	}
	switch {
	case parent != nil && (x.path == "" && string(h.method) == "OPTIONS"):
	case x.path == "" && string(h.method) == "OPTIONS":
		b = append(b, '*') // RFC 9112 §3.2.4
	case x.path == "" || x.path[0] == '?':
		b = append(append(b, '/'), x.path...)
	default:
		b = append(b, x.path...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	authority := t.Authority()
	if t.Port == 80 {
		authority = strings.TrimSuffix(authority, ":80")
	}
	b = append(append(b, authority...), crlf...)
	for _, f := range h.fields {
		if dropsFromRequest(h, f) {
			continue
		}
		b = append(append(append(append(b, f.name...), ": "...), f.value...), crlf...)
	}
	b = append(append(append(b, "Via: 1.1 "...), x.srv.pseudonym...), crlf...)
	if parent != nil {
		if secret := parent.Authorization(); secret != "" {
			b = append(append(append(b, "Proxy-Authorization: "...), secret...), crlf...)
		}
	}
	switch h.framing {
	case byChunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case byLength:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, h.length, 10), crlf...)
	default:
	}
	if x.upgrades() {
		b = append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	return append(b, crlf...)
}

// upgrades reports whether an upgrade is passed on. Only WebSocket is: h2c and the like would carry requests past the
// gate unseen.
func (x *exchange) upgrades() bool {
	// The bytes of a head are looked at last: while there is a body they give way to it.
	return x.head.framing == noBody && x.head.minor > 0 && x.head.upgrade != nil && is(x.head.upgrade, "websocket")
}

// appendStatus starts a response to the client. The phrase is the stock one: the origin's is not ours to repeat.
func (x *exchange) appendStatus(rest func([]byte) []byte) []byte {
	b := append(x.out[:0], "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(x.resp.status), 10), ' ')
	phrase := http.StatusText(x.resp.status)
	if phrase == "" {
		phrase = "Status"
	}
	return rest(append(append(b, phrase...), crlf...))
}

func (x *exchange) appendResponseFields(b []byte) []byte {
	for _, f := range x.resp.fields {
		if dropsFromResponse(&x.resp, f) {
			continue
		}
		value := f.value
		if is(f.name, "proxy-status") {
			if value = foreignStatus(value); value == nil {
				continue
			}
		}
		b = append(append(append(append(b, f.name...), ": "...), value...), crlf...)
	}
	return append(append(append(b, "Via: 1.1 "...), x.srv.pseudonym...), crlf...)
}

func (x *exchange) appendResponseFraming(b []byte, closing bool) []byte {
	r := &x.resp
	switch {
	case r.framing == byChunks && x.head.minor > 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case r.framing == byLength, r.framing == noBody && r.length >= 0 && r.status != http.StatusNoContent:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, r.length, 10), crlf...)
	}
	if closing {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, crlf...)
}
