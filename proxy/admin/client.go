package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	maxAnswer     = 64 << 20
	clientTimeout = time.Minute
)

// Client speaks to the API of a running proxy. It never goes through a proxy itself and follows no redirect, so that
// the token reaches the listener alone.
type Client struct {
	base  string
	addr  string
	token string
	http  *http.Client
}

// Dial makes a client for host:port or unix:PATH. It connects when it is first used. Close lets go of its connections.
func Dial(address, token string) *Client {
	network, target, base := "tcp", address, "http://"+address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, target, base = "unix", path, "http://localhost"
	} else if ap, err := netip.ParseAddrPort(address); err == nil && ap.Addr().IsUnspecified() {
		// A listener on every address is ours on loopback too, and knows that name.
		target = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String()
		base = "http://" + target
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, target)
		},
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     10 * time.Second,
	}
	return &Client{base: base, addr: address, token: token, http: &http.Client{
		Transport:     transport,
		Timeout:       clientTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get reads a path, such as /v1/status, into out, which may be nil. What the API refuses is an *Error.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

// Post sends in, or an empty object where it is nil, and reads the answer into out, which may be nil. What the API
// refuses is an *Error.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body := []byte("{}")
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("admin API: %w", err)
		}
	}
	return c.do(ctx, http.MethodPost, path, body, out)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("admin API at %s: %w", c.addr, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = errors.New("the answer is too large")
	}
	if err != nil {
		return fmt.Errorf("admin API at %s: %w", c.addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		return readError(resp.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("admin API at %s: %w", c.addr, err)
	}
	return nil
}

// readError gives the error of an answer, which may come from something else than a proxy of ours.
func readError(status int, text []byte) *Error {
	var body errorBody
	if err := json.Unmarshal(text, &body); err != nil || body.Error == nil || body.Error.Code == "" {
		return &Error{status, "unexpected_answer", fmt.Sprintf("status %d, and no error of this API", status), "is that the admin listener?"}
	}
	body.Error.Status = status
	return body.Error
}
