package upstream

import "strconv"

// The steps in which a parent fails, as ParentError.Op has them.
const (
	OpTarget  = "target"  // the destination cannot be asked of a parent; nothing was sent
	OpLookup  = "lookup"  // of the parent's own name
	OpDial    = "dial"    // the TCP connection to it
	OpTLS     = "tls"     // the handshake with an https parent, the certificate included
	OpConnect = "connect" // the request and answer of CONNECT
	OpSOCKS   = "socks"   // the SOCKS5 negotiation
)

// ParentError is a failure of a parent, or on the way to it. It holds no credentials and nothing that the parent wrote.
type ParentError struct {
	Parent string // its URL, masked
	Op     string
	// Status is that of a refused CONNECT, or the reply code of a refused SOCKS request (RFC 1928 §6); 0 when there is none.
	Status int
	// Err is the cause; the context's error when its time was over.
	Err error
}

func (e *ParentError) Error() string {
	text := "parent proxy " + e.Parent + ": " + e.Op + ": "
	if e.Err != nil {
		return text + e.Err.Error()
	}
	return text + "refused with " + strconv.Itoa(e.Status)
}

func (e *ParentError) Unwrap() error { return e.Err }

// isUnreached reports that the parent is well but did not reach the address, so that another address may do better:
// 502 and 504 (RFC 9110 §15.6), or the SOCKS codes for a failure and for a network, host, port or time that did not do.
func (e *ParentError) isUnreached() bool {
	switch e.Op {
	case OpConnect:
		return e.Status == 502 || e.Status == 504
	case OpSOCKS:
		return e.Status == 1 || 3 <= e.Status && e.Status <= 6
	default:
		return false
	}
}
