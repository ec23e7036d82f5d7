package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

// proxyAddr is where a client finds a proxy.
type proxyAddr struct {
	scheme string         // http, https or unix
	target netrule.Target // of http and https
	path   string         // of unix
	token  *proxyToken    // that stood in the URL
}

// url gives the address as clients write it, without a token.
func (p proxyAddr) url() string {
	if p.scheme == "unix" {
		return "unix:" + p.path
	}
	return p.scheme + "://" + p.target.Authority()
}

// withToken gives the URL with a token in its user-info (RFC 3986 §3.2.1), everything percent-encoded that is not
// unreserved.
func (p proxyAddr) withToken(t *proxyToken) string {
	if t == nil {
		return p.url()
	}
	return p.scheme + "://" + percentEncode(t.name) + ":" + percentEncode(t.secret) + "@" + p.target.Authority()
}

func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// parseProxyAddr reads http://host:port, https://host:port, unix:PATH or host:port. User-info gives a token. Errors never
// show the text, which may hold one.
func parseProxyAddr(text string) (proxyAddr, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" || strings.ContainsRune(path, 0) {
			return proxyAddr{}, errors.New("unix: needs a path")
		}
		return proxyAddr{scheme: "unix", path: path}, nil
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "http", text
	}
	scheme = strings.ToLower(scheme)
	if scheme != "http" && scheme != "https" {
		return proxyAddr{}, errors.New("want http://host:port, https://host:port or unix:PATH")
	}
	p := proxyAddr{scheme: scheme}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		token, err := tokenFromUserInfo(rest[:at])
		if err != nil {
			return proxyAddr{}, err
		}
		p.token, rest = token, rest[at+1:]
	}
	target, behind, err := netrule.ParseAbsolute(scheme + "://" + rest)
	if err != nil {
		return proxyAddr{}, err
	}
	if behind != "" && behind != "/" {
		return proxyAddr{}, errors.New("a proxy has no path")
	}
	p.target = reachable(target)
	return p, nil
}

// reachable gives an address that a client on this machine can connect to, for one that is listened on. A listener on
// every address has 127.0.0.1 also when it calls itself [::], and ::1 only where IPv6 is switched on.
func reachable(t netrule.Target) netrule.Target {
	if t.Addr.IsUnspecified() {
		t.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		t.Host = t.Addr.String()
	}
	return t
}

// parseListener reads an address as listeners have it: host:port, with an empty host for all, or unix:PATH.
func parseListener(address string) (proxyAddr, error) {
	if strings.HasPrefix(address, "unix:") {
		return parseProxyAddr(address)
	}
	host, port, err := splitHostPort(address)
	if err != nil {
		return proxyAddr{}, fmt.Errorf("%.80q is no listener's address", address)
	}
	if port == "0" {
		return proxyAddr{}, errPortZero
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost": // as Go listens on it; some clients try ::1 alone
		host = "127.0.0.1"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	target, err := netrule.ParseHTTPAuthority(host + ":" + port)
	if err != nil {
		return proxyAddr{}, err
	}
	return proxyAddr{scheme: "http", target: reachable(target)}, nil
}

var errPortZero = errors.New("the proxy listens on port 0, so that only it knows its port")

// proxyFlags say where the proxy is, and who asks.
type proxyFlags struct {
	proxy, readyFile     string
	tokenFile, tokenName string
}

func (f *proxyFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.proxy, "proxy", "", "the proxy: http://host:port, https://host:port or unix:PATH")
	c.Flags().StringVar(&f.readyFile, "ready-file", "", "file that serve --ready-file wrote")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with a line NAME:TOKEN that says who you are")
	c.Flags().StringVar(&f.tokenName, "token-name", "", "the name, when the file has the token alone")
}

const maxReadyFile = 64 << 10

