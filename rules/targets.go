package rules

import (
	"slices"
	"strings"
	"unicode/utf8"

	"dshproxy/netrule"
)

const urlKeys = " url urls uri endpoint base_url baseUrl webhook link href origin remote repository repo "

// networkHolds: deny and ask rules match when any target of the call satisfies the block; an allow rule only when every
// one does, because the call goes to all of them, and when the call shows all of them.
func (r *Rule) networkHolds(f *facts) bool {
	if f.args.kind != argObject {
		return false
	}
	targets := f.callTargets()
	more := f.shellTargets()
	if r.Action != netrule.Allow {
		holds := func(t netrule.Target) bool { return r.targetHolds(f, t) }
		return slices.ContainsFunc(targets, holds) || slices.ContainsFunc(more, holds) || slices.ContainsFunc(f.loose, holds)
	}
	if len(targets)+len(more) == 0 || f.unknown || f.views.unknown || f.views.unparsed {
		return false
	}
	fails := func(t netrule.Target) bool { return !r.targetHolds(f, t) }
	return !slices.ContainsFunc(targets, fails) && !slices.ContainsFunc(more, fails)
}

func (r *Rule) targetHolds(f *facts, t netrule.Target) bool {
	m := r.Match.Network
	return f.work.Spend(150+(10+3*len(t.Host))*(len(m.Hosts)+len(m.Addrs)+len(m.Ports))) && r.Match.Network.Holds(t, r.Action)
}

// maxTargets is how many targets a call may name.
const maxTargets = 10_000

// targetList keeps each target once, in order.
type targetList struct {
	list []netrule.Target
	seen map[netrule.Target]bool
}

// addTarget adds what reads as a URL, host or host:port, and reports whether it does.
func (f *facts) addTarget(l *targetList, text string) bool {
	if !f.work.Spend(hostCost(text)) {
		return false
	}
	t, err := netrule.ParseURL(text)
	if err != nil || l.seen[t] {
		return err == nil
	}
	if len(l.list) >= maxTargets {
		f.tooMuch = true
		return false
	}
	if l.seen == nil {
		l.seen = map[netrule.Target]bool{}
	}
	l.seen[t] = true
	l.list = append(l.list, t)
	return true
}

// hostCost is what it takes to read a text as a target: international names are dear.
func hostCost(text string) int {
	const plain, international = 800, 8000
	cost := plain + 6*len(text)
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return cost + international + 100*len(text)
		}
	}
	if strings.Contains(text, "xn--") {
		cost += international + 100*len(text)
	}
	return cost
}

// callTargets are the targets that the format sees: URLs and bare hosts under URL keys, URLs in command text.
func (f *facts) callTargets() []netrule.Target {
	if f.targetsDone {
		return f.targets
	}
	f.targetsDone = true
	var l targetList
	f.args.walkKeys(0, func(key string, v *arg) {
		if isOneOf(key, urlKeys) {
			for _, s := range v.strings() {
				f.addTarget(&l, s)
			}
		}
	})
	for _, c := range f.commandTexts() {
		for _, text := range append([]string{c.text}, c.words...) {
			for _, u := range scanURLs(text) {
				if !f.addTarget(&l, u) {
					f.unknown = true
				}
			}
		}
	}
	f.targets = l.list
	return f.targets
}

// shellTargets are what only a reading as shell text shows: URLs in decoded words, and hosts without a scheme that
// known network commands are given. What may as well be something else goes to loose, for deny and ask rules alone.
func (f *facts) shellTargets() []netrule.Target {
	if f.moreDone {
		return f.more
	}
	f.moreDone = true
	var more, loose targetList
	v := f.shellViews()
	for _, w := range v.words {
		if !f.work.Spend(30 + 3*len(w)) {
			break
		}
		f.wordTargets(w, &more, &loose)
	}
	for i := range v.commands {
		if !f.work.Spend(30) {
			break
		}
		f.commandTargets(&v.commands[i], &more, &loose)
	}
	f.args.walkKeys(0, func(key string, a *arg) {
		if isOneOf(key, urlKeys) {
			for _, s := range a.strings() {
				if !f.work.Spend(hostCost(s[:min(len(s), 300)]) + 2*len(s)) {
					return
				}
				if host, ok := remoteHost(s); ok {
					f.addTarget(&more, host)
				}
				if at := schemeEnd(s); at > 0 && strings.HasPrefix(lowerASCII(s), "http") {
					f.addReadings(readAuthority(s, at, f.work), &loose)
				}
			}
		}
	})
	f.more, f.loose = more.list, loose.list
	return f.more
}

// addReadings adds what a text may be read as; what is not plain satisfies no allow.
func (f *facts) addReadings(r authority, l *targetList) {
	f.unknown = f.unknown || r.odd
	f.tooMuch = f.tooMuch || r.tooMuch
	for _, host := range r.hosts {
		f.addTarget(l, host)
	}
}

