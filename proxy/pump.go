package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"

	"dshproxy/netrule"
)

// pump moves the bytes of one direction.
type pump struct {
	dst, src net.Conn
	fl       *flight
	inward   bool // from the client
	pools    *bufferPools
	pipes    *pipePool
	first    *opening     // holds what the client sends first; nil passes everything on
	code     netrule.Code // why first refused
	raw      rawReader
}

// chunks gives what arrives, valid until the next call, and io.EOF at the end.
type chunks interface{ next() ([]byte, error) }

var errAllowance = errors.New("the byte limit is reached")

// beginWith reads until the opening knows what to do, and sends on what it held. early has come before the tunnel began. done
// is false when the tunnel goes on as one of bytes.
func (p *pump) beginWith(early []byte, src chunks) (end relayEnd, done bool) {
	b, err := early, error(nil)
	for {
		if len(b) == 0 && err == nil {
			b, err = src.next()
		}
		send, next, code := p.first.take(b, err != nil)
		b = nil
		switch {
		case err == nil, errors.Is(err, io.EOF):
		case errors.Is(err, os.ErrDeadlineExceeded) && p.first.timed:
			next, code = stepRefuse, netrule.CodeTLSIncomplete
		case errors.Is(err, errAllowance):
			return endBytes, true
		default:
			return endRead, true
		}
		switch next {
		case stepPass:
		case stepMore:
			continue
		case stepRefuse:
			p.code = code
			return endRefused, true
		case stepHTTP, stepInspect:
			p.first.settle()
			if p.first.held == nil {
				p.first.held = bytes.Clone(send)
			}
			if next == stepInspect {
				return endInspect, true
			}
			return endHTTP, true
		}
		p.first.settle()
		hello := send[:len(send)-p.first.behind]
		if !p.send(hello) {
			return endWrite, true
		}
		if p.first.second != nil && err == nil {
			return p.follow(send[len(hello):], src)
		}
		if !p.send(send[len(hello):]) {
			return endWrite, true
		}
		return endEOF, err != nil
	}
}

// follow passes on what comes behind a hello until no other one can come.
func (p *pump) follow(b []byte, src chunks) (end relayEnd, done bool) {
	second, err := p.first.second, error(nil)
	for {
		pass, over, foreign := second.take(b)
		if foreign != nil {
			p.code = netrule.CodeSNIMismatch
			return endRefused, true
		}
		if err != nil {
			pass = append(pass, second.held...) // it never became a hello
		}
		if !p.send(pass) {
			return endWrite, true
		}
		switch {
		case over && err == nil:
			return endEOF, false
		case err == nil:
		case errors.Is(err, io.EOF):
			return endEOF, true
		case errors.Is(err, errAllowance):
			return endBytes, true
		default:
			return endRead, true
		}
		b, err = src.next()
	}
}

func (p *pump) send(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if _, err := p.dst.Write(b); err != nil {
		return false
	}
	p.moved(len(b))
	return true
}

// allowance is how many of n bytes may be moved; 0 means that the limit is reached.
func (p *pump) allowance(n int) int {
	left, limited := p.fl.left()
	if limited && left < int64(n) {
		return int(max(left, 0))
	}
	return n
}

func (p *pump) moved(n int) {
	p.fl.carried(p.inward, int64(n))
	p.fl.touch()
}

// copyAll is the plain relay, where the kernel offers nothing better.
func (p *pump) copyAll() relayEnd {
	buf := p.pools.large.Get().(*[]byte)
	defer p.pools.large.Put(buf)
	for {
		n := p.allowance(len(*buf))
		if n == 0 {
			return endBytes
		}
		n, err := p.src.Read((*buf)[:n])
		if n > 0 {
			if _, werr := p.dst.Write((*buf)[:n]); werr != nil {
				return endWrite
			}
			p.moved(n)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return endEOF
		default:
			return endRead
		}
	}
}

// beginPlain holds what the client sends first, where the kernel offers nothing better.
func (p *pump) beginPlain(early []byte) (relayEnd, bool) {
	buf := p.pools.large.Get().(*[]byte)
	defer p.pools.large.Put(buf)
	return p.beginWith(early, &plainReader{p.src, *buf})
}

// plainReader reads into a buffer that it keeps.
type plainReader struct {
	src io.Reader
	buf []byte
}

func (r *plainReader) next() ([]byte, error) {
	n, err := r.src.Read(r.buf)
	if n > 0 {
		err = nil // it comes again
	}
	return r.buf[:n], err
}
