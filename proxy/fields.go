package proxy

import (
	"bytes"
	"strings"
)

// dashed gives a field name in lower case with "_" and "." as "-": some origins fold them, so a field that would become
// a framing, routing or hop-by-hop one must not pass under such a spelling.
func dashed(name []byte, buf *[40]byte) string {
	name = name[:min(len(name), len(buf))] // no exact name is that long, and prefixes still tell
	for i, c := range name {
		if c == '_' || c == '.' {
			c = '-'
		}
		buf[i] = lower(c)
	}
	return string(buf[:len(name)])
}

// hopByHop tells the fields that end at a proxy (RFC 9110 §7.6.1), and those that a proxy writes itself. They are taken
// out of requests and responses alike.
func hopByHop(name string) bool {
	switch name {
	case "connection", "keep-alive", "te", "transfer-encoding", "content-length", "upgrade", "proxy", "http2-settings":
		return true
	}
	return strings.HasPrefix(name, "proxy-") && name != "proxy-status"
}

// dropsFromRequest reports whether a request field stays behind.
func dropsFromRequest(h *requestHead, f field) bool {
	var buf [40]byte
	name := dashed(f.name, &buf)
	switch {
	case name == "host", name == "proxy-status", hopByHop(name):
		return true
	case name == "expect":
		return h.minor == 0
	default:
		return len(h.connection) > 0 && h.nominatesBytes(f.name)
	}
}

// dropsFromResponse reports whether a response field stays behind: hop-by-hop ones, and those that only this proxy may
// send, so that an origin cannot forge a denial.
func dropsFromResponse(h *responseHead, f field) bool {
	var buf [40]byte
	name := dashed(f.name, &buf)
	if name == "proxy-status" && !is(f.name, "proxy-status") {
		return true
	}
	if hopByHop(name) || name == "x-proxy-error" || strings.HasPrefix(name, "x-dshproxy-") {
		return true
	}
	for _, v := range h.connection {
		if listHasBytes(v, f.name) {
			return true
		}
	}
	return false
}

// foreignStatus takes our own members out of a Proxy-Status value of an origin (RFC 9209 §2). A line whose quotes or
// brackets do not balance goes as a whole: joined with the next it could mean anything.
func foreignStatus(value []byte) []byte {
	var out []byte
	if !balanced(value) {
		return nil
	}
	for _, member := range splitMembers(value) {
		member = trimOWS(member)
		if end := bytes.IndexFunc(member, func(r rune) bool { return r > 0x7f || !isToken(byte(r)) && r != ':' && r != '/' }); len(member) == 0 || end == 0 || end > 0 && is(member[:end], "dshproxy") || is(member, "dshproxy") {
			continue // empty, no token (a string, an inner list), or ours
		}
		if len(out) > 0 {
			out = append(out, ", "...)
		}
		out = append(out, member...)
	}
	return out
}

// balanced reports whether quotes and brackets close on the same line.
func balanced(value []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
	}
	return depth == 0 && !quoted
}

// splitMembers cuts a list at commas outside of quotes (RFC 9651 §3.1).
func splitMembers(value []byte) [][]byte {
	var out [][]byte
	start, quoted := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			out = append(out, value[start:i])
			start = i + 1
		}
	}
	return append(out, value[start:])
}

// forbiddenTrailer tells the trailer fields that must not pass: framing, routing, authentication, and what is ours
// (RFC 9110 §6.5.1).
func forbiddenTrailer(name []byte) bool {
	var buf [40]byte
	n := dashed(name, &buf)
	if hopByHop(n) || strings.HasPrefix(n, "x-dshproxy-") {
		return true
	}
	switch n {
	case "host", "trailer", "authorization", "www-authenticate", "cookie", "set-cookie", "cache-control", "expect",
		"max-forwards", "range", "via", "age", "date", "expires", "location", "retry-after", "vary", "warning",
		"x-proxy-error", "proxy-status", "forwarded", "content-encoding", "content-type", "content-range", "content-location":
		return true
	}
	return strings.HasPrefix(n, "x-forwarded-")
}
