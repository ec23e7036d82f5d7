package inspect

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"

	"dshproxy/netrule"

	"github.com/elazarl/goproxy"
)

var errNoTransport = errors.New("no transport but that of a tunnel")

// newGoproxy makes the request engine: handlers that let nothing pass that is not admitted, on a request's way to the
// origin and back. It is made without its constructor, which reads proxies from the environment and skips the
// verification of certificates; every way out that it has by itself is closed here.
func newGoproxy(errors *log.Logger) *goproxy.ProxyHttpServer {
	noDial := func(string, string) (net.Conn, error) { return nil, errNoTransport }
	p := &goproxy.ProxyHttpServer{
		Logger:             errors,
		NonproxyHandler:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		KeepAcceptEncoding: true,
		ConnectDial:        noDial,
		Tr: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errNoTransport
		}},
	}
	p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host // without an answer it would accept
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		x := exchangeOf(r)
		if x == nil {
			return r, (&refusal{code: netrule.CodeInternalError}).response(r, "")
		}
		if refused := x.admit(r); refused != nil {
			return r, x.refuse(refused)
		}
		ctx.RoundTripper = x
		return r, nil
	})
	p.OnResponse().DoFunc(func(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
		x := exchangeOf(ctx.Req)
		switch {
		case x == nil, x.refused:
			return resp
		case resp == nil:
			return x.refuse(x.failure(ctx.Error))
		default:
			return x.accept(resp)
		}
	})
	return p
}

type exchangeKey struct{}

// exchangeOf gives the exchange that a request belongs to, or nil.
func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}
