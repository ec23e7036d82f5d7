package rules

import (
	"slices"
	"strings"

	"dshproxy/netrule"
)

const urlKeys = " url urls uri endpoint base_url baseUrl webhook link href origin remote repository repo "

// networkHolds: deny and ask rules match when any target of the call satisfies the block; an allow rule only when every
// one does, because the call goes to all of them.
func (r *Rule) networkHolds(f *facts) bool {
	if f.args.kind != argObject {
		return false
	}
	targets := f.callTargets()
	if r.Action != netrule.Allow {
		return slices.ContainsFunc(targets, r.targetHolds) || slices.ContainsFunc(f.shellTargets(), r.targetHolds)
	}
	if len(targets) == 0 {
		return false
	}
	fails := func(t netrule.Target) bool { return !r.targetHolds(t) }
	return !slices.ContainsFunc(targets, fails) && !slices.ContainsFunc(f.shellTargets(), fails)
}

func (r *Rule) targetHolds(t netrule.Target) bool {
	return r.Match.Network.Holds(t, r.Action)
}

// callTargets are the targets that the format sees: URLs and bare hosts under URL keys, URLs in command text.
func (f *facts) callTargets() []netrule.Target {
	if f.targetsDone {
		return f.targets
	}
	f.targetsDone = true
	f.args.walkKeys(0, func(key string, v *arg) {
		if isOneOf(key, urlKeys) {
			for _, s := range v.strings() {
				f.targets = appendTarget(f.targets, s)
			}
		}
	})
	for _, c := range f.commandTexts() {
		for _, text := range append([]string{c.text}, c.words...) {
			for _, u := range scanURLs(text) {
				f.targets = appendTarget(f.targets, u)
			}
		}
	}
	return f.targets
}

// shellTargets are what only a reading as shell text shows: URLs in decoded words, and hosts without a scheme that
// known network commands are given.
func (f *facts) shellTargets() []netrule.Target {
	if f.moreDone {
		return f.more
	}
	f.moreDone = true
	v := f.shellViews()
	for _, w := range v.words {
		for _, u := range scanURLs(w) {
			f.more = appendTarget(f.more, u)
		}
	}
	for i := range v.commands {
		for _, operand := range networkOperands(&v.commands[i]) {
			f.more = appendTarget(f.more, operand)
		}
	}
	f.args.walkKeys(0, func(key string, a *arg) {
		if isOneOf(key, urlKeys) {
			for _, s := range a.strings() {
				if host, ok := remoteHost(s); ok {
					f.more = appendTarget(f.more, host)
				}
			}
		}
	})
	return f.more
}

func appendTarget(list []netrule.Target, text string) []netrule.Target {
	t, err := netrule.ParseURL(text)
	if err != nil || slices.Contains(list, t) {
		return list
	}
	return append(list, t)
}

// scanURLs finds http:// and https:// in text, in any case, up to what ends a URL in a shell. A bracketed IPv6 host is
// kept whole.
func scanURLs(text string) []string {
	var out []string
	lower := strings.ToLower(text)
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

const (
	hostCommands = " curl wget http https xh nc ncat telnet ping dig nslookup host "
	sshCommands  = " ssh scp sftp rsync git "
)

// networkOperands gives the words of a command that a network tool would read as a host.
func networkOperands(c *simpleCommand) []string {
	if isOneOf(c.word, hostCommands) {
		return hostOperands(c)
	}
	if !isOneOf(c.word, sshCommands) {
		return nil
	}
	var out []string
	for _, a := range c.args {
		if host, ok := remoteHost(a); ok {
			out = append(out, host)
		} else if bare := a[strings.LastIndexByte(a, '@')+1:]; c.word == "ssh" && (looksLikeHost(bare) || bare != a && bare != "") {
			out = append(out, bare)
		}
	}
	return out
}

// hostOperands also looks into option values, which may name a proxy or another host.
func hostOperands(c *simpleCommand) []string {
	var out []string
	for i, a := range c.args {
		if strings.HasPrefix(a, "-") {
			if _, value, ok := strings.Cut(a, "="); ok && looksLikeHost(value) {
				out = append(out, value)
			}
			continue
		}
		host := a
		if slash := strings.IndexAny(a, "/?#"); slash > 0 && !strings.Contains(a, "://") {
			host = a[:slash]
		}
		host = host[strings.LastIndexByte(host, '@')+1:]
		if !looksLikeHost(host) {
			continue
		}
		// nc HOST PORT and telnet HOST PORT have the port as the next word.
		if isOneOf(c.word, " nc ncat telnet ") && i+1 < len(c.args) && strings.Trim(c.args[i+1], "0123456789") == "" && !strings.Contains(host, ":") {
			host += ":" + c.args[i+1]
		}
		out = append(out, host)
	}
	return out
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
