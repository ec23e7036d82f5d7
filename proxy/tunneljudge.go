package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// SNIMode says what becomes of a name in a TLS hello that is not the one that was asked for. The zero value enforces.
type SNIMode uint8

// The modes. The scheme is held against the bytes in all of them.
const (
	SNIEnforce SNIMode = iota // refused, unless the rules allow that name at the same address
	SNIObserve                // recorded
	SNIOff                    // not compared
)

// judgeTLS holds a hello against the target and the rules. The tunnel's own goroutine calls it.
func (t *tunnel) judgeTLS(h *clientHello) (step, netrule.Code) {
	q := t.fl.current()
	q.Target.Scheme = netrule.SchemeHTTPS
	name := q.Target
	if t.srv.SNI != SNIOff {
		seen, code, a := t.compareNames(h, q)
		switch {
		case code == netrule.CodeInternalError:
			name = seen
		case t.srv.SNI == SNIObserve:
			t.observeInside(code, q.Target, nil, outcomeOK)
		case t.dry():
			t.observeDry(code, q.Target)
		default:
			t.opening.why = a
			return stepRefuse, code
		}
	}
	if next, code := t.judgeScheme(q); next != stepPass {
		return next, code
	}
	t.fl.seen(netrule.SchemeHTTPS, name)
	switch in := t.srv.Inspector; {
	case in == nil:
		return stepPass, 0
	case in.Covers(name.Host):
		return stepInspect, 0
	case in.Covers(q.Target.Host):
		return stepRefuse, netrule.CodeSNIMismatch // another name must not lead past the inspection
	default:
		return stepPass, 0
	}
}

// dry reports whether the rules of now only say what they would refuse.
func (t *tunnel) dry() bool {
	var a Admission
	a.Workspace = t.fl.workspace
	return t.srv.Gate.ask(&a) && a.Policy.IsDryRun()
}

// observeDry records what would have been refused with a code.
func (t *tunnel) observeDry(code netrule.Code, target netrule.Target) {
	t.observeInside(netrule.CodeDryRun, target, &Admission{Judged: true, Decision: netrule.Decision{
		DryRun: true, Would: netrule.Deny, WouldCode: code,
	}}, outcomeOK)
}

// compareNames gives the target that a hello names, or the code with which it is refused. Without a name the target must
// be an address, or have been admitted by its address. Another name is judged as a target of its own at the same address.
func (t *tunnel) compareNames(h *clientHello, q netrule.Query) (seen netrule.Target, code netrule.Code, a *Admission) {
	if !h.hasSNI {
		if !q.Target.IsLiteral() && !t.admit(q).Decision.ByIPs {
			return q.Target, netrule.CodeSNIMissing, nil
		}
		return q.Target, netrule.CodeInternalError, nil
	}
	seen, err := netrule.TargetFromName(h.sni, q.Target.Port)
	if err != nil || seen.IsLiteral() { // RFC 6066 §3: a literal address is no server name
		return q.Target, netrule.CodeSNIMismatch, nil
	}
	if seen.Host == q.Target.Host {
		return q.Target, netrule.CodeInternalError, nil
	}
	seen.Scheme = netrule.SchemeHTTPS
	own := t.admit(netrule.Query{Target: seen, Agents: q.Agents})
	if !own.OK || own.Decision.DryRun {
		return seen, netrule.CodeSNIMismatch, &own
	}
	return seen, netrule.CodeInternalError, nil
}

// judgeOther judges a tunnel that carries neither TLS nor HTTP.
func (t *tunnel) judgeOther() (step, netrule.Code) {
	if t.schemeIsFree() {
		t.fl.carries(netrule.SchemeOther)
		return stepPass, 0
	}
	return t.judgeOtherByRules()
}

// judgeOtherByRules is apart because a judgement needs a large stack, which most tunnels never grow.
//
//go:noinline
func (t *tunnel) judgeOtherByRules() (step, netrule.Code) {
	t.opening.deep = true
	q := t.fl.current()
	q.Target.Scheme = netrule.SchemeOther
	next, code := t.judgeScheme(q)
	if next == stepPass {
		t.fl.seen(netrule.SchemeOther, q.Target)
	}
	return next, code
}

// judgeScheme applies rules with schemes to what is seen. Without such rules the verdict cannot have changed.
func (t *tunnel) judgeScheme(q netrule.Query) (step, netrule.Code) {
	if t.schemeIsFree() {
		return stepPass, 0
	}
	return t.judgeSchemeByRules(q)
}

// schemeIsFree reports that the rules of the admission are still in force, and that none asks for a scheme.
func (t *tunnel) schemeIsFree() bool {
	return !t.fl.policy.UsesSchemes() && t.srv.Gate.isCurrent(t.fl.policy, t.fl.workspace)
}

//go:noinline
func (t *tunnel) judgeSchemeByRules(q netrule.Query) (step, netrule.Code) {
	a := t.admit(q)
	if a.OK {
		if a.Decision.DryRun && !t.admit(t.fl.current()).Decision.DryRun { // else it has been recorded
			t.observeInside(netrule.CodeDryRun, q.Target, &a, outcomeOK)
		}
		return stepPass, 0
	}
	code := a.Code
	if code == netrule.CodeNotAllowed {
		code = netrule.CodeSchemeMismatch
	}
	t.opening.why = &a
	return stepRefuse, code
}

