package proxy

import (
	"bytes"
	"errors"
)

// responseHead is a scanned response head of an origin. Its slices are valid until the buffer is read into again.
type responseHead struct {
	status int
	minor  int
	fieldLines
	framing framing
	length  int64
	close   bool
	upgrade []byte
}

// reset begins a head anew, in place.
func (h *responseHead) reset() {
	lines := h.none()
	*h = responseHead{}
	h.fieldLines = lines
}

var errBadResponse = errors.New("a malformed response head")

// scanResponse finds the end of a response head, which may use bare LF (RFC 9112 §2.2). from is where to go on looking.
func scanResponse(buf []byte, from int) (end int, ok bool) {
	for {
		lf := bytes.IndexByte(buf[from:], '\n')
		if lf < 0 {
			return max(0, len(buf)-3), false
		}
		next := from + lf + 1
		switch {
		case next < len(buf) && buf[next] == '\n':
			return next + 1, true
		case next+1 < len(buf) && buf[next] == '\r' && buf[next+1] == '\n':
			return next + 2, true
		case next == len(buf), next+1 == len(buf):
			return from + lf, false
		}
		from = next
	}
}

// parse reads a response head leniently where leniency has one meaning (bare LF, missing phrase, folded lines), and
// refuses the rest. toHead says that the request was HEAD, whose response has no body.
func (h *responseHead) parse(buf []byte, maxFields int, toHead bool) error {
	h.reset()
	h.length = -1
	line, rest := cutLine(buf)
	if err := h.statusLine(line); err != nil {
		return err
	}
	chunked, sawTE := false, false
	for len(rest) > 0 {
		line, rest = cutLine(rest)
		if len(line) == 0 {
			break
		}
		f, err := h.field(line)
		if err != nil {
			return err
		}
		if len(h.fields) == maxFields && !isFold(line) {
			return errBadResponse
		}
		if isFold(line) {
			continue
		}
		h.fields = append(h.fields, f)
	}
	for _, f := range h.fields {
		switch {
		case is(f.name, "content-length"):
			n, ok := parseLengthList(f.value)
			if !ok || h.length >= 0 && h.length != n {
				return errBadResponse
			}
			h.length = n
		case is(f.name, "transfer-encoding"):
			if sawTE || !is(f.value, "chunked") {
				return errBadResponse
			}
			sawTE, chunked = true, true
		case is(f.name, "connection"), is(f.name, "proxy-connection"):
			h.connection = append(h.connection, f.value)
		case is(f.name, "upgrade"):
			h.upgrade = f.value
		}
	}
	if chunked && h.minor == 0 {
		return errBadResponse // HTTP/1.0 has no chunks (RFC 9112 §6.1)
	}
	h.close = h.minor == 0
	for _, v := range h.connection {
		h.close = h.close || listHas(v, "close")
	}
	h.settle(chunked, toHead)
	return nil
}

// switchesTo reports whether a 101 names the protocol, in both fields that must (RFC 9110 §7.8).
func (h *responseHead) switchesTo(protocol string) bool {
	named := false
	for _, v := range h.connection {
		named = named || listHas(v, "upgrade")
	}
	return named && is(h.upgrade, protocol)
}

// settle derives the framing (RFC 9112 §6.3).
func (h *responseHead) settle(chunked, toHead bool) {
	switch {
	case toHead, h.status < 200, h.status == 204, h.status == 304:
		h.framing = noBody
	case chunked:
		h.framing = byChunks
	case h.length >= 0:
		h.framing = byLength
	default:
		h.framing = byClose
	}
	if h.framing == byClose {
		h.close = true
	}
}

func isFold(line []byte) bool { return line[0] == ' ' || line[0] == '\t' }

// field reads one line; a folded one is joined to the field before it, in place, with spaces (RFC 9112 §5.2).
func (h *responseHead) field(line []byte) (field, error) {
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return field{}, errBadResponse
		}
	}
	if isFold(line) {
		if len(h.fields) == 0 {
			return field{}, errBadResponse
		}
		last := &h.fields[len(h.fields)-1]
		joined := append(append(bytes.Clone(last.value), ' '), trimOWS(line)...)
		last.value = trimOWS(joined)
		return field{}, nil
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return field{}, errBadResponse
	}
	for _, c := range line[:colon] {
		if !isToken(c) {
			return field{}, errBadResponse
		}
	}
	return field{line[:colon], trimOWS(line[colon+1:])}, nil
}

// statusLine reads "HTTP/1.x SP three digits [SP phrase]"; the phrase is dropped.
func (h *responseHead) statusLine(line []byte) error {
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) || !isDigit(line[7]) || line[8] != ' ' {
		return errBadResponse
	}
	code := line[9:12]
	if len(line) > 12 && line[12] != ' ' || !isDigit(code[0]) || !isDigit(code[1]) || !isDigit(code[2]) {
		return errBadResponse
	}
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return errBadResponse
		}
	}
	h.status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	h.minor = int(line[7] - '0')
	if h.status < 100 {
		return errBadResponse
	}
	return nil
}

// cutLine takes a line off, ended by CRLF or LF. A bare CR stays in the line, where it is refused.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

// parseLengthList takes one length, or the same one repeated in a list (RFC 9112 §6.3).
func parseLengthList(v []byte) (int64, bool) {
	n := int64(-1)
	for more := true; more; {
		var element []byte
		element, v, more = bytes.Cut(v, []byte(","))
		m, ok := parseLength(trimOWS(element))
		if !ok || n >= 0 && m != n {
			return 0, false
		}
		n = m
	}
	return n, true
}
