package proxy

import (
	"bytes"
	"errors"

	"dshproxy/netrule"
)

// headError is a message head that is refused, with the status of the answer.
type headError struct {
	status int
	code   netrule.Code
	why    string
}

func (e *headError) Error() string { return e.why }

func badHead(why string) *headError { return &headError{400, netrule.CodeBadRequest, why} }

// field is one header field, as it stands in the message. Name and value are slices of the buffer that was scanned.
type field struct{ name, value []byte }

// fieldLines are the fields of a head, and the values of Connection among them.
type fieldLines struct {
	fields     []field
	connection [][]byte
}

// none gives the same room without lines.
func (l *fieldLines) none() fieldLines { return fieldLines{l.fields[:0], l.connection[:0]} }

// forget leaves nothing in the room.
func (l *fieldLines) forget() {
	clear(l.fields[:cap(l.fields)])
	clear(l.connection[:cap(l.connection)])
}

// framing says how a message body is delimited (RFC 9112 §6.3).
type framing uint8

const (
	noBody framing = iota
	byLength
	byChunks
	byClose // responses only
)

// requestHead is a scanned request head. Its slices are valid until the buffer is read into again.
type requestHead struct {
	method, target []byte
	minor          int // of HTTP/1.x; anything above 1 is treated as 1
	fieldLines
	framing      framing
	length       int64
	host         []byte
	hasHost      bool
	expect       bool   // 100-continue
	close        bool   // the client wants the connection closed
	upgrade      []byte // value of Upgrade, if Connection names it
	wantsJSON    bool
	isHead       bool // the method is HEAD
	viaEntries   int
	ownVia       bool // our own pseudonym is in Via
	proxyAuth    []byte
	hasProxyAuth bool
}

// reset begins a head anew, in place: a copy of it would make the stack grow.
func (h *requestHead) reset() {
	lines := h.none()
	*h = requestHead{}
	h.fieldLines = lines
}

const (
	maxMethod = 32
	crlf      = "\r\n"
)

var errHeadMore = errors.New("more bytes are needed")

// headScanner finds the end of a head as bytes arrive, and refuses early what no later byte can mend.
type headScanner struct{ line, at int }

// scan looks at the bytes that are new in buf. It gives the length of the head, with its empty line, or errHeadMore.
func (s *headScanner) scan(buf []byte) (int, error) {
	for s.at < len(buf) {
		lf := bytes.IndexByte(buf[s.at:], '\n')
		if lf < 0 {
			s.at = len(buf)
			return 0, errHeadMore
		}
		lf += s.at
		if lf == s.line || buf[lf-1] != '\r' {
			return 0, badHead("a line that ends in LF without CR")
		}
		if lf-1 == s.line {
			if s.line == 0 {
				return 0, badHead("an empty line before the request")
			}
			return lf + 1, nil
		}
		s.line, s.at = lf+1, lf+1
	}
	return 0, errHeadMore
}

// parseRequest reads a whole head, without its final empty line. maxFields caps the fields.
func (h *requestHead) parse(buf []byte, maxFields int, pseudonym string) error {
	h.reset()
	line, rest, _ := bytes.Cut(buf, []byte(crlf))
	if err := h.requestLine(line); err != nil {
		return err
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte(crlf))
		if len(line) == 0 {
			break
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		if len(h.fields) == maxFields {
			return &headError{431, netrule.CodeHeadTooLarge, "too many header fields"}
		}
		h.fields = append(h.fields, f)
		if err := h.note(f, pseudonym); err != nil {
			return err
		}
	}
	return h.settle()
}

// requestLine reads "METHOD target HTTP/1.x" with exactly one space between (RFC 9112 §3).
func (h *requestHead) requestLine(line []byte) error {
	method, rest, ok1 := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || len(method) == 0 || len(target) == 0 {
		return badHead("a malformed request line")
	}
	for _, c := range method {
		if !isToken(c) {
			return badHead("a method that is no token")
		}
	}
	if len(method) > maxMethod {
		return &headError{501, netrule.CodeBadRequest, "a method of over 32 bytes"}
	}
	for _, c := range target {
		if c <= ' ' || c == 0x7f {
			return badHead("a control byte in the request target")
		}
	}
	if !bytes.HasPrefix(version, []byte("HTTP/")) || len(version) != len("HTTP/1.1") || !isDigit(version[5]) || version[6] != '.' || !isDigit(version[7]) {
		return badHead("a malformed HTTP version")
	}
	if version[5] != '1' {
		return &headError{505, netrule.CodeBadRequest, "only HTTP/1.x is spoken here"}
	}
	h.method, h.target, h.minor = method, target, int(version[7]-'0')
	h.close, h.isHead = h.minor == 0, string(method) == "HEAD"
	return nil
}

