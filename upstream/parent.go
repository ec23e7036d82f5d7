package upstream

import (
	"crypto/tls"
	"encoding/base64"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Parent is another proxy that connections may be chained through. ParseParent makes one; it is not changed once
// connections use it. However it is printed, the password is not shown.
type Parent struct {
	// TLS is cloned for each connection to an https parent, to pin its CA with RootCAs or give a client certificate;
	// nil means the system's roots. An empty ServerName means the parent's host. The certificate is verified always,
	// whatever InsecureSkipVerify says.
	TLS *tls.Config

	scheme string
	host   string
	addr   netip.Addr // of a literal host
	port   uint16
	login  func() login // a function, into which no formatting and no dumper looks; nil for none
}

// login is what a parent wants to be shown.
type login struct{ user, password string }

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeSOCKS = "socks5"

	maxParentText = 4096 // bytes of a URL or a login
	maxSOCKSText  = 255  // bytes of a user or password, RFC 1929 §2
)

// ParseParent reads scheme://[user:password@]host[:port] with http, https, socks5 or socks5h; the last two are the same,
// for names are never resolved here. The port is 80, 443 or 1080 unless given. User and password are percent-decoded.
// A path other than "/", a query and a fragment are refused. Errors never quote the text, which may hold a password.
func ParseParent(text string) (*Parent, error) {
	fail := func(why string) (*Parent, error) { return nil, textError("parent proxy: " + why) }
	if err := checkText(text); err != nil {
		return fail(err.Error())
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return fail("no scheme; want http://, https:// or socks5:// before host:port")
	}
	p := &Parent{scheme: strings.ToLower(scheme)}
	switch p.scheme {
	case schemeHTTP:
		p.port = 80
	case schemeHTTPS:
		p.port = 443
	case schemeSOCKS, "socks5h":
		p.scheme, p.port = schemeSOCKS, 1080
	default:
		return fail("an unknown scheme; want http, https, socks5 or socks5h")
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, `/?#\`) {
		return fail("a path, query or fragment (inside a password, / ? # and \\ are percent-encoded)")
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		l, err := parseUserinfo(rest[:at])
		if err == nil {
			err = p.setLogin(l)
		}
		if err != nil {
			return fail(err.Error())
		}
		rest = rest[at+1:]
	}
	if err := p.setAuthority(rest); err != nil {
		return fail(err.Error())
	}
	return p, nil
}

// checkText refuses what no URL holds: spaces, control bytes, and bytes that are not ASCII.
func checkText(text string) error {
	switch {
	case text == "":
		return textError("an empty URL")
	case len(text) > maxParentText:
		return textError("a URL of over 4096 bytes")
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f {
			return textError("a blank, a control byte or a byte that is not ASCII")
		}
	}
	return nil
}

// setAuthority reads host[:port].
func (p *Parent) setAuthority(text string) (err error) {
	host := text
	if colon := strings.LastIndexByte(text, ':'); colon > strings.LastIndexByte(text, ']') {
		host = text[:colon]
		if p.port, err = parsePort(text[colon+1:]); err != nil {
			return err
		}
	}
	if strings.Contains(host, ":") && host[0] != '[' {
		return textError("more than one colon (an IPv6 address needs brackets)")
	}
	p.host, p.addr, err = parseHost(host)
	return err
}

// parseUserinfo reads user[:password], percent-decoded (RFC 3986 §3.2.1).
func parseUserinfo(text string) (login, error) {
	user, password, _ := strings.Cut(text, ":")
	var l login
	var err error
	if l.user, err = url.PathUnescape(user); err == nil {
		l.password, err = url.PathUnescape(password)
	}
	if err != nil { // it quotes a part of the text
		return login{}, textError("a malformed percent-escape in the credentials")
	}
	return l, nil
}

func (p *Parent) setLogin(l login) error {
	switch {
	case l.user == "" && (l.password == "" || p.scheme == schemeSOCKS):
		return textError("credentials without a user")
	case strings.Contains(l.user, ":"):
		return textError("a colon in the user (RFC 7617 §2)")
	case p.scheme == schemeSOCKS && max(len(l.user), len(l.password)) > maxSOCKSText:
		return textError("a user or password of over 255 bytes (RFC 1929 §2)")
	case hasControl(l.user) || hasControl(l.password):
		return textError("a control byte in the credentials")
	}
	p.login = func() login { return l }
	return nil
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// WithCredentials gives a copy with the credentials of a text "user:password", as a file holds them: raw, and with one
// line end behind them at most. They replace those of the URL. Errors never quote the text.
func (p *Parent) WithCredentials(text string) (*Parent, error) {
	fail := func(why string) (*Parent, error) { return nil, textError("credentials of a parent proxy: " + why) }
	if len(text) > maxParentText {
		return fail("over 4096 bytes")
	}
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	user, password, ok := strings.Cut(text, ":")
	if !ok {
		return fail("want one line user:password")
	}
	out := *p
	if err := out.setLogin(login{user, password}); err != nil {
		return fail(err.Error())
	}
	return &out, nil
}

// Scheme gives "http", "https" or "socks5".
func (p *Parent) Scheme() string { return p.scheme }

// Host gives the canonical name, or the text of the address without brackets.
func (p *Parent) Host() string { return p.host }

// Port gives the port, never 0.
func (p *Parent) Port() uint16 { return p.port }

// IsHTTP reports whether plain requests can be forwarded to it in absolute-form (RFC 9112 §3.2.2).
func (p *Parent) IsHTTP() bool { return p.scheme == schemeHTTP || p.scheme == schemeHTTPS }

// Is reports whether a canonical target is the parent itself, as far as that is known without a lookup. addr is valid for
// a literal target only.
func (p *Parent) Is(host string, addr netip.Addr, port uint16) bool {
	if p.port != port {
		return false
	}
	if addr.IsValid() {
		return p.addr == addr.Unmap() || isLocalhost(p.host) && addr.Unmap().IsLoopback()
	}
	return p.host == host || isLocalhost(host) && (isLocalhost(p.host) || p.addr.IsLoopback())
}

// Authorization gives the value of Proxy-Authorization (RFC 7617), which is a secret; empty without credentials and for
// SOCKS.
func (p *Parent) Authorization() string {
	if p.login == nil || !p.IsHTTP() {
		return ""
	}
	l := p.login()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))
}

// String gives the URL with *** for the password, or for the user when there is no password, for then it is a token.
func (p *Parent) String() string {
	if p == nil {
		return "none"
	}
	who := ""
	if p.login != nil {
		if who = "***@"; p.login().password != "" {
			who = url.User(p.login().user).String() + ":***@"
		}
	}
	host := p.host
	if p.addr.Is6() {
		host = "[" + host + "]"
	}
	return p.scheme + "://" + who + host + ":" + strconv.Itoa(int(p.port))
}

// GoString is String, so that %#v shows no password.
func (p *Parent) GoString() string { return p.String() }

// MarshalText gives String, so that no encoder looks inside.
func (p *Parent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// tlsConfig is the hook's with what is not negotiable.
func (p *Parent) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.TLS != nil {
		c = p.TLS.Clone()
	}
	if c.ServerName == "" {
		c.ServerName = p.host
	}
	c.InsecureSkipVerify = false
	c.NextProtos = []string{"http/1.1"} // what is spoken, so that no parent begins HTTP/2
	return c
}
