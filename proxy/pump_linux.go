package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxPipes     = 32       // a user without privileges may hold only 64 full ones
	pipeBytes    = 1 << 20  // asked for; the kernel may give less
	minPipeBytes = 64 << 10 // with less than this, copying is no slower
	spliceAfter  = 256 << 10
	spliceRest   = 8 // small arrivals in a row after which a direction is no longer bulk
	spliceFlags  = unix.SPLICE_F_NONBLOCK | unix.SPLICE_F_MOVE
)

// pipePool keeps pipes for splice(2). A direction borrows one only while it has bulk to move.
type pipePool struct {
	mu     sync.Mutex
	free   []pipe
	made   int
	closed bool
}

type pipe struct{ r, w int }

func newPipePool() *pipePool { return &pipePool{} }

// get gives an empty pipe, or false when there are none left or the kernel gives only small ones.
func (pp *pipePool) get() (pipe, bool) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if n := len(pp.free); n > 0 {
		p := pp.free[n-1]
		pp.free = pp.free[:n-1]
		return p, true
	}
	if pp.made >= maxPipes || pp.closed {
		return pipe{}, false
	}
	var fd [2]int
	if unix.Pipe2(fd[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return pipe{}, false
	}
	_, _ = unix.FcntlInt(uintptr(fd[0]), unix.F_SETPIPE_SZ, pipeBytes)
	if size, err := unix.FcntlInt(uintptr(fd[0]), unix.F_GETPIPE_SZ, 0); err != nil || size < minPipeBytes {
		unix.Close(fd[0])
		unix.Close(fd[1])
		return pipe{}, false
	}
	pp.made++
	return pipe{fd[0], fd[1]}, true
}

// put takes a pipe back; one that still holds bytes is closed.
func (pp *pipePool) put(p pipe, empty bool) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if empty && !pp.closed {
		pp.free = append(pp.free, p)
		return
	}
	pp.made--
	unix.Close(p.r)
	unix.Close(p.w)
}

func (pp *pipePool) close() {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	pp.closed = true
	for _, p := range pp.free {
		pp.made--
		unix.Close(p.r)
		unix.Close(p.w)
	}
	pp.free = nil
}

// run relays to the end of src. While src is quiet it holds neither a buffer nor a pipe; bulk without a pause is handed
// to splice(2).
func (p *pump) run() relayEnd {
	r, ok := p.reader()
	if !ok {
		return p.copyAll()
	}
	for streak := 0; ; {
		n, err := r.read()
		if n > 0 {
			_, werr := p.dst.Write((*r.buf)[:n])
			full := n == len(*r.buf)
			if !full || werr != nil {
				r.release()
			}
			if werr != nil {
				return endWrite
			}
			p.moved(n)
			if r.paused {
				streak = 0
			}
			if streak += n; streak < spliceAfter {
				continue
			}
			streak = 0
			r.release()
			if end, done := p.splice(); done {
				return end
			}
			continue
		}
		r.release()
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return endEOF
		case errors.Is(err, errAllowance):
			return endBytes
		default:
			return endRead
		}
	}
}

// rawOf gives the descriptor of a connection that has one.
func rawOf(c net.Conn) (syscall.RawConn, bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, false
	}
	rc, err := sc.SyscallConn()
	return rc, err == nil
}

// begin holds what the client sends first, without a buffer while it sends nothing.
func (p *pump) begin(early []byte) (relayEnd, bool) {
	r, ok := p.reader()
	if !ok {
		return p.beginPlain(early)
	}
	defer r.release()
	return p.beginWith(early, r)
}

// rawReader reads from the source of a pump into a buffer that it takes only when there is something to read. It keeps
// what a read needs in itself, for a read must not allocate.
type rawReader struct {
	pump   *pump
	rc     syscall.RawConn
	try    func(fd uintptr) bool // the bound method, made once
	buf    *[]byte
	n      int
	err    error
	paused bool // the last read had to wait
}

// reader gives the pump's, or false when the source has no descriptor.
func (p *pump) reader() (*rawReader, bool) {
	r := &p.raw
	if r.rc == nil {
		rc, ok := rawOf(p.src)
		if !ok {
			return nil, false
		}
		r.pump, r.rc, r.try = p, rc, r.tryRead
	}
	return r, true
}

