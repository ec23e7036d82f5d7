package decisionlog

import "sync"

// Recorder hands what happens to a ring and a log, and makes each line once for both. A nil Log leaves the log out.
type Recorder struct {
	Ring *Ring
	Log  *Log
}

// Connected is of no interest here.
func (r Recorder) Connected(string) {}

// Decided records a decision.
func (r Recorder) Decided(d *Decision) {
	l := line{of: d}
	defer l.release()
	r.Ring.decided(&l)
	if r.Log != nil {
		r.Log.decided(&l)
	}
}

// Closed records the end of a connection.
func (r Recorder) Closed(c *Close) {
	r.Ring.Closed(c)
	if r.Log != nil {
		r.Log.Closed(c)
	}
}

// Reloaded records a reload.
func (r Recorder) Reloaded(l *Reload) {
	r.Ring.Reloaded(l)
	if r.Log != nil {
		r.Log.Reloaded(l)
	}
}

// line is the line of a decision, made for the first who asks. It ends with release.
type line struct {
	of  *Decision
	buf *[]byte
}

var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

func (l *line) bytes() []byte {
	if l.buf == nil {
		l.buf = lineBuffers.Get().(*[]byte)
		*l.buf = l.of.appendTo((*l.buf)[:0])
	}
	return *l.buf
}

func (l *line) release() {
	if l.buf != nil {
		lineBuffers.Put(l.buf)
	}
}
