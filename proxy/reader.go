package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

const (
	firstBuffer = 4 << 10
	bodyBuffer  = 32 << 10
)

var errBufferFull = errors.New("the buffer is full")

// bufferPools hands out what connections use for a while: buffers of two sizes, and what serves a request.
type bufferPools struct{ small, large, scratch sync.Pool }

func newBufferPools() *bufferPools {
	p := &bufferPools{}
	p.small.New = func() any { b := make([]byte, firstBuffer); return &b }
	p.large.New = func() any { b := make([]byte, bodyBuffer); return &b }
	p.scratch.New = func() any { return &scratch{} }
	return p
}

// budget bounds the bytes that all connections together hold before a verdict, beyond their first buffers.
type budget struct {
	held  atomic.Int64
	limit int64
}

func (b *budget) take(n int) bool {
	if b.held.Add(int64(n)) > b.limit {
		b.held.Add(int64(-n))
		return false
	}
	return true
}

// reader buffers what was read from a connection and not yet used. It grows up to max and never beyond.
type reader struct {
	c      net.Conn
	pools  *bufferPools
	pooled *[]byte
	buf    []byte
	start  int
	end    int
	max    int
	budget *budget
	grown  int // taken from the budget
}

func (r *reader) init(c net.Conn, pools *bufferPools, limit int, b *budget) {
	r.c, r.pools, r.max, r.budget = c, pools, limit, b
	r.pooled = pools.small.Get().(*[]byte)
	r.buf = *r.pooled
}

// preload puts bytes in front that were read elsewhere.
func (r *reader) preload(b []byte) {
	if len(b) > len(r.buf) {
		r.buf = make([]byte, len(b))
	}
	r.start, r.end = 0, copy(r.buf, b)
}

// bytes gives what is buffered; it is valid until the next call of fill.
func (r *reader) bytes() []byte { return r.buf[r.start:r.end] }

func (r *reader) discard(n int) {
	r.start += n
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
}

// fill reads once from the connection behind what is buffered, making room first. It gives errBufferFull when max bytes
// are buffered already.
func (r *reader) fill() error {
	if r.start > 0 && r.end == len(r.buf) {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buf) {
		if len(r.buf) >= r.max {
			return errBufferFull
		}
		size := min(2*len(r.buf), r.max)
		if r.budget != nil {
			if !r.budget.take(size - len(r.buf)) {
				return errBufferFull
			}
			r.grown += size - len(r.buf)
		}
		larger := make([]byte, size)
		copy(larger, r.buf[:r.end])
		r.buf = larger
	}
	n, err := r.c.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	return err
}

// shrink gives a grown buffer back once a head is done with.
func (r *reader) shrink() {
	if r.grown == 0 || r.end-r.start > firstBuffer {
		return
	}
	small := *r.pooled
	n := copy(small, r.buf[r.start:r.end])
	r.buf, r.start, r.end = small, 0, n
	r.budget.held.Add(int64(-r.grown))
	r.grown = 0
}

// release ends the reader and gives its buffer back.
func (r *reader) release() {
	r.abandon()
	if r.pooled != nil {
		r.pools.small.Put(r.pooled)
		r.pooled, r.buf, r.start, r.end = nil, nil, 0, 0
	}
}

// abandon ends the reader and leaves its buffer to whoever may still use it.
func (r *reader) abandon() {
	if r.budget != nil {
		r.budget.held.Add(int64(-r.grown))
		r.grown = 0
	}
}