func (r *rawReader) release() {
	if r.buf != nil {
		r.pump.pools.large.Put(r.buf)
		r.buf = nil
	}
}

func (r *rawReader) read() (n int, err error) {
	r.n, r.err, r.paused = 0, nil, false
	if err := r.rc.Read(r.try); err != nil {
		return 0, err
	}
	return max(r.n, 0), r.err
}

// next gives what a read has brought, valid until the next call, and io.EOF at the end.
func (r *rawReader) next() ([]byte, error) {
	n, err := r.read()
	switch {
	case n > 0:
		return (*r.buf)[:n], nil
	case err == nil:
		return nil, io.EOF
	default:
		return nil, err
	}
}

// tryRead reads once and reports whether that is the end of waiting.
func (r *rawReader) tryRead(fd uintptr) bool {
	if r.buf == nil {
		r.buf = r.pump.pools.large.Get().(*[]byte)
	}
	size := r.pump.allowance(len(*r.buf))
	if size == 0 {
		r.err = errAllowance
		return true
	}
	for {
		r.n, r.err = unix.Read(int(fd), (*r.buf)[:size])
		if r.err != unix.EINTR { //nolint:errorlint // a plain number; errors.Is takes more stack than an idle tunnel has
			break
		}
	}
	if r.err == unix.EAGAIN { //nolint:errorlint // as above
		r.release()
		r.paused = true
		return false
	}
	return true
}

// splicer is the bulk mode of a direction. It holds a pipe only while there is something to move.
type splicer struct {
	pump   *pump
	pipe   pipe
	held   bool
	waited bool // the last fill had to wait
}

// splice moves bulk through a pipe. done is false when the bulk is over, or there is no pipe or no descriptor for it, and
// the caller should go on copying.
func (p *pump) splice() (end relayEnd, done bool) {
	rc := p.raw.rc
	wc, ok := rawOf(p.dst)
	if !ok {
		return 0, false
	}
	s := splicer{pump: p}
	pending, small := 0, 0
	defer func() { s.giveBack(pending == 0) }()
	for {
		size := p.allowance(pipeBytes)
		if size == 0 {
			return endBytes, true
		}
		n, ok, err := s.fill(rc, size)
		switch {
		case err != nil:
			return endRead, true
		case !ok:
			return 0, false
		case n == 0:
			return endEOF, true
		}
		for pending = n; pending > 0; {
			moved, err := spliceOut(wc, s.pipe.r, pending)
			if err != nil {
				return endWrite, true
			}
			pending -= moved
			p.moved(moved)
		}
		if small++; !s.waited || n >= minPipeBytes {
			small = 0
		}
		if small == spliceRest {
			return 0, false
		}
	}
}

func (s *splicer) giveBack(empty bool) {
	if s.held {
		s.pump.pipes.put(s.pipe, empty)
		s.held = false
	}
}

// fill moves what has arrived into the pipe, waiting without a pipe while there is nothing. ok is false when no pipe was
// left.
func (s *splicer) fill(rc syscall.RawConn, size int) (n int, ok bool, err error) {
	s.waited = false
	rerr := rc.Read(func(fd uintptr) bool {
		if !s.held {
			if s.pipe, s.held = s.pump.pipes.get(); !s.held {
				return true
			}
		}
		var got int64
		for {
			got, err = unix.Splice(int(fd), nil, s.pipe.w, nil, size, spliceFlags)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			s.giveBack(true)
			s.waited = true
			return false
		}
		n = int(got)
		return true
	})
	if rerr != nil {
		return 0, false, rerr
	}
	return n, s.held, err
}

// spliceOut empties a pipe into a connection, waiting until the peer takes something.
func spliceOut(wc syscall.RawConn, r, size int) (n int, err error) {
	werr := wc.Write(func(fd uintptr) bool {
		var sent int64
		for {
			sent, err = unix.Splice(r, nil, int(fd), nil, size, spliceFlags)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		n = int(sent)
		return !errors.Is(err, unix.EAGAIN)
	})
	if werr != nil {
		return 0, werr
	}
	return n, err
}
