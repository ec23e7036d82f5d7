package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"dshproxy/proxy/identity"
)

// warnings has a sentence for each thing that is allowed and may not be meant. now tells what has expired.
func (s *settings) warnings(now time.Time) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	i := &s.identity
	unix, certificates := false, false
	for _, l := range s.listeners() {
		unix = unix || l.isUnix()
		certificates = certificates || l.asksForCertificates()
		if len(i.tokens) > 0 && l.tls == nil && !isLocal(l.address) {
			add("listener %s takes tokens without TLS: whoever sees the traffic to %s can use them", l.name, l.address)
		}
		if !l.onlyLocal() && slices.ContainsFunc(i.listeners, func(p placed[identity.Listener]) bool { return p.entry.Listener == l.name }) {
			add("everybody who reaches listener %s is served without a token, by its entry in identity.listeners", l.name)
		}
	}
	if s.allowAnonymous && i.asks() {
		add("identity.allowAnonymous is true: clients that prove nothing are served too")
	}
	if len(i.peers) > 0 && (!unix || runtime.GOOS != "linux") {
		add("identity.peers is of no use: %s", map[bool]string{true: "the users of sockets are only told on Linux", false: "no listener is a unix socket"}[unix])
	}
	if len(i.certificates) > 0 && !certificates {
		add("identity.certificates is of no use: no listener has tls.clientCA")
	}
	for _, p := range i.tokens {
		if t := p.entry; !t.Expires.IsZero() && !now.Before(t.Expires) {
			add("token %s has expired", t.Name)
		}
	}
	for _, p := range i.sources {
		if p.entry.Prefix.Bits() == 0 {
			add("identity.sources lets everybody in with %s", p.entry.Prefix)
		}
	}
	return out
}
