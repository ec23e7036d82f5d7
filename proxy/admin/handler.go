package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// Options are what the API needs to know.
type Options struct {
	// Backend is the proxy.
	Backend Backend
	// Token is asked for with every request. An empty one refuses every request.
	Token string
	// Hosts are values of Host that are accepted beside the listener's own: with a port they stand for themselves,
	// without one also with the listener's port. They may stand in an Origin too.
	Hosts []string
	// Addr is the address of the listener; nil leaves Hosts alone.
	Addr net.Addr
	// Log gets failures and what changes the proxy; nil means none.
	Log *slog.Logger
}

// Handler makes the API below /v1/. Every request, reads included, needs the token as a bearer (RFC 6750), a Host of
// the listener's own, and an Origin of the listener's own where it has one. Only POST changes anything. Errors are
// {"error": {"code", "message", "hint"?}}.
func Handler(o Options) http.Handler {
	a := &api{backend: o.Backend, guard: newGuard(o.Addr, o.Hosts, o.Token), log: o.Log}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.routes = map[string]route{
		"/v1/status":    get(func(url.Values) (any, error) { return a.backend.Status(), nil }),
		"/v1/decisions": get(a.decisions, "limit", "verdict", "host", "id"),
		"/v1/tunnels":   get(a.tunnels),
		"/v1/rules":     get(a.rules),
		"/v1/events":    {http.MethodGet, a.events},
		"/v1/check":     post(maxCallBody, a.check),
		"/v1/explain":   post(maxCallBody, a.explain),
		"/v1/reload":    post(maxBody, a.changing("reload", a.reload)),
		"/v1/stop":      post(maxBody, a.changing("stop", a.stop)),
		"/v1/resume":    post(maxBody, a.changing("resume", a.resume)),
		"/v1/allow":     post(maxBody, a.allow),
	}
	return a
}

type api struct {
	backend Backend
	guard   guard
	log     *slog.Logger
	routes  map[string]route
}

// route is what a path answers to.
type route struct {
	method string
	serve  func(http.ResponseWriter, *http.Request) error
}

// get makes a route that reads. It takes the named parameters, each once.
func get(answer func(url.Values) (any, error), params ...string) route {
	return route{http.MethodGet, func(w http.ResponseWriter, r *http.Request) error {
		query, err := readQuery(r, params)
		if err != nil {
			return err
		}
		v, err := answer(query)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, v)
	}}
}

// post makes a route that takes a JSON object of at most limit bytes.
func post[T any](limit int64, answer func(context.Context, *T) (any, error)) route {
	return route{http.MethodPost, func(w http.ResponseWriter, r *http.Request) error {
		if _, err := readQuery(r, nil); err != nil {
			return err
		}
		var in T
		if err := readBody(w, r, limit, &in); err != nil {
			return err
		}
		v, err := answer(r.Context(), &in)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, v)
	}}
}

func readQuery(r *http.Request, params []string) (url.Values, error) {
	if r.Method == http.MethodGet && r.ContentLength != 0 {
		return nil, badRequest("a GET has no body")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read")
	}
	for name, values := range query {
		if !slices.Contains(params, name) {
			return nil, badRequest("unknown parameter %q", name)
		}
		if len(values) > 1 {
			return nil, badRequest("the parameter %q stands twice", name)
		}
	}
	return query, nil
}

// ServeHTTP answers one request, whatever happens.
func (a *api) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: rw}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("the admin API panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a.fail(w, r, errors.New("panic"))
		}
	}()
	if err := a.serve(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) error {
	if err := a.guard.admit(r); err != nil {
		if err.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		return err
	}
	route, ok := a.routes[r.URL.Path]
	if !ok {
		return &Error{http.StatusNotFound, "not_found", "no such path", ""}
	}
	if r.Method != route.method {
		w.Header().Set("Allow", route.method)
		return &Error{http.StatusMethodNotAllowed, "method_not_allowed", "this path takes " + route.method, ""}
	}
	return route.serve(w, r)
}

