package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// listenAddr is an entry of listen.
type listenAddr struct {
	name, address string
	mode          fs.FileMode // of a unix socket
	group         string      // of a unix socket: a name or a number; empty leaves it
	protocols     []string    // http, socks5; nil is both
	tls           *listenTLS  // nil is none
	proxyProtocol []netip.Prefix
}

// listenTLS names the files of a listener with TLS.
type listenTLS struct {
	cert, key string
	clientCA  string // empty: clients are not asked for certificates
}

// isUnix reports whether it is a socket in the file system.
func (l *listenAddr) isUnix() bool { return strings.HasPrefix(l.address, "unix:") }

// onlyLocal reports whether all of its clients are on this machine. A load balancer on this machine brings others.
func (l *listenAddr) onlyLocal() bool { return isLocal(l.address) && len(l.proxyProtocol) == 0 }

// asksForCertificates reports whether clients are asked for a certificate. Nobody is anonymous there by being local.
func (l *listenAddr) asksForCertificates() bool { return l.tls != nil && l.tls.clientCA != "" }

// defaultListen is the entry at a place in the list, before it is read.
func defaultListen(i int) listenAddr {
	l := listenAddr{name: "proxy", mode: 0o600}
	if i > 0 {
		l.name = fmt.Sprintf("proxy%d", i+1)
	}
	return l
}

const listenHint = "addresses of the proxy: host:port or unix:PATH"

type listenValue []listenAddr

func (v *listenValue) set(s string) error {
	var out []listenAddr
	for i, s := range strings.Split(s, ",") {
		if err := checkListen(s); err != nil {
			return err
		}
		l := defaultListen(i)
		l.address = s
		out = append(out, l)
	}
	*v = out
	return nil
}

// decode reads a list whose items are addresses or mappings.
func (v *listenValue) decode(d decoder, path string, n *yaml.Node) error {
	var out []listenAddr
	err := d.list(path, listenHint, n, func(path string, n *yaml.Node) error {
		l := defaultListen(len(out))
		var err error
		switch item := tree.Resolve(n); item.Kind {
		case tree.String:
			err = d.setting(setting{value: (*addressValue)(&l.address), doc: listenHint}, path, n)
		case tree.Map:
			err = l.decode(d, path, n)
		default:
			err = d.fail(n, listenHint, "%s: want an address or a mapping with name and address", path)
		}
		out = append(out, l)
		return err
	})
	if err == nil {
		*v = out
	}
	return err
}

// keys lists every key of a listener, and where its value goes.
func (l *listenAddr) keys() []setting {
	return []setting{
		{"name", (*nameValue)(&l.name), "of the listener, in records and metrics"},
		{"address", (*addressValue)(&l.address), listenHint},
		{"mode", (*modeValue)(&l.mode), "permissions of a unix socket"},
		{"group", (*groupValue)(&l.group), "group of a unix socket, a name or a number"},
		{"protocols", &wordsValue{&l.protocols, []string{"http", "socks5"}}, "what is spoken: http, socks5, or both"},
		{"tls", &tlsValue{&l.tls}, "certificate and key of the listener"},
		{"proxyProtocol", (*prefixesValue)(&l.proxyProtocol), "load balancers that say by the PROXY protocol who their clients are"},
	}
}

func (l *listenAddr) decode(d decoder, path string, n *yaml.Node) error {
	has, err := d.mapping(path, n, l.keys())
	switch {
	case err != nil:
		return err
	case !has["address"]:
		return d.fail(n, listenHint, "%s: needs an address", path)
	case !l.isUnix() && (has["mode"] || has["group"]):
		return d.fail(n, "only a unix socket has permissions", "%s: mode and group are of no use on %s", path, l.address)
	case l.isUnix() && len(l.proxyProtocol) > 0:
		return d.fail(n, "list the networks of your load balancers on a TCP listener", "%s: proxyProtocol is of no use on a unix socket", path)
	}
	return nil
}