// find gives the proxy's address: the flag, else the ready file, else the first listener of the settings. With
// environment, the proxy variables come before a listener that nobody has set.
func (f *proxyFlags) find(a *app, environment bool) (proxyAddr, error) {
	switch {
	case f.proxy != "" && f.readyFile != "":
		return proxyAddr{}, usageError("", "--proxy and --ready-file both name a proxy: give one")
	case f.proxy != "":
		p, err := parseProxyAddr(f.proxy)
		if err != nil {
			return p, usageError("", "--proxy: %w", err)
		}
		if p.token != nil {
			return p, usageError("every user can read the arguments of a program: give the token with --token-file", "--proxy: a token in the URL")
		}
		return p, nil
	case f.readyFile != "":
		return addressOfReadyFile(f.readyFile)
	}
	if err := a.settings.load(a.config, a.flags); err != nil {
		return proxyAddr{}, err
	}
	listener, err := parseListener(a.settings.listeners()[0].address)
	if environment && (err != nil || !a.settings.listens()) {
		if name, text := proxyVariable(os.Getenv); name != "" {
			p, err := parseProxyAddr(text)
			if err != nil {
				return p, usageError("name the proxy with --proxy", "%s: %w", name, err)
			}
			return p, nil
		}
	}
	if errors.Is(err, errPortZero) {
		return listener, usageError("start it with serve --ready-file FILE and give --ready-file FILE here, or name it with --proxy", "listen: %w", err)
	}
	if err != nil {
		return listener, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// listens reports whether somebody has said where the proxy listens.
func (s *settings) listens() bool {
	for _, key := range []string{"listen", "network.proxyBind", "network.proxyPort"} {
		if s.origins[key] != "default" {
			return true
		}
	}
	return false
}

// proxyVariable gives the first variable that names a proxy for tunnels. http_proxy is not among them: it is for
// requests that are not tunnelled.
func proxyVariable(getenv func(string) string) (name, value string) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		if value := getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

func addressOfReadyFile(path string) (proxyAddr, error) {
	text, err := live.ReadNamed(path, maxReadyFile)
	if err != nil {
		return proxyAddr{}, &exitError{exitFailure, fmt.Errorf("ready file: %w", err), "serve --ready-file FILE writes it once the proxy listens"}
	}
	var ready struct {
		Proxy string `json:"proxy"`
	}
	if err := json.Unmarshal(text, &ready); err != nil || ready.Proxy == "" {
		return proxyAddr{}, fmt.Errorf("ready file: %s has no address of a proxy", path)
	}
	p, err := parseListener(ready.Proxy)
	if err != nil {
		return p, fmt.Errorf("ready file: %s: %w", path, err)
	}
	return p, nil
}

// proxyToken is who a client says that it is (RFC 7617).
type proxyToken struct{ name, secret string }

// token reads the file of the flags; nil without one.
func (f *proxyFlags) token() (*proxyToken, error) {
	if f.tokenFile == "" {
		if f.tokenName != "" {
			return nil, usageError("", "--token-name needs --token-file")
		}
		return nil, nil
	}
	const maxToken = 4 << 10
	text, err := live.ReadNamed(f.tokenFile, maxToken)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	t := proxyToken{f.tokenName, line}
	if f.tokenName == "" {
		name, secret, ok := strings.Cut(line, ":")
		if !ok {
			return nil, usageError("write NAME:TOKEN, or give the name with --token-name", "token file: %s has no name", f.tokenFile)
		}
		t = proxyToken{name, secret}
	}
	if err := t.check(); err != nil {
		return nil, usageError("", "token file: %s: %w", f.tokenFile, err)
	}
	return &t, nil
}

// check refuses what Basic credentials cannot hold (RFC 7617 §2), without quoting it.
func (t proxyToken) check() error {
	switch {
	case t.name == "" || t.secret == "":
		return errors.New("an empty name or token")
	case strings.Contains(t.name, ":"):
		return errors.New("a colon in the name")
	case strings.ContainsFunc(t.name+t.secret, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("a control character; want one line")
	}
	return nil
}

func tokenFromUserInfo(userInfo string) (*proxyToken, error) {
	bad := errors.New("want NAME:TOKEN before the @")
	name, secret, ok := strings.Cut(userInfo, ":")
	if !ok {
		return nil, bad
	}
	var t proxyToken
	var err, err2 error
	t.name, err = url.PathUnescape(name)
	t.secret, err2 = url.PathUnescape(secret)
	if err != nil || err2 != nil {
		return nil, bad // the errors would quote the token
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return &t, nil
}
