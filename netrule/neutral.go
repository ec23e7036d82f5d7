package netrule

import (
	"strings"

	"dshproxy/netrule/glob"
)

// Other rule languages make their host patterns here, by what they mean and not by a text of the dsh format.

// ExactHost makes a pattern for one name or one address, in any spelling that a browser reads. Errors are of type
// *PatternError.
func ExactHost(text string) (HostPattern, error) {
	if err := checkHostPattern(text, strings.TrimRight(text, ".")); err != nil {
		return HostPattern{}, err
	}
	if glob.HasMeta(strings.Trim(text, "[]")) {
		return HostPattern{}, &PatternError{text, "a wildcard where one host is meant", ""}
	}
	p := HostPattern{text: text}
	return p.parsePlain(strings.Trim(strings.TrimRight(text, "."), "[]"), true)
}

// Subdomains makes a pattern for every name below a name, and not for the name itself.
func Subdomains(name string) (HostPattern, error) {
	p, err := ExactHost(name)
	if err != nil {
		return p, err
	}
	if p.kind != hostExact {
		return HostPattern{}, &PatternError{name, "an address has no subdomains", ""}
	}
	p.kind, p.text = hostSubdomains, "*."+name
	return p, nil
}

// AnyHost is the pattern for every host.
func AnyHost() HostPattern { return HostPattern{kind: hostAny, text: "*"} }

// LabelGlob makes a pattern whose stars stay inside their label: "api-*.example.com". A leading "*." stands for one label
// or more. It matches no address.
func LabelGlob(pattern string) (HostPattern, error) {
	text := strings.TrimSuffix(lowerASCII(pattern), ".")
	p := HostPattern{kind: hostLabels, text: pattern}
	if rest, ok := strings.CutPrefix(text, "*."); ok {
		p.deep, text = true, rest
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_*") != "" {
			return HostPattern{}, &PatternError{pattern, "no host has such a label", "letters, digits, - and *, between dots"}
		}
		g, err := glob.Compile(label, glob.Options{MaxStars: -1})
		if err != nil {
			return HostPattern{}, &PatternError{pattern, whyGlob(err), ""}
		}
		p.labels = append(p.labels, g)
	}
	return p, nil
}

// labelsMatch tests a name from its last label on; what is left over belongs to a leading "*.".
func (p HostPattern) labelsMatch(host string) bool {
	for i := len(p.labels) - 1; i >= 0; i-- {
		dot := strings.LastIndexByte(host, '.')
		if !p.labels[i].Match(host[dot+1:]) {
			return false
		}
		if dot < 0 {
			return i == 0 && !p.deep
		}
		host = host[:dot]
	}
	return p.deep && host != ""
}