func (v *listenValue) String() string {
	var out []string
	for _, l := range *v {
		text := l.name + "=" + l.address
		if l.protocols != nil {
			text += " " + strings.Join(l.protocols, "+")
		}
		if l.tls != nil {
			text += " tls"
		}
		if l.asksForCertificates() {
			text += " clientCA"
		}
		if len(l.proxyProtocol) > 0 {
			text += " proxyProtocol"
		}
		out = append(out, text)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// addressValue is an address to listen on.
type addressValue string

func (v *addressValue) set(s string) error {
	if err := checkListen(s); err != nil {
		return err
	}
	*v = addressValue(s)
	return nil
}
func (v *addressValue) String() string { return string(*v) }

// nameValue is a text that is not empty.
type nameValue string

func (v *nameValue) set(s string) error {
	if s == "" {
		return errors.New("want a name")
	}
	*v = nameValue(s)
	return nil
}
func (v *nameValue) String() string { return string(*v) }

// modeValue is the permissions of a file, in octal.
type modeValue fs.FileMode

func (v *modeValue) set(text string) error {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 {
		return errors.New("want permissions such as \"0660\"")
	}
	*v = modeValue(mode)
	return nil
}
func (v *modeValue) String() string { return fmt.Sprintf("%04o", fs.FileMode(*v)) }

// decode takes a number as it is written: 0660 and 0o660 mean the same here.
func (v *modeValue) decode(d decoder, path string, n *yaml.Node) error {
	item := tree.Resolve(n)
	text := item.Text
	if item.Kind == tree.Number {
		text = strings.TrimPrefix(item.Node.Value, "0o")
	}
	if err := v.set(text); err != nil {
		return d.fail(n, "permissions of a unix socket", "%s: %v", path, err)
	}
	return nil
}

// groupValue is a group by name or number.
type groupValue string

func (v *groupValue) set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if s == "" || err == nil && strconv.FormatUint(n, 10) != s || err != nil && strings.ContainsAny(s[:1], "0123456789-+.") {
		return errors.New("want the name or the number of a group")
	}
	*v = groupValue(s)
	return nil
}
func (v *groupValue) String() string { return string(*v) }

// wordsValue is a list of some of the words.
type wordsValue struct {
	field *[]string
	words []string
}

func (v *wordsValue) set(s string) error { return v.setList([]string{s}) }

func (v *wordsValue) setList(items []string) error {
	var out []string
	for _, s := range items {
		switch {
		case !slices.Contains(v.words, s):
			return fmt.Errorf("want some of %s, not %q", strings.Join(v.words, ", "), s)
		case slices.Contains(out, s):
			return fmt.Errorf("%s stands there twice", s)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return fmt.Errorf("an empty list; leave the key out for %s", strings.Join(v.words, " and "))
	}
	*v.field = out
	return nil
}
func (v *wordsValue) String() string { return "[" + strings.Join(*v.field, ", ") + "]" }

// tlsValue is the tls of a listener.
type tlsValue struct{ field **listenTLS }

// keys lists every key of tls. dir is what relative paths are relative to.
func (t *listenTLS) keys(dir string) []setting {
	return []setting{
		{"cert", &pathValue{&t.cert, dir}, "PEM file of the listener's certificate and those that it is signed by"},
		{"key", &pathValue{&t.key, dir}, "PEM file of its key"},
		{"clientCA", &pathValue{&t.clientCA, dir}, "PEM file of the authorities that sign the certificates of clients"},
	}
}

func (v *tlsValue) set(string) error { return errors.New("want a mapping with cert and key") }
func (v *tlsValue) String() string   { return "" }

func (v *tlsValue) decode(d decoder, path string, n *yaml.Node) error {
	var t listenTLS
	has, err := d.mapping(path, n, t.keys(d.dir()))
	if err != nil {
		return err
	}
	if !has["cert"] || !has["key"] {
		return d.fail(n, "name both files", "%s: needs cert and key", path)
	}
	*v.field = &t
	return nil
}

// checkListen tests the shape of an address to listen on.
func checkListen(s string) error {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return errors.New("unix: needs a path")
		}
		return nil
	}
	_, port, err := splitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q: want host:port or unix:PATH", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q: want a port from 0 to 65535", s)
	}
	return nil
}

// validateListeners checks what the list shows together with the rest. A proxy that anybody reaches is started only when
// that is said in so many words.
func (s *settings) validateListeners() error {
	names := map[string]bool{}
	for _, l := range s.listeners() {
		if names[l.name] {
			return &exitError{exitFailure, fmt.Errorf("listen: two listeners are called %q", l.name), "give each listener a name of its own"}
		}
		names[l.name] = true
		if s.allowAnonymous || l.onlyLocal() || l.asksForCertificates() || s.identity.asks() {
			continue
		}
		return &exitError{
			exitFailure, fmt.Errorf("listen: %s is reachable from other machines and nobody is asked who they are", l.address),
			"add identity.tokens, or set identity.allowAnonymous: true if everybody who reaches it may use it",
		}
	}
	return nil
}