// parseField reads "name: value" (RFC 9112 §5): no space before the colon, no folding, no control bytes.
func parseField(line []byte) (field, error) {
	if line[0] == ' ' || line[0] == '\t' {
		return field{}, badHead("a folded header line")
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return field{}, badHead("a header line without a name")
	}
	for _, c := range line[:colon] {
		if !isToken(c) {
			return field{}, badHead("a header name that is no token")
		}
	}
	value := trimOWS(line[colon+1:])
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return field{}, badHead("a control byte in a header value")
		}
	}
	return field{line[:colon], value}, nil
}

// note takes what the proxy itself acts on out of a field.
func (h *requestHead) note(f field, pseudonym string) error {
	switch {
	case is(f.name, "host"):
		if h.hasHost {
			return badHead("two Host fields")
		}
		h.host, h.hasHost = f.value, true
	case is(f.name, "content-length"):
		if h.framing == byLength {
			return badHead("two Content-Length fields")
		}
		n, ok := parseLength(f.value)
		if !ok {
			return badHead("a Content-Length that is no number")
		}
		if h.framing == byChunks {
			return badHead("both Content-Length and Transfer-Encoding")
		}
		h.framing, h.length = byLength, n
	case is(f.name, "transfer-encoding"):
		switch {
		case h.framing != noBody:
			return badHead("both Content-Length and Transfer-Encoding, or two codings")
		case !is(f.value, "chunked"):
			return &headError{501, netrule.CodeBadRequest, "a transfer coding other than chunked"}
		}
		h.framing = byChunks
	case is(f.name, "connection"), is(f.name, "proxy-connection"):
		h.connection = append(h.connection, f.value)
		if listHas(f.value, "close") {
			h.close = true
		}
	case is(f.name, "proxy-authorization"):
		if h.hasProxyAuth {
			return badHead("two Proxy-Authorization fields")
		}
		h.proxyAuth, h.hasProxyAuth = f.value, true
	case is(f.name, "expect"):
		if !is(f.value, "100-continue") || h.expect {
			return &headError{417, netrule.CodeBadRequest, "an expectation other than 100-continue"}
		}
		h.expect = true
	case is(f.name, "upgrade"):
		h.upgrade = f.value
	case is(f.name, "accept"):
		h.wantsJSON = h.wantsJSON || bytes.Contains(f.value, []byte("application/json"))
	case is(f.name, "via"):
		h.viaEntries += 1 + bytes.Count(f.value, []byte(","))
		h.ownVia = h.ownVia || bytes.Contains(f.value, []byte(pseudonym))
	}
	return nil
}

// settle checks what only the whole head shows.
func (h *requestHead) settle() error {
	if h.framing == byChunks && h.minor == 0 {
		return badHead("Transfer-Encoding in HTTP/1.0")
	}
	if h.upgrade != nil && !h.nominates("upgrade") {
		h.upgrade = nil
	}
	return nil
}

// nominates reports whether Connection names a field (RFC 9110 §7.6.1).
func (h *requestHead) nominates(name string) bool {
	for _, v := range h.connection {
		if listHas(v, name) {
			return true
		}
	}
	return false
}

func (h *requestHead) nominatesBytes(name []byte) bool {
	for _, v := range h.connection {
		if listHasBytes(v, name) {
			return true
		}
	}
	return false
}

// parseLength takes decimal digits only, without sign or list.
func parseLength(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, c := range v {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isToken tells the bytes of a token (RFC 9110 §5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', isDigit(c):
		return true
	}
	return c > ' ' && c < 0x7f && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

func trimOWS(v []byte) []byte { return bytes.Trim(v, " \t") }

// is compares without regard to ASCII case. want is in lower case.
func is(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i := range b {
		if lower(b[i]) != want[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// listHas reports whether a comma-separated list has an element, without regard to case. want is in lower case.
func listHas(list []byte, want string) bool {
	for more := true; more; {
		var element []byte
		element, list, more = bytes.Cut(list, []byte(","))
		if is(trimOWS(element), want) {
			return true
		}
	}
	return false
}

func listHasBytes(list, want []byte) bool {
	for more := true; more; {
		var element []byte
		element, list, more = bytes.Cut(list, []byte(","))
		if bytes.EqualFold(trimOWS(element), want) {
			return true
		}
	}
	return false
}
