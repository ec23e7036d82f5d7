package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// exchange is one request and its response.
type exchange struct {
	*conn
	q        netrule.Query
	path     string // behind the authority, as the client sent it
	origin   *originConn
	fl       *flight
	pump     *relay      // of the request body; nil when there is none
	pumped   chan error  // its result
	watch    watch       // of the client, while the origin thinks
	interim  bool        // a 1xx has gone to the client
	sent     atomic.Bool // the head of the final response has
	byClose  atomic.Bool // its end is the end of the connection
	observed bool        // the decision has been recorded
}

const maxInterim = 32

var errParentAuth = errors.New("the upstream proxy wants other credentials")

// run carries the exchange out. The decision is recorded once the origin is connected.
func (x *exchange) run() bool {
	for retried := false; ; retried = true {
		if !x.connectOrigin(retried) {
			return false
		}
		keep, retry := x.attempt()
		if !retry || retried {
			return keep
		}
	}
}

// connectOrigin takes a kept connection or dials one of the pinned addresses.
func (x *exchange) connectOrigin(fresh bool) bool {
	a := &x.verdict
	x.origin = nil
	if !fresh {
		x.origin = x.takeOrigin(a.Dest, a.Policy)
	}
	if x.origin == nil {
		l, ok := x.dial(x.q)
		if !ok {
			return false
		}
		x.origin = x.newOrigin(l, a.Dest, a.Policy)
	}
	x.endWait()
	x.record.Dialed = x.origin.addr
	return true
}

// decided records the decision, once, when it is known what came of it.
func (x *exchange) decided() {
	if !x.observed {
		x.observed = true
		x.observe()
	}
}

// end closes the exchange from outside: the origin always, the client only once a response has begun, for else it is
// owed an answer. A response that ends with the connection must not look whole.
func (x *exchange) end() {
	x.origin.c.Close()
	if x.sent.Load() {
		x.abortClient()
	}
}

func (x *exchange) abortClient() {
	if tcp, ok := x.nc.(interface{ SetLinger(sec int) error }); ok && x.byClose.Load() {
		_ = tcp.SetLinger(0)
	}
	x.nc.Close()
}

// attempt sends the request and relays the response. retry is true when a reused connection died before the first byte
// of a response to a request without body.
func (x *exchange) attempt() (keep, retry bool) {
	o, h := x.origin, &x.head
	x.fl = &flight{
		party: x.party, id: x.record.ID, protocol: "http", query: x.q, workspace: x.verdict.Workspace, dest: x.verdict.Dest, dialed: o.addr, policy: x.verdict.Policy, start: time.Now(), end: x.end,
		limit: x.srv.Limits.TunnelBytes, keepAlive: func() { setKeepAlive(x.nc, o.c) },
	}
	if x.inside != nil {
		x.fl.within = x.inside.tunnel.fl
	}
	x.srv.launch(x.fl)
	defer x.landed()
	hasBody := h.framing == byChunks || h.framing == byLength && h.length > 0
	head := x.appendRequest(x.out[:0])
	if hasBody {
		x.startPump(head)
	} else {
		x.out = head
		if _, err := o.c.Write(head); err != nil && o.reused {
			o.close()
			return false, true
		}
	}
	if !hasBody { // else the pump reads the client already
		x.watch.start(x.conn, watchAfter, x)
	}
	err := x.readResponse()
	x.watch.end()
	if err != nil {
		if o.reused && !hasBody && !x.interim && len(o.in.bytes()) == 0 && !x.fl.ended() && !errors.Is(err, os.ErrDeadlineExceeded) {
			o.close()
			return false, true
		}
		x.failed(err)
		return false, false
	}
	x.decided()
	if x.resp.status == http.StatusSwitchingProtocols {
		x.switchProtocols()
		return false, false
	}
	return x.respond(hasBody), false
}

// landed takes the exchange out of the books.
func (x *exchange) landed() {
	x.srv.flights.remove(x.fl)
	x.fl.note("target", "eof")
	record := new(decisionlog.Close)
	x.fl.land(time.Now(), record)
	record.ID = x.record.ID
	if code := x.fl.stopped(); x.inside != nil && code != netrule.CodeInternalError {
		x.inside.tunnel.fl.note("proxy", code.String()) // it ends with its exchange, whoever was stopped first
	}
	if x.handed || !x.observed || x.inside != nil {
		return // the tunnel has a record of its own
	}
	x.srv.closed(record)
}

// readResponse reads heads until a final one, passing interim ones on (RFC 9110 §15.2).
func (x *exchange) readResponse() error {
	for interim := 0; ; interim++ {
		if err := x.readResponseHead(); err != nil {
			return err
		}
		switch status := x.resp.status; {
		case status == http.StatusSwitchingProtocols:
			if !x.upgrades() || !x.resp.switchesTo("websocket") {
				return errBadResponse
			}
			return nil
		case status == http.StatusProxyAuthRequired && x.origin.parent != nil:
			return errParentAuth // the client cannot answer that, and its answer would be for us
		case status >= 200:
			return nil
		case interim == maxInterim:
			return errBadResponse
		case x.head.minor > 0: // HTTP/1.0 knows no interim responses
			x.out = append(x.appendStatus(x.appendResponseFields), crlf...)
			if _, err := x.nc.Write(x.out); err != nil {
				return writeErr(err)
			}
			x.interim = true
		}
	}
}

