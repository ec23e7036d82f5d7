package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minToken  = 16 // bytes
	maxToken  = 4096
	maxName   = 128 // bytes
	maxAgents = 64  // of an entry
	maxUID    = 1<<32 - 2
)

// EntryError is an entry that a book cannot hold. It never tells a token.
type EntryError struct {
	List  string // the list: tokens, peers, certificates, sources or listeners
	Index int    // in the list, 0-based
	What  string // what is wrong
	Name  string // what the entry is called, or matches
}

// Error gives the entry and what is wrong with it.
func (e *EntryError) Error() string {
	return fmt.Sprintf("%s[%d] %q: %s", e.List, e.Index, e.Name, e.What)
}

// checkGrant tests name, agents and workspace.
func checkGrant(g *Grant) error {
	if err := checkName(g.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if len(g.Agents) > maxAgents {
		return fmt.Errorf("agents: more than %d", maxAgents)
	}
	for _, a := range g.Agents {
		if err := checkName(a); err != nil {
			return fmt.Errorf("agents: %w", err)
		}
	}
	return nil
}

// checkName keeps what is shown in records and on terminals printable.
func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("empty")
	case len(s) > maxName:
		return fmt.Errorf("longer than %d bytes", maxName)
	case !utf8.ValidString(s), strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("characters that cannot be printed")
	}
	return nil
}

func checkToken(t *Token) error {
	switch {
	case strings.Contains(t.Name, ":"):
		return errors.New("name: a colon, which ends the name in Basic credentials")
	case len(t.Token) < minToken:
		return fmt.Errorf("token: shorter than %d bytes", minToken)
	case len(t.Token) > maxToken:
		return fmt.Errorf("token: longer than %d bytes", maxToken)
	case strings.ContainsFunc(t.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("token: not printable ASCII without spaces")
	}
	return nil
}

// checkPrefix refuses networks that no address of a client is in: those are unmapped and have no zone.
func checkPrefix(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("no network")
	case p.Addr().Is4In6():
		return errors.New("an IPv4-mapped network; write it as IPv4")
	case p != p.Masked():
		return fmt.Errorf("bits below its length; write %s", p.Masked())
	}
	return nil
}
