package inspect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"dshproxy/netrule"
	"dshproxy/proxy"

	"github.com/elazarl/goproxy"
)

// exchange is one request in a tunnel, and its answer.
type exchange struct {
	*tunnel
	r        *http.Request // as it came
	w        *answerWriter
	code     netrule.Code // of the judgement
	admitted bool
	refused  bool // the answer is ours
	reported bool
	hijacked bool

	mu       sync.Mutex
	returned bool // the round trip is over: what the transport still says comes too late

	connected atomic.Bool // the request has a connection
	answered  atomic.Bool // the first byte of an answer has come
	bodyCut   atomic.Bool // the client did not send its whole body
	cut       error       // the origin did not send its whole answer
}

// ServeHTTP serves one request of the tunnel; those of HTTP/2 run side by side.
func (t *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !t.enter() {
		panic(http.ErrAbortHandler) // net/http then drops the connection without a word
	}
	defer t.leave()
	x := &exchange{tunnel: t, r: r}
	x.w = &answerWriter{ResponseWriter: w, x: x}
	defer x.finish()
	x.serve()
}

func (x *exchange) serve() {
	if x.r.ProtoMajor == 1 {
		_ = http.NewResponseController(x.w.ResponseWriter).EnableFullDuplex() // HTTP/1 has it
	}
	if x.r.Method == http.MethodConnect { // goproxy takes these for itself
		x.send(&refusal{code: netrule.CodeBadRequest, status: http.StatusMethodNotAllowed, why: "CONNECT is not served inside a tunnel"})
		return
	}
	ctx := context.WithValue(x.r.Context(), exchangeKey{}, x)
	r := x.r.WithContext(httptrace.WithClientTrace(ctx, x.trace()))
	r.URL = &url.URL{Scheme: "https", Host: x.authority} // admit gives it a path
	x.engine.proxy.ServeHTTP(x.w, r)
	if x.cut != nil {
		panic(http.ErrAbortHandler) // a cut answer must not look whole
	}
}

