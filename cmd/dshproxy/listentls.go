package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"dshproxy/rules/live"
)

// listenerTLS keeps the certificate of a listener and reads it again when its files change. A change that does not load
// leaves the old one.
type listenerTLS struct {
	files listenTLS
	log   *slog.Logger

	mu      sync.Mutex
	current *tls.Config
	stamp   string
	looked  time.Time
}

// certificatesEvery is how often the files are looked at, at most.
const certificatesEvery = time.Second

// newListenerTLS loads the files for the first time.
func newListenerTLS(files listenTLS, log *slog.Logger) (*listenerTLS, error) {
	t := &listenerTLS{files: files, log: log}
	var err error
	if t.current, err = t.load(); err != nil {
		return nil, err
	}
	t.stamp, t.looked = t.signature(), time.Now()
	return t, nil
}

// config is what a listener speaks TLS with: each handshake asks for the certificate of now.
func (t *listenerTLS) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.now(), nil }}
}

func (t *listenerTLS) now() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.looked) < certificatesEvery {
		return t.current
	}
	t.looked = time.Now()
	stamp := t.signature()
	if stamp == t.stamp {
		return t.current
	}
	t.stamp = stamp
	next, err := t.load()
	if err != nil {
		t.log.Error("a changed certificate does not load; the old one stays", "err", err)
		return t.current
	}
	t.log.Info("certificate reloaded", "file", t.files.cert)
	t.current = next
	return next
}

func (t *listenerTLS) load() (*tls.Config, error) {
	for _, path := range []string{t.files.cert, t.files.key} {
		if err := live.CheckOwner(path); err != nil {
			return nil, err
		}
	}
	if mode, open := readable(t.files.key, 0o004); open {
		return nil, fmt.Errorf("%s: is readable by others (mode %04o)", t.files.key, mode)
	}
	cert, err := live.ReadNamed(t.files.cert, maxPEM)
	if err != nil {
		return nil, err
	}
	key, err := live.ReadNamed(t.files.key, maxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", t.files.cert, t.files.key, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if t.files.clientCA != "" {
		if c.ClientCAs, err = readAuthorities(t.files.clientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven // who has none is judged by what else it proves
	}
	return c, nil
}

func (t *listenerTLS) signature() string {
	out := ""
	for _, path := range []string{t.files.cert, t.files.key, t.files.clientCA} {
		if info, err := os.Stat(path); err == nil {
			out += fmt.Sprintf("%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return out
}
