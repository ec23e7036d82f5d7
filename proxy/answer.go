package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"dshproxy/netrule"
)

// wireCode is how an outcome looks on the wire: the status, and the error of Proxy-Status (RFC 9209 §2.3).
type wireCode struct {
	status int
	error  string
}

// wireCodes has every code that ends a request with an answer. 403 is policy, 407 only authentication, 502 and 504 the
// network, 429 a quota, 508 a loop.
func wireOf(code netrule.Code) wireCode {
	switch code {
	case netrule.CodeNotAllowed, netrule.CodeDeniedByRule, netrule.CodeNeedsApproval, netrule.CodeApprovalDenied,
		netrule.CodeApprovalTimeout, netrule.CodeApprovalRate:
		return wireCode{403, "http_request_denied"}
	case netrule.CodeRevoked:
		return wireCode{403, "http_request_denied"}
	case netrule.CodeIdle:
		return wireCode{504, "http_response_timeout"}
	case netrule.CodeSpecialUseAddress, netrule.CodeMetadataAddress, netrule.CodeUpstreamTarget, netrule.CodeInternalName:
		return wireCode{403, "destination_ip_prohibited"}
	case netrule.CodeBadTarget, netrule.CodeBadRequest, netrule.CodeAuthorityMismatch, netrule.CodeHostMismatch:
		return wireCode{400, "http_request_error"}
	case netrule.CodeHeadTooLarge:
		return wireCode{431, "http_request_error"}
	case netrule.CodeHeadTimeout:
		return wireCode{408, "http_request_error"}
	case netrule.CodeAuthRequired:
		return wireCode{407, "http_request_denied"}
	case netrule.CodeClientLimit:
		return wireCode{429, "http_request_denied"}
	case netrule.CodeServerLimit, netrule.CodeDraining, netrule.CodeStopped:
		return wireCode{503, "connection_limit_reached"}
	case netrule.CodeDNSError:
		return wireCode{502, "dns_error"}
	case netrule.CodeDNSTimeout:
		return wireCode{504, "dns_timeout"}
	case netrule.CodeConnectionRefused:
		return wireCode{502, "connection_refused"}
	case netrule.CodeDestinationIPUnroutable:
		return wireCode{502, "destination_ip_unroutable"}
	case netrule.CodeConnectionTerminated:
		return wireCode{502, "connection_terminated"}
	case netrule.CodeConnectionTimeout:
		return wireCode{504, "connection_timeout"}
	case netrule.CodeBadResponse:
		return wireCode{502, "http_response_incomplete"}
	case netrule.CodeResponseTimeout:
		return wireCode{504, "http_response_timeout"}
	case netrule.CodeUpstreamProxyError:
		return wireCode{502, "connection_refused"}
	case netrule.CodeLoop:
		return wireCode{508, "proxy_loop_detected"}
	case netrule.CodeNoPolicy:
		return wireCode{503, "proxy_configuration_error"}
	default:
		return wireCode{500, "proxy_internal_error"}
	}
}

// refusal is everything that an answer of ours says.
type refusal struct {
	code     netrule.Code
	status   int    // 0 means that of the code
	error    string // of Proxy-Status; empty means that of the code
	target   netrule.Target
	decision netrule.Decision
	id       string
	why      string // for 400 and the like: fixed words of ours, nothing from the wire
	rcode    string
	json     bool
	head     bool // the request was HEAD: no body
	keep     bool // the connection goes on
}

// voice is how much a listener tells, and in which words.
type voice struct {
	full      bool   // file, line and hint
	workspace string // that paths are shown relative to
	message   string // the operator's line
}

const (
	maxPhrase     = 120
	maxPhraseHost = 80
	shownHost     = 60
)

// append writes the whole answer. It closes the connection.
func (r *refusal) append(b []byte, v *voice) []byte {
	w := wireOf(r.code)
	status := w.status
	if r.status != 0 {
		status = r.status
	}
	if r.error != "" {
		w.error = r.error
	}
	var room [1 << 10]byte // most bodies fit
	body, kind := room[:0], "text/plain; charset=utf-8"
	if r.json {
		body, kind = r.appendJSONBody(body, v), "application/json"
	} else {
		body = r.appendText(body, v)
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), r.phrase(status)...), crlf...)
	b = append(append(append(b, "Proxy-Status: dshproxy; error="...), w.error...), "; details=\""...)
	b = append(append(b, r.code.String()...), '"')
	if r.rcode != "" {
		b = append(append(append(b, "; rcode=\""...), r.rcode...), '"')
	}
	b = append(b, crlf...)
	if status == 403 {
		b = append(append(append(b, "X-Proxy-Error: "...), r.proxyError()...), crlf...)
	}
	b = append(append(append(b, "X-Dshproxy-Code: "...), r.code.String()...), crlf...)
	b = append(append(append(b, "X-Dshproxy-Id: "...), r.id...), crlf...)
	b = append(append(append(b, "Content-Type: "...), kind...), crlf...)
	b = append(b, "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"...)
	switch status {
	case 407:
		b = append(b, "Proxy-Authenticate: Basic realm=\"dshproxy\", charset=\"UTF-8\"\r\n"...)
	case 405:
		b = append(b, "Allow: CONNECT, GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"...)
	case 429, 503:
		b = append(b, "Retry-After: 5\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if !r.keep {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	if !r.head {
		b = append(b, body...)
	}
	return b
}