// finish ends the exchange on every path. A panic ends the connection of this client and nothing else.
func (x *exchange) finish() {
	p := recover()
	if x.hijacked {
		x.listener.finish()
	}
	err, _ := p.(error)
	switch {
	case p == nil:
		return
	case errors.Is(err, http.ErrAbortHandler):
	default:
		x.engine.log.Error("internal error", "panic", p)
		if !x.w.begun && !x.hijacked {
			x.send(&refusal{code: netrule.CodeInternalError})
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// admit holds a request against the tunnel and the rules, and makes it the request for the origin. A request that does
// not pass is refused.
func (x *exchange) admit(r *http.Request) *refusal {
	if refused := x.checkHead(); refused != nil {
		return refused
	}
	asked, rest, refused := x.asked()
	if refused != nil {
		return refused
	}
	if x.given.Judge == nil {
		return &refusal{code: netrule.CodeNoPolicy, target: asked}
	}
	code, ok := x.given.Judge(asked.Host, asked.Port)
	if x.code = code; !ok {
		return &refusal{code: code, target: asked}
	}
	if r.URL, ok = originURL(x.authority, rest); !ok {
		return &refusal{code: netrule.CodeBadTarget, target: asked, why: "a malformed request target"}
	}
	r.Host, r.Close = x.authority, false
	r.Header = x.requestFields()
	x.requestBody(r)
	x.admitted = true
	return nil
}

const (
	maxMethod = 32
	maxVia    = 20
)

// checkHead refuses what the forwarder of plain requests refuses too.
func (x *exchange) checkHead() *refusal {
	fields := 0
	for _, values := range x.r.Header {
		fields += len(values)
	}
	entries := 0
	for _, v := range x.r.Header["Via"] {
		entries += 1 + strings.Count(v, ",")
		if x.engine.pseudonym != "" && strings.Contains(v, x.engine.pseudonym) {
			entries = maxVia + 1
		}
	}
	switch {
	case x.r.Method == http.MethodTrace:
		return &refusal{code: netrule.CodeBadRequest, status: http.StatusMethodNotAllowed, why: "TRACE is not served"}
	case len(x.r.Method) > maxMethod:
		return &refusal{code: netrule.CodeBadRequest, status: http.StatusNotImplemented, why: "a method of over 32 bytes"}
	case fields > x.engine.limits.HeadFields:
		return &refusal{code: netrule.CodeHeadTooLarge, why: "too many header fields"}
	case entries > maxVia:
		return &refusal{code: netrule.CodeLoop, target: x.target}
	default:
		return nil
	}
}

// asked reads which authority a request names, and the path and query behind it. Whatever names one must name the
// tunnel's own: Host, :authority, the absolute-form, and a Host field beside :authority (RFC 9113 §8.3.1).
func (x *exchange) asked() (t netrule.Target, rest string, refused *refusal) {
	rest = x.r.RequestURI
	names := append([]string{x.r.Host}, x.r.Header["Host"]...)
	if !strings.HasPrefix(rest, "/") && rest != "*" {
		absolute, behind, err := netrule.ParseAbsolute(rest)
		if err != nil || absolute != x.target {
			return x.target, "", &refusal{code: netrule.CodeHostMismatch, target: x.target}
		}
		rest = behind
	}
	for _, name := range names {
		if name == "" && !x.r.ProtoAtLeast(1, 1) {
			continue // HTTP/1.0 may leave it out
		}
		named, behind, err := netrule.ParseAbsolute("https://" + name)
		if err != nil || behind != "" || named != x.target {
			return x.target, "", &refusal{code: netrule.CodeHostMismatch, target: x.target}
		}
	}
	return x.target, rest, nil
}

// originURL makes the URL of the request for the origin, with path and query byte for byte. rest is what stands behind
// the authority.
func originURL(authority, rest string) (*url.URL, bool) {
	if rest == "" || rest[0] == '?' {
		rest = "/" + rest
	}
	u, err := url.ParseRequestURI(rest)
	if err != nil || strings.Contains(rest, "#") || rest[0] != '/' && rest != "*" {
		return nil, false
	}
	u.Scheme, u.Host = "https", authority
	if u.RequestURI() != rest && !strings.HasPrefix(rest, "//") {
		// Opaque goes out as it is; with two slashes it would be read as an authority.
		u = &url.URL{Scheme: "https", Host: authority, Opaque: rest}
	}
	return u, true
}

func portOf(t netrule.Target) string { return strconv.Itoa(int(t.Port)) }

// RoundTrip sends an admitted request to the origin. goproxy calls it.
func (x *exchange) RoundTrip(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	if !x.admitted || r.URL.Scheme != "https" || r.URL.Host != x.authority || r.Host != x.authority {
		return nil, errForeign
	}
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.returned = true
	}()
	resp, err := x.transport.RoundTrip(r)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection
		// Here, for a body that a handler has changed loses its length in goproxy.
		resp.Body = &body{resp.Body, &resp.Trailer, func(err error) { x.cut = err }}
	}
	return resp, err
}

// trace notes how far a request got, for the words of a failure, and passes interim answers on (RFC 9110 §15.2).
func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { x.connected.Store(true) },
		GotFirstResponseByte: func() { x.answered.Store(true) },
		Got1xxResponse: func(code int, fields textproto.MIMEHeader) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			// HTTP/1.0 knows no interim answers, and net/http says 100 by itself, once the transport asks for the body.
			if !x.returned && x.r.ProtoAtLeast(1, 1) && code != http.StatusContinue {
				x.w.interim(code, http.Header(fields))
			}
			return nil
		},
	}
}

// report tells of the request, once.
func (x *exchange) report(status int, code netrule.Code) {
	if x.reported || x.given.Requested == nil {
		return
	}
	x.reported = true
	host := x.target.Host
	if code == netrule.CodeHostMismatch {
		host = x.foreignHost()
	}
	path, _, _ := strings.Cut(x.r.RequestURI, "?")
	if _, rest, err := netrule.ParseAbsolute(path); err == nil {
		path = rest
	}
	x.given.Requested(proxy.InnerRequest{Method: x.r.Method, Host: host, Path: path, Status: status, Code: code})
}

// foreignHost gives the host that a request names instead of the tunnel's.
func (x *exchange) foreignHost() string {
	for _, name := range append([]string{x.r.Host}, x.r.Header["Host"]...) {
		named, behind, err := netrule.ParseAbsolute("https://" + name)
		if err != nil || behind != "" {
			return name
		}
		if named != x.target {
			return named.Host
		}
	}
	return x.target.Host // of another scheme
}
