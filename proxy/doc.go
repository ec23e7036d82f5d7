// Package proxy is the wire: listeners, request heads, CONNECT tunnels and forwarded requests, and the answers to what
// is refused.
//
// One goroutine owns a client connection and reads every byte of it. A connection is walked as design has it: the head
// is scanned strictly (head.go), the Gate admits the target (gate.go), the dialer connects to pinned addresses only, and
// the tunnel (tunnel.go) or the forwarder (forward.go) moves the bytes. net/http reads no message here.
//
// The package never sees a rule file: it is given a function that yields the policy of a workspace, and a nil policy
// refuses.
package proxy
