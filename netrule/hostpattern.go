package netrule

import (
	"errors"
	"net/netip"
	"strings"

	"dshproxy/netrule/glob"
)

type hostKind uint8

const (
	hostExact      hostKind = iota // that name only
	hostSubtree                    // the name and everything under it
	hostSubdomains                 // everything under the name
	hostAny                        // every host
	hostGlob                       // a glob over the whole host text
	hostLiteral                    // one address, in every spelling
	hostLabels                     // a glob a label
)

// HostPattern is a compiled host pattern, free of any rule language. The zero HostPattern matches nothing.
type HostPattern struct {
	kind hostKind
	text string // as written
	name string
	addr netip.Addr
	glob *glob.Glob

	labels []*glob.Glob
	deep   bool // more labels may stand before them, and one must
}

// PatternError is a pattern that does not compile or could never match, and what to write instead.
type PatternError struct {
	Pattern, Why, Hint string
}

func (e *PatternError) Error() string { return e.Why }

// ParseHostPattern reads a pattern of the dsh format: a plain name covers itself and its subdomains, "*.x" and ".x"
// cover subdomains only, "=x" is exactly x, other globs run over the whole host, an address matches in every spelling.
// maxStars is as in glob.Options. Errors are of type *PatternError.
func ParseHostPattern(pattern string, maxStars int) (HostPattern, error) {
	p := HostPattern{text: pattern}
	text, exact := strings.CutPrefix(pattern, "=")
	text = strings.TrimRight(text, ".")
	if err := checkHostPattern(pattern, text); err != nil {
		return HostPattern{}, err
	}
	if exact && glob.HasMeta(strings.Trim(text, "[]")) {
		return HostPattern{}, &PatternError{pattern, "an exact host (=) takes no wildcard", "drop the = or the wildcard"}
	}
	if strings.HasPrefix(text, ".") && !exact {
		text = "*" + text
	}
	bracketed := strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]")
	if bracketed {
		addr, err := parseIPv6(text[1 : len(text)-1])
		if err != nil {
			return HostPattern{}, &PatternError{pattern, "brackets around a whole host that is no IPv6 address", "a character class cannot be the whole host"}
		}
		p.kind, p.addr = hostLiteral, addr
		return p, nil
	}
	if glob.HasMeta(text) {
		return p.parseGlob(text, maxStars)
	}
	return p.parsePlain(text, exact)
}

// checkHostPattern refuses what no canonical host can match, saying what was probably meant.
func checkHostPattern(pattern, text string) error {
	fail := func(why, hint string) error { return &PatternError{pattern, why, hint} }
	switch {
	case strings.Trim(text, ".") == "":
		return fail("network domain patterns must be non-empty", "")
	case strings.Contains(text, "://"):
		return fail("a host pattern takes no scheme", "write the host alone and use schemes:")
	case strings.ContainsAny(text, "/#"):
		return fail("a host pattern takes no path or prefix length", "write the host alone; address ranges go into ips:")
	case strings.ContainsAny(text, "@"):
		return fail("a host pattern takes no user name", "write the host alone")
	case strings.Contains(text, "%"):
		return fail("a host pattern takes no percent-escape", "write the character itself")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fail("a host pattern takes no white space or control character", "")
	}
	bare := strings.Trim(text, "[]")
	if colon := strings.IndexByte(bare, ':'); colon >= 0 && strings.Trim(lowerASCII(bare), "0123456789abcdef:.*?[]!^-\\") != "" ||
		colon >= 0 && strings.Count(bare, ":") == 1 && !glob.HasMeta(bare) {
		return fail("a host pattern takes no port", "write the host alone and use ports:")
	}
	return nil
}

func (p HostPattern) parseGlob(text string, maxStars int) (HostPattern, error) {
	// Compile first, so that the star cap and the syntax hold for every shape alike.
	ascii, err := mapPatternLabels(text)
	if err != nil {
		return HostPattern{}, &PatternError{p.text, err.Error(), "write labels with wildcards in their xn-- form"}
	}
	g, err := glob.Compile(ascii, glob.Options{Fold: true, MaxStars: maxStars})
	if err != nil {
		return HostPattern{}, &PatternError{p.text, whyGlob(err), ""}
	}
	if strings.HasPrefix(ascii, "[") {
		return HostPattern{}, &PatternError{p.text, "a host pattern cannot start with a character class", ""}
	}
	if strings.Trim(ascii, "*") == "" {
		p.kind = hostAny
		return p, nil
	}
	for _, prefix := range []string{"*.", "**."} {
		if name, ok := strings.CutPrefix(ascii, prefix); ok && !glob.HasMeta(name) {
			if checkName(name) == nil && !endsInNumber(name) {
				p.kind, p.name = hostSubdomains, name
				return p, nil
			}
		}
	}
	p.kind, p.glob = hostGlob, g
	return p, nil
}

