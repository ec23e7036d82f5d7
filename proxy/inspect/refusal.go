package inspect

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"dshproxy/netrule"
)

// refusal is an answer of ours to an inner request.
type refusal struct {
	code   netrule.Code
	status int    // 0 means that of the code
	error  string // of Proxy-Status (RFC 9209 §2.3); empty means that of the code
	target netrule.Target
	why    string // fixed words of ours, nothing from the wire; empty means those of the code
}

// wire is how a code looks in an answer: the status, and the error of Proxy-Status.
func wire(code netrule.Code) (status int, proxyError string) {
	switch code {
	case netrule.CodeHostMismatch:
		// 421 makes clients that share connections between hosts try again on one of its own (RFC 9110 §15.5.20).
		return http.StatusMisdirectedRequest, "http_request_denied"
	case netrule.CodeBadTarget, netrule.CodeBadRequest:
		return http.StatusBadRequest, "http_request_error"
	case netrule.CodeHeadTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge, "http_request_error"
	case netrule.CodeSpecialUseAddress, netrule.CodeMetadataAddress, netrule.CodeUpstreamTarget, netrule.CodeInternalName:
		return http.StatusForbidden, "destination_ip_prohibited"
	case netrule.CodeClientLimit:
		return http.StatusTooManyRequests, "http_request_denied"
	case netrule.CodeServerLimit, netrule.CodeDraining, netrule.CodeStopped:
		return http.StatusServiceUnavailable, "connection_limit_reached"
	case netrule.CodeNoPolicy:
		return http.StatusServiceUnavailable, "proxy_configuration_error"
	case netrule.CodeConnectionRefused:
		return http.StatusBadGateway, "connection_refused"
	case netrule.CodeDestinationIPUnroutable:
		return http.StatusBadGateway, "destination_ip_unroutable"
	case netrule.CodeConnectionTerminated:
		return http.StatusBadGateway, "connection_terminated"
	case netrule.CodeConnectionTimeout:
		return http.StatusGatewayTimeout, "connection_timeout"
	case netrule.CodeBadResponse:
		return http.StatusBadGateway, "http_response_incomplete"
	case netrule.CodeResponseTimeout:
		return http.StatusGatewayTimeout, "http_response_timeout"
	case netrule.CodeLoop:
		return http.StatusLoopDetected, "proxy_loop_detected"
	case netrule.CodeInternalError:
		return http.StatusInternalServerError, "proxy_internal_error"
	default: // whatever else a judge says is policy
		return http.StatusForbidden, "http_request_denied"
	}
}

// summary is the outcome in a few words.
func (r *refusal) summary() string {
	if r.why != "" {
		return r.why
	}
	switch r.code {
	case netrule.CodeHostMismatch:
		return "the request names another host than its tunnel"
	case netrule.CodeNotAllowed:
		return "no rule allows this target"
	case netrule.CodeDeniedByRule:
		return "a rule denies this target"
	case netrule.CodeNeedsApproval:
		return "this target needs approval"
	case netrule.CodeRevoked:
		return "the rules no longer allow this target"
	case netrule.CodeConnectionRefused:
		return "the target refused the connection"
	case netrule.CodeDestinationIPUnroutable:
		return "no route to the target"
	case netrule.CodeConnectionTerminated:
		return "the target closed the connection"
	case netrule.CodeConnectionTimeout:
		return "the target did not answer in time"
	case netrule.CodeBadResponse:
		return "the target sent a malformed response"
	case netrule.CodeResponseTimeout:
		return "the target sent no response in time"
	case netrule.CodeLoop:
		return "the request has passed here before"
	case netrule.CodeNoPolicy:
		return "no rules are loaded"
	default:
		return strings.ReplaceAll(r.code.String(), "_", " ")
	}
}

// response makes the answer. Every line of its text starts with "# ", so that nothing runs when it is piped to a shell,
// and it holds nothing from the wire but the canonical target.
func (r *refusal) response(req *http.Request) *http.Response {
	status, proxyError := wire(r.code)
	if r.status != 0 {
		status = r.status
	}
	if r.error != "" {
		proxyError = r.error
	}
	policy := status == http.StatusForbidden || status == http.StatusMisdirectedRequest
	text, kind := r.text(policy), "text/plain; charset=utf-8"
	if strings.Contains(strings.Join(req.Header["Accept"], ","), "application/json") {
		text, kind = r.json(policy), "application/json"
	}
	h := http.Header{
		"Proxy-Status":           {"dshproxy; error=" + proxyError + `; details="` + r.code.String() + `"`},
		"X-Dshproxy-Code":        {r.code.String()},
		"Content-Type":           {kind},
		"X-Content-Type-Options": {"nosniff"},
		"Cache-Control":          {"no-store"},
		"Content-Length":         {strconv.Itoa(len(text))},
	}
	switch status {
	case http.StatusForbidden:
		h["X-Proxy-Error"] = []string{r.proxyError()}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h["Retry-After"] = []string{"5"}
	}
	// In HTTP/2 a close would end the streams beside this one, of which only a foreign authority gives reason.
	if req.ProtoMajor == 1 || r.code == netrule.CodeHostMismatch {
		h["Connection"] = []string{"close"}
	}
	if req.Method == http.MethodHead {
		text = nil
	}
	return &http.Response{StatusCode: status, Header: h, ContentLength: int64(len(text)), Body: io.NopCloser(bytes.NewReader(text)), Request: req}
}

// proxyError is the vocabulary that sandbox proxies share.
func (r *refusal) proxyError() string {
	switch r.code {
	case netrule.CodeDeniedByRule:
		return "blocked-by-denylist"
	case netrule.CodeNotAllowed:
		return "blocked-by-allowlist"
	default:
		return "blocked-by-policy"
	}
}

func (r *refusal) text(policy bool) []byte {
	kind := "error"
	if policy {
		kind = "denied"
	}
	var b strings.Builder
	b.WriteString("# [network: " + kind + "] " + r.summary() + "\n")
	if r.target.Host != "" {
		b.WriteString("# target: " + r.target.Authority() + "\n")
	}
	b.WriteString("# code: " + r.code.String() + "\n")
	if policy {
		b.WriteString("# This is policy, not an outage. Do not retry, work around it or change the rules yourself; tell the user.\n")
	}
	return []byte(b.String())
}

func (r *refusal) json(policy bool) []byte {
	verdict := "error"
	switch {
	case r.code == netrule.CodeNeedsApproval:
		verdict = "ask"
	case policy:
		verdict = "deny"
	}
	text, err := json.Marshal(struct {
		Verdict string       `json:"verdict"`
		Code    netrule.Code `json:"code"`
		Host    string       `json:"host"`
		Port    uint16       `json:"port"`
		Reason  string       `json:"reason"`
		Source  string       `json:"reason_source"`
	}{verdict, r.code, r.target.Host, r.target.Port, r.summary(), "dshproxy"})
	if err != nil {
		return r.text(policy)
	}
	return append(text, '\n')
}

// refuse makes the answer of this exchange a refusal.
func (x *exchange) refuse(r *refusal) *http.Response {
	x.refused = true
	resp := r.response(x.r)
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
