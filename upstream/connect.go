package upstream

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

const (
	maxAnswer   = 64 << 10 // bytes of a parent's answer to CONNECT, interim ones included
	firstAnswer = 1 << 10  // bytes of the first buffer for it
	maxInterim  = 16       // 1xx responses before the final one
)

var (
	errAnswerSize   = errors.New("an answer of over 64 KiB")
	errAnswerEnd    = errors.New("the connection ended inside the answer")
	errAnswerStatus = errors.New("an answer whose status line is not HTTP/1")
	errAnswerField  = errors.New("an answer with a malformed field")
	errInterim      = errors.New("too many interim responses")
)

// connect asks for a tunnel (RFC 9110 §9.3.6). It gives what came behind the answer, and the status of a refusal.
func connect(rw io.ReadWriter, p *Parent, target endpoint, via string) (early []byte, status int, err error) {
	if _, err := rw.Write(appendConnect(nil, p, target, via)); err != nil {
		return nil, 0, err
	}
	status, early, err = readAnswer(rw)
	if err != nil {
		return nil, 0, err
	}
	if status < 200 || status > 299 {
		return nil, status, refusedConnect(status)
	}
	return early, 0, nil
}

// refusedConnect names a refusal by its number alone: the phrase, fields and body are the parent's own words.
func refusedConnect(status int) error {
	text := "refused with status " + strconv.Itoa(status)
	if status == 407 {
		text += ", it wants other credentials"
	}
	return errors.New(text)
}

func appendConnect(b []byte, p *Parent, target endpoint, via string) []byte {
	authority := target.authority()
	b = append(b, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n"...)
	if via != "" {
		b = append(b, "Via: "+via+"\r\n"...)
	}
	if a := p.Authorization(); a != "" {
		b = append(b, "Proxy-Authorization: "+a+"\r\n"...)
	}
	return append(b, "\r\n"...)
}

// readAnswer reads the final response head and gives its status and the bytes behind it. Interim responses are skipped
// (RFC 9110 §15.2), but for 101, which nobody asked for. Fields mean nothing: neither Content-Length nor
// Transfer-Encoding frames anything in a 2xx to CONNECT, and what follows another status is not read.
func readAnswer(r io.Reader) (status int, early []byte, err error) {
	lines := lineReader{src: r}
	for range maxInterim + 1 {
		line, err := lines.next()
		if err != nil {
			return 0, nil, err
		}
		status, ok := parseStatusLine(line)
		if !ok {
			return 0, nil, errAnswerStatus
		}
		if err := lines.skipFields(); err != nil {
			return 0, nil, err
		}
		if status >= 200 || status == 101 {
			return status, lines.rest(), nil
		}
	}
	return 0, nil, errInterim
}

// parseStatusLine reads HTTP/1.DIGIT SP 3DIGIT, followed by nothing or by a space and a phrase (RFC 9112 §4).
func parseStatusLine(line []byte) (status int, ok bool) {
	const prefix = len("HTTP/1.1 ")
	if len(line) < prefix+3 || string(line[:7]) != "HTTP/1." || !isDigit(line[7]) || line[8] != ' ' {
		return 0, false
	}
	for _, c := range line[prefix : prefix+3] {
		if !isDigit(c) {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	if len(line) > prefix+3 && line[prefix+3] != ' ' {
		return 0, false
	}
	return status, status >= 100
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// lineReader cuts lines out of what it has read, and keeps account of what it has read beyond them.
type lineReader struct {
	src     io.Reader
	buf     []byte
	start   int // of the next line
	scanned int // no line end lies between start and here
}

// next gives a line without its end, CRLF or a lone LF (RFC 9112 §2.2); other control bytes than a tab are refused.
func (l *lineReader) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:], '\n'); i >= 0 {
			line := l.buf[l.start : l.scanned+i]
			l.start = l.scanned + i + 1
			l.scanned = l.start
			return checkLine(bytes.TrimSuffix(line, []byte{'\r'}))
		}
		l.scanned = len(l.buf)
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

func checkLine(line []byte) ([]byte, error) {
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, errAnswerField
		}
	}
	return line, nil
}

// fill reads once, into a buffer that doubles up to the cap.
func (l *lineReader) fill() error {
	if len(l.buf) == cap(l.buf) {
		if len(l.buf) >= maxAnswer {
			return errAnswerSize
		}
		bigger := make([]byte, len(l.buf), min(max(2*len(l.buf), firstAnswer), maxAnswer))
		copy(bigger, l.buf)
		l.buf = bigger
	}
	n, err := l.src.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	switch {
	case n > 0:
		return nil // the error comes again
	case errors.Is(err, io.EOF):
		return errAnswerEnd
	default:
		return err
	}
}

// skipFields reads up to the empty line. A field must look like one, or fold the one before it (RFC 9112 §5.2).
func (l *lineReader) skipFields() error {
	for first := true; ; first = false {
		line, err := l.next()
		if err != nil || len(line) == 0 {
			return err
		}
		if fold := line[0] == ' ' || line[0] == '\t'; fold && first || !fold && bytes.IndexByte(line, ':') <= 0 {
			return errAnswerField
		}
	}
}

// rest gives a copy of what lies behind the lines, so that the buffer is not kept.
func (l *lineReader) rest() []byte { return append([]byte(nil), l.buf[l.start:]...) }
