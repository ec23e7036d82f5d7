package proxy

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"

	"dshproxy/netrule"
)

// Denial is an answer of this proxy for an Inspector, which writes HTTP in a way of its own.
type Denial struct {
	Code netrule.Code
	// Status, if not 0, takes the place of the code's; Error, if not empty, that of its error in Proxy-Status.
	Status int
	Error  string
	Target netrule.Target
	// Why are fixed words, nothing from the wire; empty means those of the code.
	Why string
	// ID is that of the tunnel.
	ID string
}

// Response makes the answer to a request. Every line of its text starts with "# ", so that nothing runs when it is piped
// to a shell, and it holds nothing from the wire but the canonical target.
func (d *Denial) Response(req *http.Request) *http.Response {
	r := refusal{code: d.Code, status: d.Status, error: d.Error, target: d.Target, why: d.Why, id: d.ID, keep: true, head: req.Method == http.MethodHead}
	r.json = strings.Contains(strings.Join(req.Header["Accept"], ","), "application/json")
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.append(nil, &voice{}))), req)
	if err != nil { // an answer of ours always parses
		return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: req}
	}
	return resp
}
