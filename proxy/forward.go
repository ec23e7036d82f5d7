package proxy

import (
	"strconv"
	"strings"
	"time"

	"dshproxy/netrule"
)

// forward serves a request in absolute-form (RFC 9112 §3.2.2) and reports whether the client connection goes on. Every
// request on a kept connection is judged.
func (c *conn) forward() bool {
	target, rest, ok := c.requestTarget()
	if !ok {
		return false
	}
	if c.loops(target) {
		return false
	}
	q := c.query(target)
	if !c.admit("http", q) {
		return false
	}
	x := exchange{conn: c, q: q, path: rest}
	return x.run()
}

// requestTarget reads the target of a request that is not CONNECT, or answers it.
func (c *conn) requestTarget() (t netrule.Target, rest string, ok bool) {
	if c.inside != nil {
		return c.targetWithin()
	}
	h := &c.head
	raw := string(h.target)
	scheme, _, _ := strings.Cut(raw, ":")
	switch {
	case string(h.method) == "TRACE":
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, status: 405, why: "TRACE is not served"})
	case raw == "*" && string(h.method) == "OPTIONS":
		c.local("Allow: CONNECT, GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n", "")
	case raw == "/proxy.pac" && string(h.method) == "GET":
		c.local("Content-Type: application/x-ns-proxy-autoconfig\r\n", c.pac())
	case raw == "*" || strings.HasPrefix(raw, "/"):
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, why: "this is a proxy, not a server: set it in http_proxy and https_proxy"})
	case strings.EqualFold(scheme, "https"):
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, status: 501, why: "https goes through CONNECT"})
	case !h.hasHost && h.minor > 0: // RFC 9112 §3.2
		c.refuse("http", &refusal{code: netrule.CodeBadRequest, why: "no Host field"})
	default:
		t, rest, err := netrule.ParseAbsolute(raw)
		if err != nil || strings.Contains(rest, "#") {
			if err == nil {
				err = &netrule.TargetError{Input: raw, Why: "a fragment"}
			}
			c.badTarget("http", err)
			return t, "", false
		}
		return t, rest, true
	}
	return t, "", false
}

// local answers from the proxy itself, and closes.
func (c *conn) local(fields, body string) {
	c.out = append(c.out[:0], "HTTP/1.1 200 OK\r\n"...)
	c.out = append(append(c.out, fields...), "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(append(c.out, "\r\nConnection: close\r\n\r\n"...), body...)
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingerFor))
	if writeLast(c.nc, c.out) == nil {
		c.linger()
	}
}

// pac is a proxy auto-configuration that never falls back to a direct connection.
func (c *conn) pac() string {
	return "function FindProxyForURL(url, host) {\n" +
		"  if (host === \"localhost\" || host === \"127.0.0.1\" || host === \"::1\") return \"DIRECT\";\n" +
		"  return \"PROXY " + c.nc.LocalAddr().String() + "\";\n}\n"
}
