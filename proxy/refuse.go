package proxy

import (
	"errors"
	"strings"
	"time"

	"dshproxy/netrule"
)

// refuseHead answers a head that is no request.
func (c *conn) refuseHead(err error) {
	var he *headError
	if !errors.As(err, &he) {
		he = badHead("a malformed request")
	}
	r := &refusal{code: he.code, status: he.status, why: he.why}
	if c.inside != nil {
		r.target = c.inside.target
	}
	c.refuse("unknown", r)
}

// unidentified answers a client that did not prove who it is, and reports whether the connection goes on: a challenge to a
// request without body keeps it, for the same request with credentials.
func (c *conn) unidentified(code netrule.Code) bool {
	keep := code == netrule.CodeAuthRequired && c.head.framing == noBody && !c.head.close && len(c.in.bytes()) == 0
	c.recordRefused("unknown", code, "")
	c.sendRefusal(&refusal{code: code, keep: keep})
	return keep
}

func (c *conn) refuseAdmission(t netrule.Target) {
	a := &c.verdict
	c.record.Outcome = outcomeRefused
	if status := wireOf(a.Code).status; a.Judged && status >= 500 && a.Code != netrule.CodeLoop {
		c.record.Outcome = outcomeFailed
	}
	c.sendRefusal(&refusal{code: a.Code, target: t, decision: a.Decision, rcode: a.Rcode})
}

// refuse answers a request that no policy was asked about.
func (c *conn) refuse(protocol string, r *refusal) {
	c.recordRefused(protocol, r.code, r.why)
	c.record.Target = r.target
	if c.inside != nil {
		c.record.Stage, c.record.ID = stageTunnel, c.inside.tunnel.fl.id
	}
	c.sendRefusal(r)
}

// badTarget answers a target that no parser of the wire accepts: before any policy, lookup or dial.
func (c *conn) badTarget(protocol string, err error) {
	c.recordRefused(protocol, netrule.CodeBadTarget, whyNoTarget(err))
	c.record.RawTarget = authorityOf(string(c.head.target))
	c.sendRefusal(&refusal{code: netrule.CodeBadTarget, why: "malformed target"})
}

// whyNoTarget is what a parser of targets says.
func whyNoTarget(err error) string {
	var te *netrule.TargetError
	if errors.As(err, &te) {
		return te.Why
	}
	return ""
}

// recordRefused starts the record of what is refused before any policy is asked.
func (c *conn) recordRefused(protocol string, code netrule.Code, cause string) {
	c.begin(&c.record)
	c.record.Protocol, c.record.Code, c.record.Outcome, c.record.Cause = protocol, code, outcomeRefused, cause
}

// sendRefusal writes the record and the answer, and lets the client read it.
func (c *conn) sendRefusal(r *refusal) {
	r.json = c.head.wantsJSON
	r.head = c.head.isHead
	c.observe()
	r.id = c.record.ID
	c.answer(r)
}

// answer writes a refusal and closes in a way that lets the client read it.
func (c *conn) answer(r *refusal) {
	if r.id == "" {
		r.id = newID(time.Now())
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingerFor))
	err := c.say(r)
	switch {
	case err != nil:
	case r.keep:
		_ = c.nc.SetWriteDeadline(time.Time{}) // a closed connection shows itself in the next read
	default:
		c.linger()
	}
}

// say writes a refusal in the words of the protocol.
func (c *conn) say(r *refusal) error {
	buf := c.srv.pools.small.Get().(*[]byte)
	defer c.srv.pools.small.Put(buf)
	b := (*buf)[:0]
	if c.speaksSOCKS {
		b = append(b, socksReply(r.code)...)
	} else {
		b = r.append(b, c.front.voice)
	}
	if r.keep {
		_, err := c.nc.Write(b)
		return err
	}
	return writeLast(c.nc, b)
}

// authorityOf keeps what a record may show of a target that no parser accepts: no user name or password, no path, no
// query.
func authorityOf(raw string) string {
	if _, rest, ok := strings.Cut(raw, "://"); ok {
		raw = rest
	}
	if end := strings.IndexAny(raw, "/?#"); end >= 0 {
		raw = raw[:end]
	}
	return raw[strings.LastIndexByte(raw, '@')+1:]
}
