package admin

import (
	"fmt"
	"net/http"
	"time"

	"dshproxy/proxy/decisionlog"
)

const (
	heartbeat = 15 * time.Second
	// eventWait is how long a subscriber may take nothing before it is given up.
	eventWait = 10 * time.Second
)

// events streams what happens as server-sent events: decision, close and reload with the line of the decision log as
// their data, and dropped with the number of events that a slow reader has lost.
func (a *api) events(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r, nil); err != nil {
		return err
	}
	ring := a.backend.Records()
	if ring == nil {
		return &Error{http.StatusConflict, "no_events", "this proxy keeps no records", ""}
	}
	sub, err := ring.Subscribe()
	if err != nil {
		return &Error{http.StatusTooManyRequests, "too_many_subscribers", "too many subscribers", "end another one first"}
	}
	defer sub.Close()
	s := stream{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s.run(sub, r.Context().Done(), stopping(r.Context()))
	return nil
}

// stream writes to one subscriber.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

// run writes until the client goes, the server stops, or the client takes nothing for too long.
func (s *stream) run(sub *decisionlog.Subscription, gone, stopping <-chan struct{}) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	s.writef(": connected\n\n")
	for s.err == nil {
		if n := sub.TakeDropped(); n > 0 {
			s.writef("event: dropped\ndata: {\"dropped\":%d}\n\n", n)
		}
		if len(sub.C) == 0 {
			s.flush()
		}
		select {
		case e := <-sub.C:
			s.writef("event: %s\ndata: %s\n\n", e.Kind, e.Line)
		case <-beat.C:
			s.writef(": heartbeat\n\n")
		case <-gone:
			return
		case <-stopping:
			return
		}
	}
}

// writef gives each write a deadline of its own, in the place of the one that the server gives a whole answer.
func (s *stream) writef(format string, args ...any) {
	if s.err == nil {
		s.err = s.control.SetWriteDeadline(time.Now().Add(eventWait))
	}
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *stream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