// admit judges at the address that the tunnel has been connected to.
func (t *tunnel) admit(q netrule.Query) Admission {
	return t.srv.Gate.AdmitAt(q, t.fl.workspace, t.fl.dest, t.fl.dialed)
}

// observeInside records what became of a tunnel once it was looked into, under the id of the tunnel.
func (t *tunnel) observeInside(code netrule.Code, target netrule.Target, a *Admission, outcome string) {
	var r decisionlog.Decision
	t.begin(&r)
	r.Time, r.ID, r.Stage, r.Protocol, r.Target = time.Now(), t.fl.id, stageTunnel, t.fl.protocol, target
	r.Judged, r.Code, r.Outcome, r.Dialed = true, code, outcome, t.fl.dialed
	if a != nil && a.Judged {
		r.Decision = a.Decision
	}
	if outcome == outcomeRefused {
		r.Decision.Action = netrule.Deny
		r.Decision.Code = code
	} else {
		r.Decision.Action = netrule.Allow
	}
	r.SNI, r.ECH = t.opening.hello.sni, t.opening.hello.ech
	t.srv.decided(&r)
}

// stageTunnel marks records about what a tunnel carries.
const stageTunnel = "tunnel"

// serveHTTP serves clear HTTP in a tunnel: every request is judged, and goes to the tunnel's target whatever it says.
func (t *tunnel) serveHTTP() {
	t.takeOver()
	q := t.fl.current()
	q.Target.Scheme = netrule.SchemeHTTP
	t.fl.seen(netrule.SchemeHTTP, q.Target)
	c := t.within(q.Target)
	defer c.leave(t)
	c.serveWithin()
}

// inspect terminates the TLS of a tunnel.
func (t *tunnel) inspect() {
	t.takeOver()
	target := t.fl.name()
	defer t.close()
	var used atomic.Bool
	t.srv.Inspector.Inspect(t.srv.base, &InspectedTunnel{
		Client: &replayConn{Conn: t.client, first: t.opening.held, fl: t.fl},
		Host:   target.Host, Port: target.Port, ID: t.fl.id,
		Dial: func(ctx context.Context) (net.Conn, error) {
			if used.CompareAndSwap(false, true) {
				return t.target, nil
			}
			return t.srv.dialAgain(ctx, t.fl)
		},
		Judge: func(host string, port uint16) (netrule.Code, bool) {
			return t.judgeInner(target, host, port)
		},
		Requested: func(r InnerRequest) { t.observeInner(target, r) },
	})
	t.fl.note("client", "eof")
}

// judgeInner judges the authority of a request inside inspected TLS. Only that of the tunnel passes, and only as long as
// the rules say so.
func (t *tunnel) judgeInner(target netrule.Target, host string, port uint16) (netrule.Code, bool) {
	if host != target.Host || port != target.Port {
		return netrule.CodeHostMismatch, false
	}
	q := t.fl.current()
	q.Target = target
	a := t.admit(q)
	return a.Code, a.OK
}

func (t *tunnel) observeInner(target netrule.Target, in InnerRequest) {
	var r decisionlog.Decision
	t.begin(&r)
	r.Time, r.ID, r.Stage, r.Protocol, r.Target = time.Now(), t.fl.id, stageTunnel, "inspected", target
	r.Judged, r.Code, r.Outcome, r.Dialed = true, in.Code, outcomeOK, t.fl.dialed
	r.Decision.Action, r.Decision.Code = netrule.Allow, in.Code
	q := t.fl.current()
	q.Target = target
	if a := t.admit(q); a.Code == in.Code {
		r.Decision = a.Decision // what it was, unless the rules have changed in between
	}
	r.Request = &decisionlog.Request{Method: in.Method, Path: in.Path, Status: in.Status}
	switch status := wireOf(in.Code).status; {
	case in.Code == netrule.CodeAllowedByRule || in.Code == netrule.CodeAllowedByMode || in.Code == netrule.CodeDryRun || in.Code == netrule.CodeApproved:
	case status >= 500:
		r.Outcome = outcomeFailed
	default:
		r.Outcome, r.Decision.Action = outcomeRefused, netrule.Deny
	}
	t.srv.decided(&r)
}

// replayConn gives bytes that were read before once more, and counts what passes.
type replayConn struct {
	net.Conn
	first []byte
	fl    *flight
}

func (c *replayConn) Read(b []byte) (n int, err error) {
	if len(c.first) > 0 {
		n = copy(b, c.first)
		c.first = c.first[n:]
	} else {
		n, err = c.Conn.Read(b)
	}
	c.fl.carried(true, int64(n))
	c.fl.touch()
	return n, err
}

func (c *replayConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.fl.carried(false, int64(n))
	c.fl.touch()
	return n, err
}

// CloseWrite half-closes where the connection can.
func (c *replayConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
