package proxy

import (
	"errors"
	"io"
	"net"
)

// pump moves the bytes of one direction.
type pump struct {
	dst, src net.Conn
	fl       *flight
	count    func(int64) int64
	pools    *bufferPools
	pipes    *pipePool
	limit    int64 // of the flight, both directions together; 0 is none
}

// allowance is how many of n bytes may be moved; 0 means that the limit is reached.
func (p *pump) allowance(n int) int {
	left, limited := p.fl.left(p.limit)
	if limited && left < int64(n) {
		return int(max(left, 0))
	}
	return n
}

func (p *pump) moved(n int) {
	p.count(int64(n))
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