// proxyError is the vocabulary that sandbox proxies share.
func (r *refusal) proxyError() string {
	switch {
	case r.code == netrule.CodeDeniedByRule:
		return "blocked-by-denylist"
	case r.code == netrule.CodeNotAllowed && r.decision.Mode == netrule.Whitelist:
		return "blocked-by-allowlist"
	default:
		return "blocked-by-policy"
	}
}

// phrase is all that most clients show of a refused CONNECT. It is ASCII, short, starts with the stock phrase and never
// holds a rule's reason.
func (r *refusal) phrase(status int) string {
	s := http.StatusText(status) + " by dshproxy: " + r.summary(shortAuthority(r.target))
	return s[:min(len(s), maxPhrase)]
}

// shortAuthority shows a long host by its end, which is the part that says whose it is.
func shortAuthority(t netrule.Target) string {
	if t.Host == "" {
		return "the target"
	}
	if len(t.Host) > maxPhraseHost {
		t.Host = "..." + t.Host[len(t.Host)-shownHost:]
	}
	return t.Authority()
}

// summary is the outcome in a few words, about the target.
func (r *refusal) summary(target string) string {
	if r.why != "" {
		return r.why
	}
	switch r.code {
	case netrule.CodeHostMismatch:
		return "the request names another host than its tunnel"
	case netrule.CodeNotAllowed:
		return "no rule allows " + target
	case netrule.CodeDeniedByRule:
		return "a rule denies " + target
	case netrule.CodeNeedsApproval:
		return target + " needs approval"
	case netrule.CodeApprovalDenied, netrule.CodeApprovalTimeout, netrule.CodeApprovalRate:
		return target + " was not approved"
	case netrule.CodeSpecialUseAddress:
		return target + " is at a non-public address"
	case netrule.CodeMetadataAddress:
		return target + " is a metadata service"
	case netrule.CodeLoop:
		return target + " is this proxy itself"
	case netrule.CodeDNSError:
		return "no address for " + target
	case netrule.CodeDNSTimeout:
		return "lookup timeout for " + target
	case netrule.CodeConnectionRefused:
		return target + " refused the connection"
	case netrule.CodeDestinationIPUnroutable:
		return "no route to " + target
	case netrule.CodeConnectionTerminated:
		return target + " closed the connection"
	case netrule.CodeConnectionTimeout:
		return target + " did not answer in time"
	case netrule.CodeBadResponse:
		return target + " sent a malformed response"
	case netrule.CodeResponseTimeout, netrule.CodeIdle:
		return target + " sent no response in time"
	case netrule.CodeRevoked:
		return "the rules no longer allow " + target
	case netrule.CodeNoPolicy:
		return "no rules are loaded"
	case netrule.CodeClientLimit:
		return "too many connections of this client"
	case netrule.CodeServerLimit:
		return "too many connections"
	case netrule.CodeDraining:
		return "shutting down"
	case netrule.CodeStopped:
		return "stopped by the operator"
	case netrule.CodeAuthRequired:
		return "credentials for this proxy are missing or wrong"
	case netrule.CodeUpstreamTarget:
		return target + " is an upstream proxy of this one"
	case netrule.CodeInternalName:
		return target + " is a name of an internal network, which a rule must spell out"
	case netrule.CodeUpstreamProxyError:
		return "the upstream proxy did not reach " + target
	default:
		return strings.ReplaceAll(r.code.String(), "_", " ")
	}
}

