package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

const (
	handshakeTimeout = 10 * time.Second // for the connection, TLS, and the proxy's answer together
	maxAnswerHead    = 64 << 10
	maxAnswerBody    = 64 << 10 // of a refusal
	halfClosedWait   = 10 * time.Minute
)

func (a *app) connectCommand() *cobra.Command {
	var f proxyFlags
	var ca string
	c := &cobra.Command{
		Use:   "connect HOST PORT",
		Short: "Join stdin and stdout to a host through the proxy; for ssh's ProxyCommand",
		Long: "Join stdin and stdout to a host through the proxy. The proxy is that of --proxy, else of --ready-file, else\n" +
			"the first listener of the settings, else of HTTPS_PROXY or ALL_PROXY. Exit code 3 means that it refused.",
		Example: "  ssh -o ProxyCommand='dshproxy connect %h %p' git@example.com",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			target, err := connectTarget(args[0], args[1])
			if err != nil {
				return usageError("give a name or an address, and a port", "%w", err)
			}
			p, err := f.find(a, true)
			if err != nil {
				return err
			}
			token, err := f.token()
			if err != nil {
				return err
			}
			if token == nil {
				token = p.token
			}
			roots, err := readRoots(ca)
			if err != nil {
				return err
			}
			t := &clientTunnel{proxy: p, token: token, target: target, roots: roots, timeout: handshakeTimeout, halfClosed: halfClosedWait}
			return t.run(c.Context(), a.io)
		},
	}
	f.register(c)
	c.Flags().StringVar(&ca, "ca", "", "PEM file with authorities to trust too, for an https:// proxy")
	return c
}

// connectTarget reads a host, an IPv6 address with brackets or without, and a port.
func connectTarget(host, port string) (netrule.Target, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return netrule.ParseConnect(host + ":" + port)
}

// readRoots gives the system's authorities and those in a file; nil without one.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := live.ReadNamed(file, maxCAFile)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, usageError("", "--ca: %s has no certificate in PEM", file)
	}
	return pool, nil
}

// clientTunnel is one connection through a proxy.
type clientTunnel struct {
	proxy      proxyAddr
	token      *proxyToken
	target     netrule.Target
	roots      *x509.CertPool // of an https proxy; nil is the system's
	timeout    time.Duration  // of the handshake
	halfClosed time.Duration  // that stdin gets to end once the target has
}

// halfCloser is a connection whose writing side ends alone.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// run asks for the tunnel and moves bytes until the connection has ended. Nothing of stdin is read before the proxy
// has answered with success.
func (t *clientTunnel) run(ctx context.Context, io stdio) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	conn, err := t.dial(ctx)
	if err != nil {
		return t.failed("is dshproxy serve running there?", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	early, err := t.handshake(conn, io.err)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return t.relay(conn, early, io)
}

// failed is the error of a connection that came to nothing.
func (t *clientTunnel) failed(hint string, err error) error {
	return &exitError{exitFailure, fmt.Errorf("connect: %s: %w", escapeControls(t.proxy.url()), err), hint}
}

func (t *clientTunnel) dial(ctx context.Context) (halfCloser, error) {
	network, address := "tcp", t.proxy.target.Authority()
	if t.proxy.scheme == "unix" {
		network, address = "unix", t.proxy.path
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if t.proxy.scheme == "https" {
		conn := tls.Client(raw, &tls.Config{ServerName: t.proxy.target.Host, RootCAs: t.roots, MinVersion: tls.VersionTLS12})
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, fmt.Errorf("TLS: %w", err)
		}
		return conn, nil
	}
	conn, ok := raw.(halfCloser)
	if !ok {
		raw.Close()
		return nil, errors.New("a connection that cannot be half-closed")
	}
	return conn, nil
}

// handshake asks for a tunnel (RFC 9110 §9.3.6) and gives the bytes that came behind the answer's head. The text of a
// refusal goes to errs.
func (t *clientTunnel) handshake(conn net.Conn, errs io.Writer) ([]byte, error) {
	authority := t.target.Authority()
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\nUser-Agent: dshproxy/" + version + "\r\n"
	if t.token != nil {
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(t.token.name+":"+t.token.secret)) + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	limit := &io.LimitedReader{R: conn, N: maxAnswerHead}
	r := bufio.NewReader(limit)
	resp, err := readFinal(r)
	if err != nil {
		switch {
		case limit.N == 0:
			err = fmt.Errorf("an answer's head of over %d bytes", maxAnswerHead)
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("no answer within %s", t.timeout)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("it closed the connection without an answer")
		default:
			err = errors.New(escapeControls(err.Error())) // it quotes what came
		}
		return nil, t.failed("is that a proxy, and is its scheme right?", err)
	}
	if resp.StatusCode/100 == 2 {
		// Nothing frames a tunnel: length and coding of the answer are ignored, and its body is the target's first bytes.
		early, _ := r.Peek(r.Buffered())
		return bytes.Clone(early), nil
	}
	defer resp.Body.Close()
	limit.N = math.MaxInt64
	return nil, refused(resp, errs)
}

// readFinal reads the first answer that is not an interim one. The cap on the head bounds their number.
func readFinal(r *bufio.Reader) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
}

// refused prints what the proxy says about its refusal, and ends the command accordingly.
func refused(resp *http.Response, errs io.Writer) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBody)) // what has come until an error is still worth reading
	for line := range strings.SplitSeq(strings.TrimRight(string(body), "\r\n"), "\n") {
		if len(body) > 0 {
			fmt.Fprintln(errs, escapeControls(strings.TrimSuffix(line, "\r")))
		}
	}
	e := &exitError{exitFailure, fmt.Errorf("connect: the proxy answers %s", escapeControls(resp.Status)), ""}
	switch resp.StatusCode {
	case http.StatusForbidden:
		e.code = exitDeny
	case http.StatusProxyAuthRequired:
		e.hint = "say who you are with --token-file"
	}
	return e
}

// relay moves bytes both ways and passes half-closes on: the end of stdin ends the writing side of the connection, and
// the end of the connection closes stdout. It returns once both have ended; the error is that of the connection.
func (t *clientTunnel) relay(conn halfCloser, early []byte, io stdio) error {
	up, down := make(chan error, 1), make(chan error, 1)
	go func() { up <- sendAll(conn, io.in) }()
	go func() { down <- receiveAll(io.out, early, conn) }()
	sent, received := false, false
	var late <-chan time.Time
	for {
		select {
		case err := <-up:
			if received {
				return nil // an error says only that the target takes no more
			}
			// A broken pipe says that the connection has ended before; how, the other direction knows.
			if err != nil && !errors.Is(err, syscall.EPIPE) {
				return fmt.Errorf("connect: %w", err)
			}
			sent = true
		case err := <-down:
			if err != nil || sent {
				return wrapped("connect", err)
			}
			received, late = true, time.After(t.halfClosed)
		case <-late:
			return nil
		}
	}
}

// wrapped says what failed; nil stays nil.
func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func sendAll(conn halfCloser, in io.Reader) error {
	if _, err := io.Copy(conn, in); err != nil {
		return err
	}
	_ = conn.CloseWrite() // it fails where the connection has ended, which the other direction tells
	return nil
}

func receiveAll(out io.Writer, early []byte, conn net.Conn) error {
	if _, err := out.Write(early); err != nil {
		return err
	}
	if _, err := io.Copy(out, conn); err != nil {
		return err
	}
	if c, ok := out.(io.Closer); ok {
		return c.Close() // so that whoever reads sees the end
	}
	return nil
}