// wordTargets are those in a decoded word, whatever command it is given to.
func (f *facts) wordTargets(w string, more, loose *targetList) {
	for _, u := range scanURLs(w) {
		if !f.addTarget(more, u) {
			f.unknown = true
		}
	}
	lower := lowerASCII(w)
	at := 0
	if w != "" && w[0] == '-' || strings.IndexByte(w, '=') > 0 {
		// The value of an option or a variable.
		at = strings.IndexByte(w, '=') + 1
		if i := strings.Index(lower, "http"); at == 0 && i > 0 {
			at = i
		}
	}
	if end := schemeEnd(w[at:]); end > 0 && at+end < len(w) {
		switch scheme := lower[at : at+strings.IndexByte(lower[at:], ':')]; scheme {
		case "http", "https":
			f.addReadings(readAuthority(w[at:], end, f.work), more)
		case "file", "git", "data", "mailto", "javascript":
			f.unknown = f.unknown || scheme == "git"
		default:
			if strings.HasPrefix(w[at+end-1:], "//") || strings.HasPrefix(w[at+end:], "//") {
				f.addReadings(readAuthority(w[at:], end, f.work), more)
			}
		}
	}
	// Quoted, the characters that end a URL in a shell are part of it.
	if i := strings.Index(lower, "http"); i >= 0 && strings.Contains(w[i:], "://") {
		f.addTarget(loose, strings.ReplaceAll(w[i:], "\\", "/"))
		f.addTarget(loose, w[i:])
	}
	if name, value, ok := strings.Cut(w, "="); ok && strings.HasSuffix(lowerASCII(name), "proxy") {
		f.addTarget(more, withoutScheme(value))
	}
	for _, net := range []string{"/dev/tcp/", "/dev/udp/"} {
		if i := strings.Index(w, net); i >= 0 {
			f.addDevice(w[i+len(net):], more)
		}
	}
}

// addDevice adds HOST/PORT, which the shell connects to when it is the rest of a path under /dev/tcp.
func (f *facts) addDevice(path string, more *targetList) {
	host, port, _ := strings.Cut(path, "/")
	if end := strings.IndexFunc(port, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		port = port[:end]
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || !f.addTarget(more, host+":"+port) {
		f.unknown = true
		f.addTarget(more, host)
	}
}

// lowerASCII keeps every other byte where it is.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

// scanURLs finds http:// and https:// in text, in any case, up to what ends a URL in a shell. A bracketed IPv6 host is
// kept whole.
func scanURLs(text string) []string {
	var out []string
	lower := lowerASCII(text)
	for at := 0; ; {
		i := strings.Index(lower[at:], "http")
		if i < 0 {
			return out
		}
		start := at + i
		rest := lower[start:]
		scheme := "http://"
		if strings.HasPrefix(rest, "https://") {
			scheme = "https://"
		} else if !strings.HasPrefix(rest, scheme) {
			at = start + len("http")
			continue
		}
		end := start + len(scheme)
		if end < len(text) && text[end] == '[' {
			if close := strings.IndexByte(text[end:], ']'); close > 0 {
				end += close + 1
			}
		}
		for end < len(text) && !endsURL(text[end]) {
			end++
		}
		if end > start+len(scheme) {
			out = append(out, text[start:end])
		}
		at = end
	}
}

func endsURL(c byte) bool {
	return c <= ' ' || strings.IndexByte("\"'<>)]\\;,`{}|&", c) >= 0
}

// pieces are the parts of a word that may be a host: without scheme, user and path; the value of an option, also one that
// is glued to its letter; the hosts in a list such as that of --connect-to.
func pieces(word string) []string {
	a := word
	if a == "" || len(a) > 4096 {
		return nil
	}
	var out []string
	add := func(s string) {
		s = withoutScheme(s)
		s = s[strings.LastIndexByte(s, '@')+1:]
		if s == "" || len(out) > 32 {
			return
		}
		out = append(out, s)
		if strings.Count(s, ":") > 1 && s[0] != '[' {
			for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == ',' }) {
				if strings.Trim(part, "0123456789") != "" {
					out = append(out, strings.Trim(part, "[]"))
				}
			}
		}
	}
	if a[0] != '-' {
		if !strings.Contains(a, "://") || !strings.HasPrefix(lowerASCII(a), "http") {
			add(a)
		}
		if _, value, ok := strings.Cut(a, "="); ok && !strings.ContainsAny(a, "/?") {
			add(value)
		}
		return out
	}
	if _, value, ok := strings.Cut(a, "="); ok {
		add(value)
	}
	if a[1:] != "" && a[1] != '-' {
		for i := 2; i < len(a) && i < 10 && isLetter(a[i-1]); i++ {
			if strings.IndexByte(a[i:], '.') > 0 || strings.IndexByte(a[i:], '@') >= 0 {
				add(a[i:])
			}
		}
	}
	return out
}

// withoutScheme gives the authority of a URL of any scheme, or the word up to its path.
func withoutScheme(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	if end := strings.IndexAny(s, "/?#"); end >= 0 {
		s = s[:end]
	}
	return s
}

// looksLikeHost tells host, host:port and addresses from file names and flags: a dot or a colon, or localhost.
func looksLikeHost(s string) bool {
	if s == "" || strings.ContainsAny(s, "/$*=@% ") || strings.HasPrefix(s, ".") {
		return false
	}
	t, err := netrule.ParseURL(s)
	if err != nil {
		return false
	}
	return t.IsLiteral() || t.IsLocalhost() || strings.Contains(t.Host, ".") || t.Port != 0
}

// remoteHost reads ssh://[user@]host[:port]/… and the scp form [user@]host:path.
func remoteHost(s string) (string, bool) {
	for _, scheme := range []string{"ssh://", "git+ssh://", "sftp://", "rsync://"} {
		if rest, ok := strings.CutPrefix(strings.ToLower(s), scheme); ok {
			if end := strings.IndexAny(rest, "/?#"); end >= 0 {
				rest = rest[:end]
			}
			return rest[strings.LastIndexByte(rest, '@')+1:], true
		}
	}
	if strings.Contains(s, "://") {
		return "", false
	}
	head, _, ok := strings.Cut(s, ":")
	if !ok || strings.Contains(head, "/") {
		return "", false
	}
	user, host, hasUser := strings.Cut(head, "@")
	if !hasUser {
		user, host = "", head
	}
	if strings.ContainsAny(user, " \t") || !looksLikeHost(host) && !hasUser {
		return "", false
	}
	return host, host != ""
}