// fail answers an error, as long as no other answer has begun.
func (a *api) fail(w *writer, r *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Status < 400 || e.Status > 599 {
		a.log.Error("the admin API failed", "path", r.URL.Path, "err", err)
		e = &Error{http.StatusInternalServerError, "internal_error", "an internal error; the log has more", ""}
	}
	if w.begun {
		// A stream that breaks off must not look whole.
		panic(http.ErrAbortHandler)
	}
	if err := writeJSON(w, e.Status, errorBody{e}); err != nil {
		a.log.Debug("an answer was not taken", "err", err)
	}
}

// writer knows whether an answer has begun.
type writer struct {
	http.ResponseWriter
	begun bool
}

func (w *writer) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// writeJSON answers a value. The value is made text as a whole first, so that one that cannot be becomes an error.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	text = append(text, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a caller that hung up needs no answer
	return nil
}

const (
	defaultDecisions = 100
	maxDecisions     = 1000
)

func (a *api) decisions(query url.Values) (any, error) {
	q := decisionlog.RingQuery{Limit: defaultDecisions, ID: query.Get("id"), Host: canonicalHost(query.Get("host")), Verdict: query.Get("verdict")}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDecisions {
			return nil, badRequest("limit: want a number from 1 to %d", maxDecisions)
		}
		q.Limit = n
	}
	if _, ok := netrule.ParseAction(q.Verdict); !ok && q.Verdict != "" {
		return nil, badRequest("verdict: want allow, deny or ask")
	}
	var out struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
	if ring := a.backend.Records(); ring != nil {
		out.Decisions = ring.Recent(q)
	}
	out.Decisions = notNil(out.Decisions)
	return out, nil
}

// canonicalHost gives a host as records have it; a text that is none stays, as those of broken requests do.
func canonicalHost(text string) string {
	if t, err := netrule.ParseURL(text); err == nil && text != "" {
		return t.Host
	}
	return text
}

// notNil makes an empty list of none, so that a reader always finds one.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *api) tunnels(url.Values) (any, error) {
	return struct {
		Tunnels []Tunnel `json:"tunnels"`
	}{notNil(a.backend.Tunnels())}, nil
}

func (a *api) rules(url.Values) (any, error) {
	rules := a.backend.Rules()
	rules.Rules = notNil(rules.Rules)
	return rules, nil
}

// nothing is the body of requests that say all by their path.
type nothing struct{}

// changing notes in the log what somebody makes the proxy do.
func (a *api) changing(what string, do func(context.Context) (any, error)) func(context.Context, *nothing) (any, error) {
	return func(ctx context.Context, _ *nothing) (any, error) {
		a.log.Info("asked by the admin API", "what", what)
		return do(ctx)
	}
}

func (a *api) reload(ctx context.Context) (any, error) { return a.backend.Reload(ctx) }

func (a *api) stop(ctx context.Context) (any, error) { return a.stopped(a.backend.Stop(ctx)) }

func (a *api) resume(ctx context.Context) (any, error) { return a.stopped(a.backend.Resume(ctx)) }

func (a *api) stopped(err error) (any, error) {
	return map[string]bool{"stopped": a.backend.Status().Stopped}, err
}

// allowRequest is the body of allow.
type allowRequest struct {
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Private bool   `json:"private"`
}

func (a *api) allow(ctx context.Context, in *allowRequest) (any, error) {
	t, err := exactTarget(in.Host, in.Port)
	if err != nil {
		return nil, err
	}
	a.log.Info("asked by the admin API", "what", "allow", "target", t.String(), "private", in.Private)
	return a.backend.Allow(ctx, t, in.Private)
}

// exactTarget takes a name or a literal: no pattern, no URL, no port beside the port.
func exactTarget(host string, port uint16) (netrule.Target, error) {
	const hint = "give host and port apart; wildcard rules are written by hand"
	if host == "" {
		return netrule.Target{}, badRequest("host is missing").hint(hint)
	}
	if strings.ContainsAny(host, "*?/=@\\%# \t\r\n") {
		return netrule.Target{}, badRequest("host: %q is no name and no address", host).hint(hint)
	}
	t, err := netrule.ParseURL(host)
	if err != nil || t.Port != 0 || t.Scheme != netrule.SchemeUnknown {
		return netrule.Target{}, badRequest("host: %q is no name and no address", host).hint(hint)
	}
	t.Scheme, t.Port = netrule.SchemeHTTPS, port
	return t, nil
}
