package netrule

// And gives the policy under which only passes what both pass: the stricter verdict holds, and only addresses that both
// admit may be dialled. It serves rules that changed and are not accepted yet. Neither policy is changed.
func (p *Policy) And(other *Policy) *Policy {
	if p == nil || other == nil {
		return nil
	}
	both := *p
	both.also = other
	return &both
}

// enforced is what a decision would be with enforcement on.
func (d *Decision) enforced() Action {
	if d.DryRun {
		return d.Would
	}
	return d.Action
}

// strictest combines the decisions of two policies about the same query and addresses.
func strictest(a, b Decision) Decision {
	needsAddrs, needsAll := a.NeedsAddrs || b.NeedsAddrs, a.NeedsAll || b.NeedsAll
	if b.Action < a.Action || b.Action == a.Action && b.enforced() < a.enforced() {
		a, b = b, a
	}
	if a.Action != Allow {
		return a
	}
	a.NeedsAddrs, a.NeedsAll = needsAddrs, needsAll
	a.NamesHost, a.ByIPs = a.NamesHost && b.NamesHost, a.ByIPs && b.ByIPs
	kept := 0
	for i := range a.Addrs {
		v := &a.Addrs[i]
		if v.Kept && !b.Addrs[i].Kept {
			v.Kept, v.Why = false, b.Addrs[i].Why
		}
		if v.Kept {
			kept++
		}
	}
	if a.Addrs != nil && kept == 0 {
		a.Action, a.Code, a.DryRun, a.NeedsAddrs = Deny, CodeNotAllowed, false, false
	}
	return a
}