// readResponseHead reads one head from the origin.
func (x *exchange) readResponseHead() error {
	o := x.origin
	if wait := x.srv.Limits.ResponseHead; wait > 0 {
		_ = o.c.SetReadDeadline(time.Now().Add(wait))
		defer func() { _ = o.c.SetReadDeadline(time.Time{}) }()
	}
	for from := 0; ; {
		end, ok := 0, false
		if b := o.in.bytes(); len(b) > 0 {
			end, ok = scanResponse(b, min(from, len(b)-1))
			from = end
		}
		if ok {
			err := x.resp.parse(o.in.bytes()[:end], x.srv.Limits.HeadFields, x.head.isHead)
			if err == nil {
				o.in.discard(end)
				x.fl.touch()
			}
			return err
		}
		if err := o.in.fill(); err != nil {
			if errors.Is(err, errBufferFull) {
				return errBadResponse
			}
			return readErr(err)
		}
	}
}

// respond relays the final response and reports whether the client connection goes on.
func (x *exchange) respond(hasBody bool) bool {
	o, r, h := x.origin, &x.resp, &x.head
	bodyDone, bodyErr := !hasBody, error(nil)
	if hasBody {
		bodyErr, bodyDone = x.pumpResult()
	}
	closing := h.close || !bodyDone || bodyErr != nil || r.framing == byClose || h.minor == 0 || x.srv.draining.Load()
	x.out = x.appendStatus(x.appendResponseFields)
	x.out = x.appendResponseFraming(x.out, closing)
	body := &relay{
		dst: x.nc, src: &o.in, out: x.out, fl: x.fl, unchunk: h.minor == 0,
		maxFields: x.srv.Limits.HeadFields, maxLine: maxChunkLine,
	}
	x.byClose.Store(r.framing == byClose || r.framing == byChunks && h.minor == 0)
	x.sent.Store(true)
	err := body.body(r.framing, r.length)
	x.out = body.out
	if err != nil {
		x.cut(err)
		return false
	}
	if !bodyDone {
		bodyErr = x.stopPump()
	}
	if bodyErr == nil && !r.close && len(o.in.bytes()) == 0 {
		x.keepOrigin(o)
	} else {
		o.close()
	}
	if closing {
		x.linger()
	}
	return !closing
}

// switchProtocols turns the connection into a tunnel after a 101 that the client asked for (RFC 9110 §7.8).
func (x *exchange) switchProtocols() {
	x.out = x.appendStatus(x.appendResponseFields)
	x.out = append(x.out, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	l := link{c: x.origin.c, early: bytes.Clone(x.origin.in.bytes()), addr: x.origin.addr}
	x.origin.in.release()
	x.newTunnel(l, bytes.Clone(x.out), x.q).start()
}

// cut ends a response that broke off: the client must see that it is not whole.
func (x *exchange) cut(err error) {
	by, why := "target", "error"
	var se *sideError
	if errors.As(err, &se) && se.write {
		by = "client"
	}
	x.fl.note(by, why)
	x.origin.close()
	x.abortClient()
	_ = x.stopPump()
}

// failed answers a request whose response never came, unless the client is the one who left.
func (x *exchange) failed(err error) {
	bodyErr := x.stopPump()
	partial := len(x.origin.in.bytes()) > 0
	x.origin.close()
	code := x.failureCode(err, bodyErr, partial)
	x.fl.note("target", code.String())
	x.record.Code, x.record.Outcome, x.record.Cause = code, outcomeFailed, err.Error()
	r := &refusal{code: code, target: x.q.Target}
	if code == netrule.CodeBadRequest {
		x.record.Outcome, r.why = outcomeRefused, "a malformed or cut request body"
	}
	x.decided()
	r.json, r.head, r.id = x.head.wantsJSON, x.head.isHead, x.record.ID
	_ = x.nc.SetReadDeadline(time.Time{})
	x.answer(r)
}

// failureCode tells what went wrong, from what the origin, the request body and the proxy itself have to say.
func (x *exchange) failureCode(err, bodyErr error, partial bool) netrule.Code {
	var se *sideError
	bodyCut := errors.As(bodyErr, &se) && !se.write && !errors.Is(bodyErr, errPumpStopped)
	switch stopped := x.fl.stopped(); {
	case stopped != netrule.CodeInternalError:
		return stopped
	case bodyCut:
		return netrule.CodeBadRequest
	case errors.Is(err, errParentAuth):
		return netrule.CodeUpstreamProxyError
	case errors.Is(err, errBadResponse), partial:
		return netrule.CodeBadResponse
	case errors.Is(err, os.ErrDeadlineExceeded):
		return netrule.CodeResponseTimeout
	default:
		return netrule.CodeConnectionTerminated
	}
}
