package netrule

import "net/netip"

// index finds the rules of a layer that may match, so that the cost of a decision does not grow with the number of
// plain host and prefix rules. Every list is in rule order; first match is the lowest number over all lists.
type index struct {
	names    map[string]nameRules
	literals map[netip.Addr][]int32
	prefixes map[netip.Prefix][]int32
	lengths4 []int // prefix lengths in use
	lengths6 []int
	// addrDeny and addrAllow are the rules with ips and without domains; while addresses are unknown, any of them may
	// yet match. addrRest are those among them whose patterns the prefix map cannot hold.
	addrDeny, addrAllow, addrRest []int32
	// deniesByAddr is set when a deny or ask rule has ips.
	deniesByAddr bool
	// rest are the rules that have to be tried one by one.
	rest []int32
}

// nameRules are the rules that name a suffix of the host.
type nameRules struct {
	exact, subtree, subdomains []int32
}

func buildIndex(rules []Rule) *index {
	ix := &index{names: map[string]nameRules{}, literals: map[netip.Addr][]int32{}, prefixes: map[netip.Prefix][]int32{}}
	for i := range rules {
		r := &rules[i]
		ix.deniesByAddr = ix.deniesByAddr || r.Inert == "" && r.Action != Allow && len(r.Match.Addrs) > 0
		switch n := int32(i); {
		case r.Inert != "":
		case len(r.Match.Hosts) > 0:
			ix.addHosts(r, n)
		case len(r.Match.Addrs) > 0:
			ix.addAddrs(r, n)
		default:
			ix.rest = append(ix.rest, n)
		}
	}
	ix.lengths4, ix.lengths6 = lengthsOf(ix.prefixes)
	return ix
}

func (ix *index) addHosts(r *Rule, n int32) {
	for i := range r.Match.Hosts {
		if k := r.Match.Hosts[i].kind; k == hostAny || k == hostGlob || k == hostLabels {
			ix.rest = append(ix.rest, n)
			return
		}
	}
	for i := range r.Match.Hosts {
		h := &r.Match.Hosts[i]
		if h.kind == hostLiteral {
			ix.literals[h.addr] = append(ix.literals[h.addr], n)
			continue
		}
		e := ix.names[h.name]
		switch h.kind {
		case hostExact:
			e.exact = append(e.exact, n)
		case hostSubtree:
			e.subtree = append(e.subtree, n)
		default:
			e.subdomains = append(e.subdomains, n)
		}
		ix.names[h.name] = e
	}
}

func (ix *index) addAddrs(r *Rule, n int32) {
	if r.Action == Allow {
		ix.addrAllow = append(ix.addrAllow, n)
	} else {
		ix.addrDeny = append(ix.addrDeny, n)
	}
	for i := range r.Match.Addrs {
		if r.Match.Addrs[i].glob != nil {
			ix.addrRest = append(ix.addrRest, n)
			return
		}
	}
	for i := range r.Match.Addrs {
		p := r.Match.Addrs[i].prefix
		ix.prefixes[p] = append(ix.prefixes[p], n)
	}
}

func lengthsOf(prefixes map[netip.Prefix][]int32) (four, six []int) {
	var seen4 [33]bool
	var seen6 [129]bool
	for p := range prefixes {
		if p.Addr().Is4() {
			seen4[p.Bits()] = true
		} else {
			seen6[p.Bits()] = true
		}
	}
	for bits, ok := range seen4 {
		if ok {
			four = append(four, bits)
		}
	}
	for bits, ok := range seen6 {
		if ok {
			six = append(six, bits)
		}
	}
	return four, six
}

// walk is one search through a layer. addrs is nil while addresses are unknown.
type walk struct {
	layer *layer
	query *Query
	pol   *Policy
	addrs []address

	best       int // lowest rule that ends the walk, or len(rules)
	remembered int // lowest deny or ask rule with ips that could not be tested yet, or len(rules)
}

// run gives the rule that ends the walk, or nil. possible is true when that rule is an allow whose addresses are not
// known yet; remembered when a deny or ask rule before it waits for addresses.
func (w *walk) run() (rule *Rule, possible, remembered bool) {
	w.best, w.remembered = len(w.layer.rules), len(w.layer.rules)
	ix := w.layer.index
	w.scanHost(ix)
	if w.addrs == nil {
		w.scanUntested(ix.addrDeny)
		w.scanUntested(ix.addrAllow)
	} else {
		w.scanPrefixes(ix)
		w.scan(ix.addrRest, true)
	}
	w.scan(ix.rest, false)
	remembered = w.remembered < w.best
	if w.best == len(w.layer.rules) {
		return nil, false, remembered
	}
	rule = &w.layer.rules[w.best]
	return rule, w.addrs == nil && len(rule.Match.Addrs) > 0, remembered
}

func (w *walk) scanHost(ix *index) {
	t := &w.query.Target
	if t.IsLiteral() {
		w.scan(ix.literals[t.Addr], true)
		return
	}
	if len(ix.names) == 0 {
		return
	}
	for suffix, whole := t.Host, true; ; whole = false {
		if e, ok := ix.names[suffix]; ok {
			if whole {
				w.scan(e.exact, true)
			} else {
				w.scan(e.subdomains, true)
			}
			w.scan(e.subtree, true)
		}
		dot := 0
		for dot < len(suffix) && suffix[dot] != '.' {
			dot++
		}
		if dot == len(suffix) {
			return
		}
		suffix = suffix[dot+1:]
	}
}

func (w *walk) scanPrefixes(ix *index) {
	for i := range w.addrs {
		for _, f := range w.addrs[i].forms {
			lengths := ix.lengths6
			if f.Addr.Is4() {
				lengths = ix.lengths4
			} else if !f.Addr.IsValid() {
				continue
			}
			for _, bits := range lengths {
				if p, err := f.Addr.Prefix(bits); err == nil {
					w.scan(ix.prefixes[p], true)
				}
			}
		}
	}
}

// scan tries the rules of a list up to the best one known. hostKnown says that the index has matched the host.
func (w *walk) scan(list []int32, hostKnown bool) {
	for _, n := range list {
		i := int(n)
		if i >= w.best {
			return
		}
		r := &w.layer.rules[i]
		if r.failsBesideHost(w.query, w.pol) != dimNone || !hostKnown && !r.hostHolds(w.query.Target) {
			continue
		}
		switch {
		case len(r.Match.Addrs) == 0:
		case w.addrs != nil:
			if !r.anyAddrHolds(w.addrs) {
				continue
			}
		case r.Action != Allow:
			w.remembered = min(w.remembered, i)
			continue
		}
		w.best = i
		return
	}
}

// scanUntested tries rules that have ips and no domains while addresses are unknown: the first whose other dimensions
// hold says all there is to say about the list.
func (w *walk) scanUntested(list []int32) {
	for _, n := range list {
		i := int(n)
		if i >= w.best {
			return
		}
		r := &w.layer.rules[i]
		if r.failsBesideHost(w.query, w.pol) != dimNone {
			continue
		}
		if r.Action == Allow {
			w.best = i
		} else {
			w.remembered = min(w.remembered, i)
		}
		return
	}
}