// mapPatternLabels brings the labels without wildcards to their canonical form.
func mapPatternLabels(text string) (string, error) {
	text = lowerASCII(text)
	if isASCII(text) {
		return text, nil
	}
	labels := strings.Split(text, ".")
	for i, label := range labels {
		if isASCII(label) {
			continue
		}
		if glob.HasMeta(label) {
			return "", hostError("a label mixes wildcards with letters outside ASCII, and no host has those")
		}
		mapped, err := mapLabels(label)
		if err != nil {
			return "", err
		}
		labels[i] = mapped
	}
	return strings.Join(labels, "."), nil
}

func (p HostPattern) parsePlain(text string, exact bool) (HostPattern, error) {
	if strings.Count(text, ":") > 1 {
		addr, err := parseIPv6(text)
		if err != nil {
			return HostPattern{}, &PatternError{p.text, "a host pattern with colons that is no IPv6 address", ""}
		}
		p.kind, p.addr = hostLiteral, addr
		return p, nil
	}
	name, addr, err := browserHost(text)
	if err != nil {
		return HostPattern{}, &PatternError{p.text, "no host can match it: " + err.Error(), ""}
	}
	switch {
	case addr.IsValid():
		p.kind, p.addr = hostLiteral, addr
	case exact:
		p.kind, p.name = hostExact, name
	default:
		p.kind, p.name = hostSubtree, name
	}
	return p, nil
}

// String returns the pattern as written.
func (p HostPattern) String() string { return p.text }

// Wildcard reports whether the pattern holds a wildcard, and so names no host of its own.
func (p HostPattern) Wildcard() bool {
	return p.kind == hostAny || p.kind == hostGlob || p.kind == hostSubdomains || p.kind == hostLabels
}

// Apex gives the name that a pattern without wildcard, or "*.name", is about; empty for globs and addresses.
func (p HostPattern) Apex() string { return p.name }

// Exact reports whether the pattern covers one host only.
func (p HostPattern) Exact() bool { return p.kind == hostExact || p.kind == hostLiteral }

// Any reports whether the pattern covers every host.
func (p HostPattern) Any() bool { return p.kind == hostAny }

// matches tests a target. allowsLiterals is false in an allow rule without ips: there a wildcard does not reach
// addresses, which have no name to be trusted.
func (p HostPattern) matches(t Target, allowsLiterals bool) bool {
	if t.IsLiteral() {
		switch p.kind {
		case hostLiteral:
			return p.addr == t.Addr
		case hostAny:
			return allowsLiterals
		case hostGlob:
			return allowsLiterals && p.glob.Match(t.Host)
		default:
			return false
		}
	}
	switch p.kind {
	case hostExact:
		return p.name != "" && t.Host == p.name
	case hostSubtree:
		return t.Host == p.name || isUnder(t.Host, p.name)
	case hostSubdomains:
		return isUnder(t.Host, p.name)
	case hostAny:
		return t.Host != ""
	case hostGlob:
		return p.glob.Match(t.Host)
	case hostLabels:
		return p.labelsMatch(t.Host)
	default:
		return false
	}
}

// names reports whether the pattern spells out exactly this name.
func (p HostPattern) names(name string) bool {
	return (p.kind == hostExact || p.kind == hostSubtree) && p.name == name
}

// isUnder reports whether name lies below parent, on a label boundary.
func isUnder(name, parent string) bool {
	n := len(name) - len(parent)
	return n > 1 && name[n-1] == '.' && name[n:] == parent
}

// Covers reports whether every host that q matches is matched by p too. literals says whether wildcards of p reach
// addresses. It may say no where the answer is yes.
func (p HostPattern) Covers(q HostPattern, literals bool) bool {
	switch {
	case p.kind == hostAny:
		return literals || q.kind != hostLiteral && q.kind != hostAny && q.kind != hostGlob || q.kind == hostAny
	case p.kind == hostLiteral || q.kind == hostLiteral:
		return p.kind == q.kind && p.addr == q.addr
	case q.kind == hostAny || q.kind == hostGlob || p.kind == hostGlob || q.kind == hostLabels || p.kind == hostLabels:
		return p.kind == q.kind && p.text == q.text
	case p.kind == hostExact:
		return q.kind == hostExact && p.name == q.name
	case p.kind == hostSubtree:
		return p.name == q.name || isUnder(q.name, p.name)
	default: // subdomains
		return isUnder(q.name, p.name) || q.kind == hostSubdomains && p.name == q.name
	}
}

// whyGlob is a glob's error without the pattern, which the caller names.
func whyGlob(err error) string {
	var ge *glob.Error
	if errors.As(err, &ge) {
		return "the glob " + ge.Why
	}
	return err.Error()
}
