package inspect

import (
	"fmt"
	"net/http"
	"strings"
)

// dashed gives a field name in lower case with "_" and "." as "-": some origins fold them, so a field that would become
// a framing, routing or hop-by-hop one must not pass under such a spelling.
func dashed(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}

// hopByHop tells the fields that end at a proxy (RFC 9110 §7.6.1), and those that the transport writes itself.
func hopByHop(name string) bool {
	switch name {
	case "connection", "keep-alive", "te", "transfer-encoding", "upgrade", "proxy", "http2-settings", "trailer":
		return true
	}
	return strings.HasPrefix(name, "proxy-") && name != "proxy-status"
}

// ours tells the fields of a response that only this proxy may send, so that an origin cannot forge a denial.
func ours(name string) bool {
	return name == "x-proxy-error" || strings.HasPrefix(name, "x-dshproxy-")
}

// listHas reports whether one of the comma-separated lists has an element, without regard to case.
func listHas(lists []string, want string) bool {
	for _, list := range lists {
		for element := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(element, " \t"), want) {
				return true
			}
		}
	}
	return false
}

// upgrades reports whether a head offers or accepts WebSocket, the one protocol that is passed on: h2c and the like
// would carry requests past the judgement unseen.
func upgrades(h http.Header) bool {
	return listHas(h["Connection"], "upgrade") && len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], "websocket")
}

// endToEnd copies the fields that go past a proxy: none that Connection names, none that drop tells.
func endToEnd(from http.Header, drop func(name string) bool) http.Header {
	to := make(http.Header, len(from)+2)
	for name, values := range from {
		if !drop(dashed(name)) && !listHas(from["Connection"], name) {
			to[name] = values
		}
	}
	return to
}

// requestFields are the fields of the request for the origin.
func (x *exchange) requestFields() http.Header {
	h := endToEnd(x.r.Header, func(name string) bool {
		return hopByHop(name) || name == "host" || name == "content-length" || name == "proxy-status"
	})
	if x.r.ProtoMajor == 2 && listHas(x.r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"} // gRPC insists on it, and trailers do pass
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // else the transport names itself
	}
	if x.upgrading() {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	x.addVia(h, x.r.ProtoMajor, x.r.ProtoMinor)
	return h
}

// upgrading reports whether the client asks for WebSocket.
func (x *exchange) upgrading() bool {
	return x.r.ProtoMajor == 1 && x.r.ProtoMinor > 0 && x.r.ContentLength == 0 && upgrades(x.r.Header)
}

// responseFields are the fields of the answer for the client.
func (x *exchange) responseFields(resp *http.Response) http.Header {
	h := endToEnd(resp.Header, func(name string) bool { return hopByHop(name) || ours(name) })
	for name := range h {
		if dashed(name) == "proxy-status" {
			h[name] = foreignStatus(h[name])
		}
	}
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil // else net/http adds it
		}
	}
	x.addVia(h, resp.ProtoMajor, resp.ProtoMinor)
	return h
}

// foreignStatus drops the lines of Proxy-Status that name us. The members of a line could be told apart (RFC 9209 §2),
// but an origin behind another dshproxy loses little.
func foreignStatus(lines []string) []string {
	var out []string
	for _, line := range lines {
		if !strings.Contains(strings.ToLower(line), "dshproxy") {
			out = append(out, line)
		}
	}
	return out
}

func (x *exchange) addVia(h http.Header, major, minor int) {
	if x.engine.pseudonym != "" {
		h["Via"] = append(append([]string(nil), h["Via"]...), fmt.Sprintf("%d.%d %s", major, minor, x.engine.pseudonym))
	}
}

// forbiddenTrailer tells the trailer fields that must not pass: framing, routing, authentication, and what is ours
// (RFC 9110 §6.5.1).
func forbiddenTrailer(name string) bool {
	name = dashed(name)
	if hopByHop(name) || ours(name) || strings.HasPrefix(name, "x-forwarded-") {
		return true
	}
	switch name {
	case "host", "content-length", "authorization", "www-authenticate", "cookie", "set-cookie", "cache-control", "expect",
		"max-forwards", "range", "via", "age", "date", "expires", "location", "retry-after", "vary", "warning",
		"proxy-status", "forwarded", "content-encoding", "content-type", "content-range", "content-location":
		return true
	}
	return false
}

func cleanTrailer(h http.Header) {
	for name := range h {
		if forbiddenTrailer(name) {
			delete(h, name)
		}
	}
}
