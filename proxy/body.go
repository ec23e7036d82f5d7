package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
)

// The reasons why a body could not be relayed, apart from the errors of either connection.
var (
	errBadChunk = errors.New("a malformed chunk")
	errCutBody  = errors.New("the body was cut")
)

// sideError says on which side a relay failed.
type sideError struct {
	write bool
	err   error
}

func (e *sideError) Error() string { return e.err.Error() }
func (e *sideError) Unwrap() error { return e.err }

func readErr(err error) error {
	if errors.Is(err, io.EOF) {
		err = errCutBody
	}
	return &sideError{false, err}
}

func writeErr(err error) error { return &sideError{true, err} }

// relay moves one message body from src to dst. out holds bytes that go before it, such as the head, so that a small
// message is one write; it is given back for reuse.
type relay struct {
	dst net.Conn
	src *reader
	out []byte
	fl  *flight
	// inward says that the client sends it.
	inward bool
	// unchunk writes the data of chunks alone, for peers that know none.
	unchunk   bool
	maxFields int
	maxLine   int
	// consumed is set once src has given the whole body, before the last write.
	consumed atomic.Bool
}

const flushAt = 16 << 10

// body relays by the framing. byClose ends at a clean end of src. When src fails, what it gave before is written.
func (r *relay) body(f framing, length int64) error {
	var err error
	switch f {
	case byLength:
		err = r.byLength(length)
	case byChunks:
		err = r.byChunks()
	case byClose:
		err = r.byClose()
	default:
		return r.flush()
	}
	var se *sideError
	if errors.As(err, &se) && !se.write {
		if ferr := r.flush(); ferr != nil {
			return ferr
		}
	}
	return err
}

func (r *relay) flush() error {
	if len(r.out) == 0 {
		return nil
	}
	_, err := r.dst.Write(r.out)
	r.out = r.out[:0]
	if err != nil {
		return writeErr(err)
	}
	r.fl.touch()
	return nil
}

// take moves up to n buffered bytes to out.
func (r *relay) take(n int64) int64 {
	have := r.src.bytes()
	if int64(len(have)) > n {
		have = have[:n]
	}
	r.out = append(r.out, have...)
	r.src.discard(len(have))
	r.fl.carried(r.inward, int64(len(have)))
	return int64(len(have))
}

func (r *relay) byLength(left int64) error {
	left -= r.take(left)
	if left == 0 {
		r.consumed.Store(true)
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.stream(left, true)
}

// stream moves exactly left bytes through a buffer of its own; a negative number means to the end of src. last says that
// they are the last of the body.
func (r *relay) stream(left int64, last bool) error {
	if left == 0 {
		return nil
	}
	buf := r.src.pools.large.Get().(*[]byte)
	defer r.src.pools.large.Put(buf)
	for left != 0 {
		chunk := *buf
		if left > 0 && int64(len(chunk)) > left {
			chunk = chunk[:left]
		}
		n, err := r.src.c.Read(chunk)
		if n > 0 {
			if last && int64(n) == left {
				r.consumed.Store(true)
			}
			if _, werr := r.dst.Write(chunk[:n]); werr != nil {
				return writeErr(werr)
			}
			r.fl.carried(r.inward, int64(n))
			r.fl.touch()
			if left > 0 {
				left -= int64(n)
			}
		}
		if err != nil && left != 0 {
			if left < 0 && errors.Is(err, io.EOF) {
				return nil
			}
			return readErr(err)
		}
	}
	return nil
}

func (r *relay) byClose() error {
	r.take(int64(len(r.src.bytes())))
	if err := r.flush(); err != nil {
		return err
	}
	return r.stream(-1, false)
}

// byChunks relays chunks as they are read, each with its own size line, dropping extensions (RFC 9112 §7.1).
func (r *relay) byChunks() error {
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		size, ok := parseChunkSize(line)
		if !ok {
			return readErr(errBadChunk)
		}
		if size == 0 {
			return r.trailers()
		}
		if !r.unchunk {
			r.out = append(strconv.AppendInt(r.out, size, 16), crlf...)
		}
		if err := r.chunkData(size); err != nil {
			return err
		}
		if err := r.chunkEnd(); err != nil {
			return err
		}
	}
}

// line gives the next line without its CRLF, valid until the next read. What is ready is written before waiting.
func (r *relay) line() ([]byte, error) {
	from := 0
	for {
		b := r.src.bytes()
		if lf := bytes.IndexByte(b[from:], '\n'); lf >= 0 {
			lf += from
			if lf == 0 || b[lf-1] != '\r' {
				return nil, readErr(errBadChunk)
			}
			line := b[:lf-1]
			r.src.discard(lf + 1)
			return line, nil
		}
		if from = len(b); from > r.maxLine {
			return nil, readErr(errBadChunk)
		}
		if err := r.wait(); err != nil {
			return nil, err
		}
	}
}

// wait writes what is ready and reads more.
func (r *relay) wait() error {
	if err := r.flush(); err != nil {
		return err
	}
	if err := r.src.fill(); err != nil {
		return readErr(err)
	}
	r.fl.touch()
	return nil
}

func (r *relay) chunkData(left int64) error {
	for {
		left -= r.take(left)
		if left == 0 {
			break
		}
		if left > flushAt {
			// A large chunk goes past the small buffer.
			if err := r.flush(); err != nil {
				return err
			}
			if err := r.stream(left, false); err != nil {
				return err
			}
			break
		}
		if err := r.wait(); err != nil {
			return err
		}
	}
	if len(r.out) > flushAt {
		return r.flush()
	}
	return nil
}

func (r *relay) chunkEnd() error {
	for len(r.src.bytes()) < 2 {
		if err := r.wait(); err != nil {
			return err
		}
	}
	if b := r.src.bytes(); b[0] != '\r' || b[1] != '\n' {
		return readErr(errBadChunk)
	}
	r.src.discard(2)
	if !r.unchunk {
		r.out = append(r.out, crlf...)
	}
	return nil
}

// trailers ends a chunked body: the trailer fields that may pass, and the empty line.
func (r *relay) trailers() error {
	if !r.unchunk {
		r.out = append(r.out, "0\r\n"...)
	}
	total := 0
	for n := 0; ; n++ {
		line, err := r.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		f, ferr := parseField(line)
		if total += len(line); ferr != nil || n >= r.maxFields || total > r.maxLine {
			return readErr(errBadChunk)
		}
		if !r.unchunk && !forbiddenTrailer(f.name) {
			r.out = append(append(append(append(r.out, f.name...), ": "...), f.value...), crlf...)
		}
	}
	if !r.unchunk {
		r.out = append(r.out, crlf...)
	}
	r.consumed.Store(true)
	return r.flush()
}

// parseChunkSize reads hexadecimal digits and skips an extension.
func parseChunkSize(line []byte) (int64, bool) {
	n, digits := int64(0), 0
	for i, c := range line {
		d := hexValue(c)
		if d < 0 {
			if c != ';' && c != ' ' && c != '\t' || digits == 0 {
				return 0, false
			}
			return n, validExtension(line[i:])
		}
		if digits++; digits > 15 {
			return 0, false
		}
		n = n<<4 | int64(d)
	}
	return n, digits > 0
}

// validExtension: optional white space, then ";", then no control bytes (RFC 9112 §7.1.1).
func validExtension(ext []byte) bool {
	ext = bytes.TrimLeft(ext, " \t")
	if len(ext) == 0 || ext[0] != ';' {
		return false
	}
	for _, c := range ext {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
