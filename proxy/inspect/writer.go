package inspect

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// answerWriter is what goproxy writes an answer to. It has no ReadFrom, so that each piece of a body passes Write.
type answerWriter struct {
	http.ResponseWriter
	x         *exchange
	begun     bool
	streaming bool // no length is known: each piece goes out as it comes
}

// WriteHeader sends the head of a streamed answer at once: its first piece may be long in coming.
func (w *answerWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
	if w.streaming {
		w.Flush()
	}
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.begun = true
	n, err := w.ResponseWriter.Write(p)
	if err == nil && w.streaming {
		w.Flush()
	}
	return n, err
}

// Flush is part of http.Flusher, which goproxy asks for.
func (w *answerWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() } // the next write says why

// Hijack is part of http.Hijacker, which goproxy asks for once an upgrade is accepted.
func (w *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.x.hijacked = err == nil
	return c, rw, err
}

// interim sends a 1xx head.
func (w *answerWriter) interim(code int, fields http.Header) {
	h := w.Header()
	for name, values := range fields {
		if n := dashed(name); !hopByHop(n) && !ours(n) {
			h[name] = values
		}
	}
	w.ResponseWriter.WriteHeader(code)
	clear(h)
}

// send writes a refusal without goproxy.
func (x *exchange) send(r *refusal) {
	resp := x.refuse(r)
	defer resp.Body.Close()
	for name, values := range resp.Header {
		x.w.Header()[name] = values
	}
	x.w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(x.w, resp.Body) // the client may be gone
}
