package admin

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Server makes the server of the admin listener. Its Shutdown ends event streams at once and lets other requests end.
func Server(h http.Handler) *http.Server {
	stopping, stop := context.WithCancel(context.Background())
	s := limited(h)
	s.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(context.Background(), stoppingKey{}, stopping.Done())
	}
	s.RegisterOnShutdown(stop)
	// Without this, net/http answers OPTIONS * itself, before anybody asks for the token.
	s.DisableGeneralOptionsHandler = true
	return s
}

// limited makes a server with a limit on everything that a client can drag out.
func limited(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// stoppingKey finds the channel that is closed when a Server shuts down. Not the context of requests itself: that would
// cut off an edit of the rules half way.
type stoppingKey struct{}

// stopping gives that channel; nil, which never is closed, under another server.
func stopping(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(stoppingKey{}).(<-chan struct{})
	return c
}
