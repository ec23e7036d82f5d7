package upstream

import (
	"fmt"
	"net/netip"
	"strings"
)

// Bypass is a list of targets that no parent is used for, in the grammar of NO_PROXY. Nil and the zero value match
// nothing.
type Bypass struct{ patterns []pattern }

// ParseBypass reads entries, each of which may be a list itself, separated by commas or blanks:
//
//   - everything
//     example.com           the name and its subdomains
//     .example.com          its subdomains only, as *.example.com
//     =example.com          the name only
//     192.0.2.1, 2001:db8::1, [2001:db8::1], 10.0.0.0/8, fd00::/8
//
// with :port behind any of them; IPv6 with a port stands in brackets. Addresses match literal targets only: no name is
// looked up for a bypass. Anything else is an error that quotes the entry.
func ParseBypass(entries ...string) (*Bypass, error) {
	b := &Bypass{}
	for _, list := range entries {
		for _, entry := range strings.FieldsFunc(list, isListSeparator) {
			p, err := parsePattern(entry)
			if err != nil {
				return nil, fmt.Errorf("bypass entry %.80q: %w", entry, err)
			}
			b.patterns = append(b.patterns, p)
		}
	}
	return b, nil
}

func isListSeparator(r rune) bool { return r == ',' || r == ' ' || r == '\t' }

// Matches reports whether a canonical target is in the list. addr is valid for a literal target, and then host is not
// looked at. What is not canonical matches nothing, not even *.
func (b *Bypass) Matches(host string, addr netip.Addr, port uint16) bool {
	s, ok := newSubject(host, addr, port)
	return ok && b.matches(s)
}

func (b *Bypass) matches(s subject) bool {
	if b == nil {
		return false
	}
	for i := range b.patterns {
		if b.patterns[i].matches(s) {
			return true
		}
	}
	return false
}
