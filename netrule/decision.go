package netrule

import (
	"net/netip"
	"strings"
)

// Action is a verdict. The zero value denies.
type Action uint8

// The verdicts, the strictest first.
const (
	Deny Action = iota
	Ask
	Allow
)

// String returns "deny", "ask" or "allow".
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	default:
		return "deny"
	}
}

// MarshalText makes an action its name in JSON.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAction reads the three names; anything else gives Deny and false.
func ParseAction(s string) (Action, bool) {
	switch s {
	case "allow":
		return Allow, true
	case "ask":
		return Ask, true
	case "deny":
		return Deny, true
	default:
		return Deny, false
	}
}

// stricter gives the one that wins when layers are combined: deny, then ask, then allow.
func stricter(a, b Action) Action { return min(a, b) }

// Mode decides targets that no rule decides. The zero value denies all.
type Mode uint8

// The modes.
const (
	DenyAll   Mode = iota // nothing unless a rule allows it
	Whitelist             // rules allow; the rest is Policy's Unlisted, deny or ask
	AllowAll              // the rest is allowed, special-use addresses excepted
)

// String returns the name that settings use.
func (m Mode) String() string {
	switch m {
	case Whitelist:
		return "whitelist"
	case AllowAll:
		return "allow-all"
	default:
		return "deny-all"
	}
}

// ParseMode reads the three names; anything else gives DenyAll and false.
func ParseMode(s string) (Mode, bool) {
	for _, m := range []Mode{DenyAll, Whitelist, AllowAll} {
		if s == m.String() {
			return m, true
		}
	}
	return DenyAll, false
}

// SandboxMode maps the preset of a sandbox to a mode, for the setting "auto". An unknown preset gives fallback.
func SandboxMode(preset string, fallback Mode) Mode {
	switch preset {
	case "read-only":
		return DenyAll
	case "workspace-write":
		return Whitelist
	case "danger-full-access":
		return AllowAll
	default:
		return fallback
	}
}

// RuleRef says where a rule stands. The zero value is no rule.
type RuleRef struct {
	File   string // absolute path
	Line   int    // 1-based
	Index  int    // 0-based in the chain of its layer
	Reason string // the author's words, raw
	Layer  string // "workspace", "managed"
}

// Valid reports whether the reference names a rule.
func (r RuleRef) Valid() bool { return r.Layer != "" }

// AddrVerdict is what became of one address of the answer.
type AddrVerdict struct {
	Addr  netip.Addr
	Class Class
	Kept  bool
	// Why is "rule" for an address that the allow rule did not admit, "guard" for one that needed a rule of its own,
	// and empty for one that was kept.
	Why string
}

// Decision is the one value that every front end renders. The zero Decision denies.
type Decision struct {
	Action Action
	Code   Code
	// Rule is the rule that decided, if one did.
	Rule RuleRef
	// Mode is the policy's mode, whether it decided or not.
	Mode Mode
	// NeedsAddrs is set by Decide on an allow that is not final: a rule with ips stands on the way, and DecideAddrs may
	// turn it. The guard may turn any allow.
	NeedsAddrs bool
	// NeedsAll is set beside NeedsAddrs when a deny or ask rule may turn on any single address, so that no family of the
	// answer may be missing.
	NeedsAll bool
	// NamesHost says that an allow rule spells out exactly the target's name.
	NamesHost bool
	// ByIPs says that an allow rule admitted the addresses by its ips.
	ByIPs bool
	// DryRun marks an allow that enforcement would have refused, as Would and WouldCode say.
	DryRun    bool
	Would     Action
	WouldCode Code
	// Addrs has every address of the answer, in its order. It is nil before DecideAddrs.
	Addrs []AddrVerdict
}

// Matched reports whether a rule decided.
func (d *Decision) Matched() bool { return d.Rule.Valid() }

// Kept lists the addresses that may be dialled, in resolver order.
func (d *Decision) Kept() []netip.Addr {
	if d.Action != Allow {
		return nil
	}
	out := make([]netip.Addr, 0, len(d.Addrs))
	for _, a := range d.Addrs {
		if a.Kept {
			out = append(out, a.Addr)
		}
	}
	return out
}

// worstRemoved gives the most dangerous class that the guard removed.
func (d *Decision) worstRemoved() (class Class, addr netip.Addr, any bool) {
	for _, a := range d.Addrs {
		if !a.Kept && a.Why == whyGuard && a.Class >= class {
			class, addr, any = a.Class, a.Addr, true
		}
	}
	return class, addr, any
}

const (
	whyRule  = "rule"
	whyGuard = "guard"
)

// Fix is the smallest rule that would allow a refused target; a rule of its own, because adding ips to an existing rule
// would narrow that one.
type Fix struct {
	Host    string
	Port    uint16
	Addr    netip.Addr // set when an ips literal is needed too
	Private bool
}

// Fix gives the rule that would allow the target, and false when no rule can (a deny rule stands before it, or the
// refusal is not the policy's).
func (d *Decision) Fix(t Target) (Fix, bool) {
	switch d.Code {
	case CodeNotAllowed, CodeNeedsApproval, CodeApprovalDenied, CodeApprovalTimeout:
		f := Fix{Host: t.Host, Port: t.Port}
		switch {
		case t.IsLiteral() && ClassifyAddr(t.Addr) != ClassPublic:
			f.Addr, f.Private = t.Addr, true
		case t.IsLocalhost():
			f.Addr, f.Private = netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
		}
		return f, t.Host != ""
	case CodeSpecialUseAddress, CodeMetadataAddress:
		_, addr, found := d.worstRemoved()
		if !found {
			return Fix{}, false
		}
		return Fix{Host: t.Host, Port: t.Port, Addr: addr, Private: true}, true
	default:
		return Fix{}, false
	}
}

// Command gives the command line that writes the rule.
func (f Fix) Command() string {
	target := Target{Host: f.Host, Port: f.Port}
	target.Addr, _ = netip.ParseAddr(f.Host)
	if f.Private {
		return "dshproxy allow --private " + target.Authority()
	}
	return "dshproxy allow " + target.Authority()
}

// oneLine makes text fit for one line of a terminal or a model: printable ASCII of a small set, at most limit bytes.
func oneLine(s string, limit int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= limit {
			break
		}
		if r < 0x80 && (isHostByte(byte(r)) || strings.ContainsRune(" ,:/@%+=", r)) {
			b.WriteRune(r)
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// ReasonLine gives the author's reason as one harmless line of at most 200 bytes of [A-Za-z0-9 .,:/@%+=_-]: denial
// bodies reach shells and models.
func (r RuleRef) ReasonLine() string { return strings.TrimSpace(oneLine(r.Reason, 200)) }

// UnmarshalText reads one of the three names; anything else is an error.
func (a *Action) UnmarshalText(text []byte) error {
	v, ok := ParseAction(string(text))
	if !ok {
		return hostError("an action is allow, deny or ask")
	}
	*a = v
	return nil
}