// explanation is the first line of the body: who refused, and why.
func (r *refusal) explanation() string {
	ref := r.decision.Rule
	byRule := "denied"
	if ref.Valid() {
		byRule = "denied by rule " + strconv.Itoa(ref.Index+1)
	}
	switch {
	case r.why != "" || !ref.Valid() && r.decision.Code == netrule.CodeInternalError: // no decision to tell of
	case r.code == netrule.CodeDeniedByRule:
		return "[network: " + byRule + `] the rule's author says: "` + ref.ReasonLine() + `"`
	case r.code == netrule.CodeNeedsApproval:
		if ref.Valid() {
			return "[network: blocked pending approval by rule " + strconv.Itoa(ref.Index+1) + `] the rule's author says: "` + ref.ReasonLine() + `"`
		}
		return "[network: blocked pending approval] " + r.decision.Mode.String() + " mode: no rule allows this target"
	case r.code == netrule.CodeNotAllowed:
		return "[network: denied] " + r.decision.Mode.String() + " mode: no rule allows this target"
	case r.code == netrule.CodeSpecialUseAddress, r.code == netrule.CodeMetadataAddress:
		return "[network: denied] the target is at a special-use address, which needs a rule that names it in ips"
	}
	if wireOf(r.code).status == 403 || r.code == netrule.CodeHostMismatch {
		return "[network: denied] " + r.summary("the target")
	}
	return "[network: error] " + r.summary("the target")
}

// appendText writes a body that is inert: every line starts with "# ", so that nothing runs when it is piped to a shell, and it holds nothing
// from the wire but the canonical target.
func (r *refusal) appendText(b []byte, v *voice) []byte {
	b = append(append(append(b, "# "...), r.explanation()...), '\n')
	if r.target.Host != "" {
		b = append(append(append(b, "# target: "...), r.target.Authority()...), '\n')
	}
	if ref := r.decision.Rule; v.full && ref.Valid() {
		b = append(append(append(b, "# rule: "...), inert(v.relative(ref.File))...), ':')
		b = append(strconv.AppendInt(b, int64(ref.Line), 10), '\n')
	}
	b = append(append(append(b, "# code: "...), r.code.String()...), "   id: "...)
	b = append(append(b, r.id...), '\n')
	policy := wireOf(r.code).status == 403 || r.code == netrule.CodeHostMismatch
	if fix, ok := r.decision.Fix(r.target); ok && policy && v.full {
		b = append(append(append(b, "# to allow it, the operator can run: "...), fix.Command()...), '\n')
	}
	if v.message != "" {
		b = append(append(append(b, "# "...), inert(v.message)...), '\n')
	}
	if policy {
		b = append(b, "# This is policy, not an outage. Do not retry, work around it or change the rules yourself; tell the user.\n"...)
	}
	return b
}

// relative shortens a path below the workspace.
func (v *voice) relative(path string) string {
	if rest, ok := strings.CutPrefix(path, v.workspace+"/"); ok && v.workspace != "" {
		return rest
	}
	return path
}

// inert keeps an operator's text on one line of printable ASCII.
func inert(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
}

// appendJSONBody says the same to programs, with the reason whole.
func (r *refusal) appendJSONBody(b []byte, v *voice) []byte {
	b = append(b, `{"verdict":`...)
	verdict := "deny"
	if r.decision.Action == netrule.Ask || r.code == netrule.CodeNeedsApproval {
		verdict = "ask"
	}
	if wireOf(r.code).status != 403 && r.code != netrule.CodeHostMismatch {
		verdict = "error"
	}
	b = appendJSON(b, verdict)
	b = appendJSON(append(b, `,"code":`...), r.code.String())
	b = appendJSON(append(b, `,"host":`...), r.target.Host)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(r.target.Port), 10)
	if ref := r.decision.Rule; ref.Valid() {
		b = strconv.AppendInt(append(b, `,"rule":{"index":`...), int64(ref.Index), 10)
		if v.full {
			b = appendJSON(append(b, `,"file":`...), ref.File)
			b = strconv.AppendInt(append(b, `,"line":`...), int64(ref.Line), 10)
		}
		b = append(b, '}')
		b = appendJSON(append(b, `,"reason":`...), ref.Reason)
		b = append(b, `,"reason_source":"rule author"`...)
	} else {
		b = appendJSON(append(b, `,"reason":`...), r.summary(shortAuthority(r.target)))
		b = append(b, `,"reason_source":"dshproxy"`...)
	}
	if fix, ok := r.decision.Fix(r.target); ok && v.full {
		b = appendJSON(append(b, `,"allow_hint":`...), fix.Command())
	}
	b = appendJSON(append(b, `,"id":`...), r.id)
	return append(b, "}\n"...)
}

// appendJSON writes a JSON string in ASCII.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			r -= 0x10000
			b = appendU16(appendU16(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = appendU16(b, r)
		}
	}
	return append(b, '"')
}

func appendU16(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
