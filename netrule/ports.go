package netrule

import (
	"strconv"
	"strings"
)

// PortRange is an inclusive range of ports. The zero PortRange matches nothing.
type PortRange struct {
	Lo, Hi uint16
}

// ParsePortPattern reads "*", one port or "lo-hi". Port 0 alone is an error; a range may start at 0, which no target
// has. Errors are of type *PatternError.
func ParsePortPattern(pattern string) (PortRange, error) {
	fail := func(why, hint string) (PortRange, error) { return PortRange{}, &PatternError{pattern, why, hint} }
	if pattern == "*" {
		return PortRange{1, 65535}, nil
	}
	loText, hiText, isRange := strings.Cut(pattern, "-")
	if !isRange {
		hiText = loText
	}
	lo, okLo := portNumber(loText)
	hi, okHi := portNumber(hiText)
	switch {
	case !okLo || !okHi:
		return fail("port patterns must be *, a port (0-65535) or a range such as 8000-9000", "")
	case lo > hi:
		return fail("a port range needs low <= high", "write "+hiText+"-"+loText)
	case hi == 0:
		return fail("port 0 can never match", "")
	}
	return PortRange{uint16(lo), uint16(hi)}, nil
}

func portNumber(s string) (uint64, bool) {
	if !digits(s) || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return n, err == nil && n <= 65535
}

// Contains reports whether a known port lies in the range.
func (r PortRange) Contains(port uint16) bool { return port != 0 && r.Lo <= port && port <= r.Hi }

func (r PortRange) exactly(port uint16) bool { return r.Lo == port && r.Hi == port }

// String gives "*", "443" or "8000-9000".
func (r PortRange) String() string {
	switch {
	case r.Lo <= 1 && r.Hi == 65535:
		return "*"
	case r.Lo == r.Hi:
		return strconv.Itoa(int(r.Lo))
	default:
		return strconv.Itoa(int(r.Lo)) + "-" + strconv.Itoa(int(r.Hi))
	}
}

// Covers reports whether every port that q matches is matched by r too, in a rule with this action: an allow rule admits
// mail and DNS ports only where it names them. It may say no where the answer is yes.
func (r PortRange) Covers(q PortRange, action Action) bool {
	if action == Allow && r != q {
		for port := q.Lo; port <= q.Hi && port != 65535; port++ {
			if needsExactPort(port) {
				return false
			}
		}
	}
	return r.Lo <= q.Lo && q.Hi <= r.Hi
}
