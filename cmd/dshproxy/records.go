package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"dshproxy/netrule"
)

// recorded is what a decision log says of one kind of connection.
type recorded struct {
	target  netrule.Target
	agents  string // the identity, empty for none
	allowed bool
	count   int
	addrs   []netip.Addr // the answer, where it was looked up
	kept    []netip.Addr
}

// readLog reads the decisions about targets, those of a kind counted together, in the order of their names.
func readLog(path string) ([]recorded, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type kind struct {
		target  netrule.Target
		agents  string
		allowed bool
		addrs   string
	}
	all := map[kind]*recorded{}
	const longestLine = 1 << 20
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		var r struct {
			Msg, Stage, Scheme, Host, Verdict, Identity string
			Port                                        uint16
			Repeated                                    int
			Addresses                                   []struct {
				Addr netip.Addr
				Kept bool
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: no record: %w", path, n, err)
		}
		scheme, known := netrule.ParseScheme(r.Scheme)
		// A host that could not be parsed is in the log as it was sent; it is nobody's wish to reach.
		t, err := netrule.ParseURL(bracketed(r.Host))
		if r.Msg != "decision" || r.Stage != "" || r.Verdict == "" || !known || err != nil || t.Host != r.Host || r.Port == 0 {
			continue
		}
		t.Scheme, t.Port = scheme, r.Port
		rec := recorded{target: t, agents: r.Identity, allowed: r.Verdict == "allow", count: max(r.Repeated, 1)}
		for _, a := range r.Addresses {
			rec.addrs = append(rec.addrs, a.Addr)
			if a.Kept {
				rec.kept = append(rec.kept, a.Addr)
			}
		}
		k := kind{t, r.Identity, rec.allowed, fmt.Sprint(rec.addrs, rec.kept)}
		if have := all[k]; have != nil {
			have.count += rec.count
		} else {
			all[k] = &rec
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := make([]recorded, 0, len(all))
	for _, r := range all {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.target.Host, b.target.Host), cmp.Compare(a.target.Port, b.target.Port), cmp.Compare(a.target.Scheme, b.target.Scheme),
			cmp.Compare(a.agents, b.agents), cmp.Compare(fmt.Sprint(a.allowed, a.addrs), fmt.Sprint(b.allowed, b.addrs)))
	})
	return out, nil
}

// bracketed makes a host of a log readable as a target.
func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func (r *recorded) query() netrule.Query {
	q := netrule.Query{Target: r.target}
	if r.agents != "" {
		q.Agents = []string{r.agents}
	}
	return q
}

// decide is the verdict of a policy about a recorded connection, with the answer of then.
func (r *recorded) decide(p *netrule.Policy) netrule.Decision {
	d := p.DecideOffline(r.query())
	if d.Action == netrule.Allow && len(r.addrs) > 0 {
		d = p.DecideAddrs(r.query(), r.addrs, nil)
	}
	return d
}
