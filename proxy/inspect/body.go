package inspect

import (
	"errors"
	"io"
	"net/http"

	"dshproxy/netrule"
)

// body is a message body on its way. At its end it cleans the trailer, which is known then; where it breaks off it says
// so.
type body struct {
	io.ReadCloser
	trailer *http.Header
	broken  func(error)
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		cleanTrailer(*b.trailer)
	default:
		b.broken(err)
	}
	return n, err
}

// requestBody prepares the body of the request for the origin.
func (x *exchange) requestBody(r *http.Request) {
	cleanTrailer(r.Trailer)
	if r.ContentLength == 0 {
		r.Body = nil // then the transport may try again on a fresh connection
		return
	}
	r.Body = &body{r.Body, &x.r.Trailer, func(error) { x.bodyCut.Store(true) }}
}

// accept makes the origin's answer the one for the client. A response that means something else to goproxy, to net/http
// or to the client than it does here is refused.
func (x *exchange) accept(resp *http.Response) *http.Response {
	switching := resp.StatusCode == http.StatusSwitchingProtocols
	asked := x.upgrading() && upgrades(resp.Header)
	if switching && !asked || resp.StatusCode < 200 && !switching {
		resp.Body.Close()
		return x.refuse(&refusal{code: netrule.CodeBadResponse, target: x.target})
	}
	x.report(resp.StatusCode, x.code)
	resp.Header = x.responseFields(resp)
	if switching {
		resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		return resp
	}
	if cleanTrailer(resp.Trailer); len(resp.Trailer) > 0 && x.r.ProtoMajor == 1 {
		resp.ContentLength = -1
		delete(resp.Header, "Content-Length") // with a length HTTP/1 has no place for a trailer
	}
	x.w.streaming = resp.ContentLength < 0 && x.r.Method != http.MethodHead
	return resp
}
