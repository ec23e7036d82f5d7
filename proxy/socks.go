package proxy

import (
	"errors"
	"net/netip"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/identity"
)

// The numbers of RFC 1928 and RFC 1929.
const (
	socksVersion = 5

	methodNone     = 0
	methodPassword = 2
	methodNoneGood = 0xff

	passwordVersion = 1

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	replyGranted     = 0
	replyFailure     = 1
	replyNotAllowed  = 2
	replyUnroutable  = 3
	replyNoHost      = 4
	replyRefused     = 5
	replyTimeout     = 6
	replyNoCommand   = 7
	replyNoAddresses = 8
)

// localHint stands in the record of a SOCKS client that asked for an address: rules about names cannot see which name.
const localHint = "the client resolved the name itself; socks5h leaves that to the proxy"

var errSOCKSEnded = errors.New("the connection ended inside the SOCKS greeting")

// socks serves a SOCKS5 client (RFC 1928): greeting, credentials where tokens are configured, one CONNECT.
func (c *conn) socks() {
	c.speaksSOCKS = true
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.Limits.HeadTimeout)) // a closed connection fails in the read
	if !c.socksMethod() {
		return
	}
	target, ok := c.socksRequest()
	if !ok {
		return
	}
	_ = c.nc.SetReadDeadline(time.Time{}) // as above
	if code, shut := c.srv.shut(); shut {
		c.refuse("socks5", &refusal{code: code, target: target})
		return
	}
	c.open("socks5", target, granted)
}

// granted is the reply to a CONNECT that was carried out. The bound address is nobody's business.
var granted = []byte{socksVersion, replyGranted, 0, addressIPv4, 0, 0, 0, 0, 0, 0}

// socksMethod agrees on how the client proves who it is, and has it proved.
func (c *conn) socksMethod() bool {
	head, ok := c.take(2)
	if !ok {
		return c.socksBroken(errSOCKSEnded)
	}
	methods, ok := c.take(int(head[1]))
	if !ok {
		return c.socksBroken(errSOCKSEnded)
	}
	offers := func(method byte) bool {
		for _, m := range methods {
			if m == method {
				return true
			}
		}
		return false
	}
	method := byte(methodNoneGood)
	switch asks := c.srv.book().AsksForTokens(); {
	case asks && offers(methodPassword):
		method = methodPassword
	case offers(methodNone):
		method = methodNone
	case offers(methodPassword):
		method = methodPassword // what it sends is taken and not looked at
	}
	if _, err := c.nc.Write([]byte{socksVersion, method}); err != nil {
		return false
	}
	switch method {
	case methodNone:
		return c.socksIdentify(identity.Credential{}, false)
	case methodPassword:
		return c.socksPassword()
	default:
		return c.socksBroken(errors.New("no method that both sides know"))
	}
}

// socksPassword reads a user and a password (RFC 1929).
func (c *conn) socksPassword() bool {
	head, ok := c.take(2)
	if !ok || head[0] != passwordVersion {
		return c.socksBroken(errSOCKSEnded)
	}
	user, ok := c.take(int(head[1]))
	if !ok {
		return c.socksBroken(errSOCKSEnded)
	}
	name := string(user)
	size, ok := c.take(1)
	if !ok {
		return c.socksBroken(errSOCKSEnded)
	}
	password, ok := c.take(int(size[0]))
	if !ok {
		return c.socksBroken(errSOCKSEnded)
	}
	credential := identity.Credential{Name: name, Token: string(password)}
	if !c.socksIdentify(credential, true) {
		return false
	}
	_, err := c.nc.Write([]byte{passwordVersion, 0})
	return err == nil
}

// socksIdentify finds out who the client is; one who may not be served is told in the words of the step it is at.
func (c *conn) socksIdentify(credential identity.Credential, password bool) bool {
	presented := password && c.srv.book().AsksForTokens()
	if !presented {
		credential = identity.Credential{}
	}
	code, ok := c.identify(credential, presented)
	if ok {
		return true
	}
	c.recordRefused("socks5", code, "")
	c.observe()
	reply := []byte{passwordVersion, 1}
	if !password {
		// The request is still to come; its answer is the first that says no.
		if _, read := c.socksRequest(); !read {
			return false
		}
		reply = socksReply(code)
	}
	if _, err := c.nc.Write(reply); err == nil {
		c.linger()
	}
	return false
}

// socksRequest reads the request. What it cannot serve has been answered.
func (c *conn) socksRequest() (netrule.Target, bool) {
	head, ok := c.take(4)
	if !ok || head[0] != socksVersion {
		return netrule.Target{}, c.socksBroken(errSOCKSEnded)
	}
	command, kind := head[1], head[3]
	var size int
	switch kind {
	case addressIPv4:
		size = 4
	case addressIPv6:
		size = 16
	case addressName:
		length, ok := c.take(1)
		if !ok {
			return netrule.Target{}, c.socksBroken(errSOCKSEnded)
		}
		size = int(length[0])
	default:
		return netrule.Target{}, c.socksSays(replyNoAddresses, "an address of an unknown type")
	}
	body, ok := c.take(size + 2)
	if !ok {
		return netrule.Target{}, c.socksBroken(errSOCKSEnded)
	}
	if command != commandConnect {
		return netrule.Target{}, c.socksSays(replyNoCommand, "a command other than CONNECT")
	}
	host, port := body[:size], uint16(body[size])<<8|uint16(body[size+1])
	var target netrule.Target
	var err error
	if kind == addressName {
		target, err = netrule.TargetFromName(string(host), port)
	} else {
		addr, _ := netip.AddrFromSlice(host) // 4 or 16 bytes
		target, err = netrule.TargetFromAddr(addr, port)
		c.hint = localHint
	}
	if err != nil {
		c.recordRefused("socks5", netrule.CodeBadTarget, whyNoTarget(err))
		if kind == addressName {
			c.record.RawTarget = string(host)
		}
		c.sendRefusal(&refusal{code: netrule.CodeBadTarget})
		return target, false
	}
	return target, true
}

// take gives the next n bytes, valid until the next call; false when they do not come.
func (c *conn) take(n int) ([]byte, bool) {
	for len(c.in.bytes()) < n {
		if c.in.fill() != nil {
			return nil, false
		}
	}
	b := c.in.bytes()[:n]
	c.in.discard(n)
	return b, true
}

// socksBroken ends a connection that does not speak the protocol to its end.
func (c *conn) socksBroken(err error) bool {
	c.recordRefused("socks5", netrule.CodeBadRequest, err.Error())
	c.observe()
	c.linger()
	return false
}

// socksSays answers what is well-formed and not served.
func (c *conn) socksSays(reply byte, why string) bool {
	c.recordRefused("socks5", netrule.CodeBadRequest, why)
	c.observe()
	if _, err := c.nc.Write([]byte{socksVersion, reply, 0, addressIPv4, 0, 0, 0, 0, 0, 0}); err == nil {
		c.linger()
	}
	return false
}

// socksReply says in one byte what a code says.
func socksReply(code netrule.Code) []byte {
	reply := byte(replyFailure)
	switch code {
	case netrule.CodeDestinationIPUnroutable:
		reply = replyUnroutable
	case netrule.CodeDNSError:
		reply = replyNoHost
	case netrule.CodeConnectionRefused:
		reply = replyRefused
	case netrule.CodeConnectionTimeout, netrule.CodeDNSTimeout:
		reply = replyTimeout
	default:
		if wireOf(code).status == 403 {
			reply = replyNotAllowed
		}
	}
	return []byte{socksVersion, reply, 0, addressIPv4, 0, 0, 0, 0, 0, 0}
}
