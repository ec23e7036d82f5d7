package decisionlog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// gather is how long lines gather after a write: a lone line is written at once, many cost few writes.
const gather = 5 * time.Millisecond

// maxPending is how much may wait for a slow sink, in bytes; more is dropped and counted.
const maxPending = 8 << 20

// Writer writes lines to a sink from one goroutine. Its methods never block on the sink.
type Writer struct {
	mu      sync.Mutex
	pending []byte
	spare   []byte
	closed  bool
	wake    chan struct{}
	closing chan struct{}
	done    chan struct{}
	sink    io.Writer
	dropped atomic.Int64
}

// NewWriter starts a writer. Close ends it.
func NewWriter(sink io.Writer) *Writer {
	w := &Writer{wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}), sink: sink}
	go w.run()
	return w
}

// Dropped gives the number of lines that were lost, to a full buffer or a failing sink.
func (w *Writer) Dropped() int64 { return w.dropped.Load() }

// append adds one line, written by add into the buffer.
func (w *Writer) append(add func([]byte) []byte) {
	w.mu.Lock()
	if w.closed || len(w.pending) > maxPending {
		w.mu.Unlock()
		w.dropped.Add(1)
		return
	}
	first := len(w.pending) == 0
	w.pending = add(w.pending)
	w.mu.Unlock()
	if first {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// write adds a line that is there already.
func (w *Writer) write(line []byte) {
	w.append(func(b []byte) []byte { return append(b, line...) })
}

func (w *Writer) run() {
	defer close(w.done)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for range w.wake {
		for w.flush() {
			pause.Reset(gather)
			select {
			case <-pause.C:
			case <-w.closing:
			}
		}
		w.mu.Lock()
		closed := w.closed && len(w.pending) == 0
		w.mu.Unlock()
		if closed {
			return
		}
	}
}

// flush writes what is pending and reports whether there was anything.
func (w *Writer) flush() bool {
	w.mu.Lock()
	batch := w.pending
	w.pending, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	if len(batch) > 0 {
		if _, err := w.sink.Write(batch); err != nil {
			w.dropped.Add(int64(bytes.Count(batch, []byte("\n"))))
		}
	}
	w.mu.Lock()
	w.spare = batch[:0]
	if cap(w.spare) > 1<<20 {
		w.spare = nil
	}
	w.mu.Unlock()
	return len(batch) > 0
}

// closeWait is how long the end of the log waits for a sink that takes nothing.
const closeWait = 2 * time.Second

// Close writes what is pending and ends the writer, or gives up on a sink that takes nothing: the rest is counted as
// dropped. It does not close the sink.
func (w *Writer) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.mu.Unlock()
	close(w.closing)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dropped.Add(int64(bytes.Count(w.pending, []byte("\n"))))
		w.pending = nil
	}
}

// File is a sink that is renamed to NAME.1 when it has grown to its limit.
type File struct {
	path  string
	limit int64
	file  *os.File
	size  int64
}

// OpenFile opens or creates a log, 0600, to be appended to. limit is in bytes; 0 means none.
func OpenFile(path string, limit int64) (*File, error) {
	f := &File{path: path, limit: limit}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return fmt.Errorf("decision log: %w", err)
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends whole lines.
func (f *File) Write(p []byte) (int, error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.limit > 0 && f.size > 0 && f.size+int64(len(p)) > f.limit {
		f.file.Close()
		f.file = nil
		if err := os.Rename(f.path, f.path+".1"); err != nil {
			return 0, fmt.Errorf("decision log: %w", err)
		}
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, err
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
