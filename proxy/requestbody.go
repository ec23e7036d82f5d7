package proxy

import (
	"errors"
	"os"
	"time"
)

// startPump relays the request body beside the response, so that early answers and 1xx pass.
func (x *exchange) startPump(head []byte) {
	o := x.origin
	x.out = nil // the pump has it
	done := make(chan error, 1)
	r := &relay{
		dst: o.c, src: &x.in, out: head, fl: x.fl, inward: true,
		maxFields: x.srv.Limits.HeadFields, maxLine: maxChunkLine,
	}
	x.pump, x.pumped = r, done
	f, n := x.head.framing, x.head.length
	go func() {
		err := error(readErr(errCutBody))
		defer func() {
			if p := recover(); p != nil {
				x.srv.Log.Error("internal error", "panic", p)
			}
			done <- err // first, so that whoever sees the origin fail can tell why
			var se *sideError
			if errors.As(err, &se) && !se.write {
				o.c.Close() // the origin must see that the request was cut
			}
		}()
		err = r.body(f, n)
	}()
}

const maxChunkLine = 8 << 10

// stopPump ends the request body and gives its result; errPumpStopped when it was still running.
func (x *exchange) stopPump() error {
	if x.pumped == nil {
		return nil
	}
	select {
	case err := <-x.pumped:
		x.pumped = nil
		return err
	default:
	}
	_ = x.nc.SetReadDeadline(time.Unix(1, 0))
	_ = x.origin.c.SetWriteDeadline(time.Unix(1, 0))
	err := <-x.pumped
	x.pumped = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errPumpStopped
	}
	return err
}

var errPumpStopped = errors.New("the response ended before the request body")

// pumpGrace is how long a request body that has been read whole may take to be written, once the response has begun.
const pumpGrace = time.Second

// pumpResult gives the result of the request body if it has been sent, or is about to be.
func (x *exchange) pumpResult() (err error, done bool) {
	wait := time.Duration(0)
	if x.pump.consumed.Load() {
		wait = pumpGrace
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err = <-x.pumped:
		x.pumped = nil
		return err, true
	case <-timer.C:
		return nil, false
	}
}
