package rules

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"dshproxy/rules/work"
)

// authority is what the host of a URL, or of a text without a scheme, may be read as.
type authority struct {
	hosts   []string
	odd     bool // programs do not agree on it, or it shows no single host
	tooMuch bool
}

// schemeEnd gives where a URL goes on behind its scheme and colon, or 0 when it has none.
func schemeEnd(s string) int {
	for i := 0; i < len(s) && i < 20; i++ {
		switch c := s[i]; {
		case c == ':' && i > 1:
			return i + 1
		case isLetter(c), i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return 0
		}
	}
	return 0
}

// readAuthority reads the host of a text as browsers and as curl do. at is where the text goes on behind its scheme, or 0.
func readAuthority(text string, at int, left *work.Budget) authority {
	var r authority
	rest, prefix := text, ""
	if at > 0 {
		prefix = text[:at] + "//"
		slashes := len(text[at:]) - len(strings.TrimLeft(text[at:], `/\`))
		r.odd = text[at:at+slashes] != "//"
		rest = text[at+slashes:]
		if !strings.HasPrefix(lowerASCII(prefix), "http") {
			prefix = "" // the port is not known
		}
	}
	rest = strings.TrimRight(rest, " \t\r\n")
	auth := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		auth = rest[:end]
	}
	if !left.Spend(20 * len(auth)) {
		return authority{tooMuch: true}
	}
	if isPlainAuthority(auth) {
		r.hosts = append(r.hosts, prefix+auth)
		return r
	}
	r.odd = true
	globbed, ok := curlGlob(auth, left)
	r.tooMuch = !ok
	for _, one := range append(globbed, auth) {
		r.hosts = append(r.hosts, readings(prefix, one)...)
	}
	return r
}

// readings are the hosts that an odd authority may name.
func readings(prefix, auth string) []string {
	auth = strings.TrimFunc(auth, func(r rune) bool { return r <= ' ' || unicode.IsSpace(r) })
	out := []string{prefix + auth}
	host := auth[strings.LastIndexByte(auth, '@')+1:]
	out = append(out, prefix+host)
	for _, cut := range []string{`\`, ":", "%", "{", "[", ";", ",", "$", "`"} {
		if i := strings.Index(host, cut); i > 0 {
			out = append(out, prefix+host[:i])
		}
	}
	if i := strings.IndexByte(auth, '\\'); i > 0 {
		out = append(out, prefix+auth[:i]) // a browser's
	}
	if decoded, err := url.PathUnescape(host); err == nil && decoded != host {
		out = append(out, prefix+decoded[strings.LastIndexByte(decoded, '@')+1:])
	}
	return out
}

// isPlainAuthority reports a host or host:port that every program reads the same.
func isPlainAuthority(s string) bool {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || strings.Trim(s[1:end], "0123456789abcdefABCDEF:.") != "" {
			return false
		}
		host, port = "x", strings.TrimPrefix(s[end+1:], ":")
		if s[end+1:] != "" && s[end+1] != ':' {
			return false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i+1:]
	}
	if host == "" || strings.Trim(port, "0123456789") != "" {
		return false
	}
	for _, r := range host {
		switch {
		case r < utf8.RuneSelf && (isLetter(byte(r)) || '0' <= r && r <= '9' || r == '.' || r == '-' || r == '_'):
		case r >= utf8.RuneSelf && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r)):
		default:
			return false
		}
	}
	return true
}

// curlGlob expands {a,b} and [a-z] as curl does. ok is false when there are too many.
func curlGlob(s string, left *work.Budget) (out []string, ok bool) {
	const most = 300
	out = []string{""}
	for len(s) > 0 {
		open := strings.IndexAny(s, "{[")
		end := -1
		if open >= 0 {
			end = strings.IndexByte(s[open:], map[byte]byte{'{': '}', '[': ']'}[s[open]])
		}
		if end < 0 {
			for i := range out {
				out[i] += s
			}
			return out, true
		}
		inner := s[open+1 : open+end]
		choices := strings.Split(inner, ",")
		if s[open] == '[' {
			choices = globRange(inner)
		}
		if len(out)*len(choices) > most || !left.Spend(len(out)*len(choices)*(50+len(s))) {
			return nil, false
		}
		next := make([]string, 0, len(out)*len(choices))
		for _, head := range out {
			for _, c := range choices {
				next = append(next, head+s[:open]+c)
			}
		}
		out, s = next, s[open+end+1:]
	}
	return out, true
}

// globRange gives the characters of a-z; what is no such range stays as it is. Numbers are left to the bound.
func globRange(inner string) []string {
	span, _, _ := strings.Cut(inner, ":")
	if len(span) != 3 || span[1] != '-' || span[0] > span[2] {
		return []string{"[" + inner + "]"}
	}
	var out []string
	for c := int(span[0]); c <= int(span[2]); c++ {
		out = append(out, string([]byte{byte(c)}))
	}
	return out
}
