package inspect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"

	"dshproxy/netrule"
	"dshproxy/proxy"
)

// refusal is an answer of ours to an inner request.
type refusal struct {
	code   netrule.Code
	status int    // 0 means that of the code
	error  string // of Proxy-Status (RFC 9209 §2.3); empty means that of the code
	target netrule.Target
	why    string // fixed words of ours, nothing from the wire; empty means those of the code
}

// response makes the answer. A foreign host is 421, which makes clients that share connections between hosts try again on
// one of its own (RFC 9110 §15.5.20).
func (r *refusal) response(req *http.Request, id string) *http.Response {
	d := proxy.Denial{Code: r.code, Status: r.status, Error: r.error, Target: r.target, Why: r.why, ID: id}
	if r.code == netrule.CodeHostMismatch {
		d.Status, d.Error = http.StatusMisdirectedRequest, "http_request_denied"
	}
	resp := d.Response(req)
	// In HTTP/2 a close would end the streams beside this one, of which only a foreign authority gives reason.
	if req.ProtoMajor == 1 || r.code == netrule.CodeHostMismatch {
		resp.Header["Connection"] = []string{"close"}
	}
	return resp
}

// refuse makes the answer of this exchange a refusal.
func (x *exchange) refuse(r *refusal) *http.Response {
	x.refused = true
	resp := r.response(x.r, x.given.ID)
	x.report(resp.StatusCode, r.code)
	return resp
}

// failure tells why a request got no answer from the origin.
func (x *exchange) failure(err error) *refusal {
	r := &refusal{code: netrule.CodeConnectionTerminated, target: x.target}
	var dial *dialError
	var ne net.Error
	timeout := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
	switch {
	case x.bodyCut.Load():
		r.code, r.why = netrule.CodeBadRequest, "a malformed or cut request body"
	case timeout && !x.connected.Load():
		r.code = netrule.CodeConnectionTimeout
	case timeout:
		r.code = netrule.CodeResponseTimeout
	case errors.As(err, &dial):
		r.code = dialCode(err)
	case x.answered.Load():
		r.code = netrule.CodeBadResponse
	default:
		r.error, r.why = tlsFailure(err)
	}
	x.engine.log.Debug("an inspected request failed", "host", x.target.Host, "code", r.code, "error", err)
	return r
}

func dialCode(err error) netrule.Code {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return netrule.CodeConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return netrule.CodeDestinationIPUnroutable
	case errors.Is(err, errForeign):
		return netrule.CodeInternalError
	default:
		return netrule.CodeConnectionTerminated
	}
}

// tlsFailure tells the handshakes that the origin failed, by the error of Proxy-Status and in words; empty for others.
func tlsFailure(err error) (proxyError, why string) {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &cert):
		return "tls_certificate_error", "the target's certificate is not valid for it"
	case errors.As(err, &record), errors.As(err, &alert):
		return "tls_protocol_error", "the target does not speak TLS as it should"
	default:
		return "", ""
	}
}
