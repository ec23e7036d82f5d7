package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"dshproxy/proxy/identity"
	"dshproxy/rules/live"
	"dshproxy/rules/tree"
)

// validateIdentity checks the entries with one another and with the listeners. Token files are not read yet.
func (s *settings) validateIdentity() error {
	var names []string
	for _, l := range s.listeners() {
		names = append(names, l.name)
	}
	for i := range s.identity.tokens {
		p := &s.identity.tokens[i]
		if name := p.entry.Listener; name != "" && !slices.Contains(names, name) {
			return p.fail(tree.DidYouMean(name, names), "identity.tokens[%d].listener: no listener is called %q", i, name)
		}
	}
	for i := range s.identity.listeners {
		p := &s.identity.listeners[i]
		if name := p.entry.Listener; !slices.Contains(names, name) {
			return p.fail(tree.DidYouMean(name, names), "identity.listeners[%d].listener: no listener is called %q", i, name)
		}
	}
	unread := 0
	_, err := s.book(func(string) (string, error) {
		unread++
		return fmt.Sprintf("a-token-that-is-not-read-%d", unread), nil
	})
	return err
}

// identityBook makes the book of clients. It reads the token files, so it is called anew for every reload.
func (s *settings) identityBook() (*identity.Book, error) { return s.book(readToken) }

func (s *settings) book(read func(path string) (string, error)) (*identity.Book, error) {
	i := &s.identity
	c := identity.Config{
		Peers: entries(i.peers), Certificates: entries(i.certificates), Sources: entries(i.sources), Listeners: entries(i.listeners),
		AllowAnonymous: s.allowAnonymous,
	}
	for at := range i.tokens {
		p := &i.tokens[at]
		t := p.entry.Token
		if p.entry.file != "" {
			text, err := read(p.entry.file)
			if err != nil {
				return nil, p.fail("the file holds the secret alone, and others must not read or change it", "identity.tokens[%d].tokenFile: %v", at, err)
			}
			t.Token = text
		}
		c.Tokens = append(c.Tokens, t)
	}
	for _, l := range s.listeners() {
		if l.onlyLocal() && !l.asksForCertificates() {
			c.Local = append(c.Local, l.name)
		}
	}
	b, err := identity.NewBook(c)
	var ee *identity.EntryError
	if errors.As(err, &ee) {
		return nil, i.located(ee)
	}
	return b, err
}

func entries[E any](list []placed[E]) []E {
	var out []E
	for _, p := range list {
		out = append(out, p.entry)
	}
	return out
}

// located gives an error of the book the place of its entry.
func (i *identitySettings) located(e *identity.EntryError) error {
	const format = "identity.%s[%d]: %s"
	switch e.List {
	case "tokens":
		return i.tokens[e.Index].fail("", format, e.List, e.Index, e.What)
	case "peers":
		return i.peers[e.Index].fail("", format, e.List, e.Index, e.What)
	case "certificates":
		return i.certificates[e.Index].fail("", format, e.List, e.Index, e.What)
	case "sources":
		return i.sources[e.Index].fail("", format, e.List, e.Index, e.What)
	default:
		return i.listeners[e.Index].fail("", format, e.List, e.Index, e.What)
	}
}

// identityWorkspaces gives the folders that identities name, each once.
func (s *settings) identityWorkspaces() []string {
	var out []string
	add := func(g *identity.Grant) {
		if g.Workspace != "" && !slices.Contains(out, g.Workspace) {
			out = append(out, g.Workspace)
		}
	}
	i := &s.identity
	for at := range i.tokens {
		add(&i.tokens[at].entry.Grant)
	}
	for at := range i.peers {
		add(&i.peers[at].entry.Grant)
	}
	for at := range i.certificates {
		add(&i.certificates[at].entry.Grant)
	}
	for at := range i.sources {
		add(&i.sources[at].entry.Grant)
	}
	for at := range i.listeners {
		add(&i.listeners[at].entry.Grant)
	}
	return out
}

// readCA reads the authority of inspected TLS.
func (s *settings) readCA() (cert, key []byte, err error) {
	if s.inspectCA == "" || s.inspectKey == "" {
		return nil, nil, &exitError{exitFailure, errors.New("inspect.domains needs inspect.caFile and inspect.keyFile"), "dshproxy ca init makes them"}
	}
	for _, path := range []string{s.inspectCA, s.inspectKey} {
		if err := live.CheckOwner(path); err != nil {
			return nil, nil, err
		}
	}
	if mode, open := readable(s.inspectKey, 0o044); open {
		return nil, nil, fmt.Errorf("%s: is readable by others (mode %04o)", s.inspectKey, mode)
	}
	if cert, err = live.ReadNamed(s.inspectCA, maxPEM); err != nil {
		return nil, nil, err
	}
	key, err = live.ReadNamed(s.inspectKey, maxPEM)
	return cert, key, err
}

// maxTokenFile is the size of a token file in bytes, larger than any token.
const maxTokenFile = 8 << 10

// readToken reads a token that is alone in its file; a line end behind it is not part of it.
func readToken(path string) (string, error) {
	if err := live.CheckOwner(path); err != nil {
		return "", err
	}
	if mode, open := readable(path, 0o004); open {
		return "", fmt.Errorf("%s: is readable by others (mode %04o)", path, mode)
	}
	text, err := live.ReadNamed(path, maxTokenFile)
	if err != nil {
		return "", err
	}
	token, _ := strings.CutSuffix(string(text), "\n")
	token, _ = strings.CutSuffix(token, "\r")
	return token, nil
}

// checkSecrecy refuses a settings file that holds a token and that others can read.
func (i *identitySettings) checkSecrecy(file string) error {
	for at := range i.tokens {
		p := &i.tokens[at]
		if p.entry.file != "" {
			continue
		}
		if mode, open := readable(file, 0o044); open {
			return p.fail("take the right to read from group and others, or put the token into a tokenFile",
				"identity.tokens[%d].token: stands in a file that others can read (mode %04o)", at, mode)
		}
	}
	return nil
}

// readable reports whether a file's mode has one of the bits. A file that cannot be looked at counts as open to all.
func readable(path string, bits os.FileMode) (os.FileMode, bool) {
	if runtime.GOOS == "windows" { // mode bits tell nothing there
		return 0, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, true
	}
	return info.Mode().Perm(), info.Mode().Perm()&bits != 0
}
