// Package netrule decides connections: may this client reach this target, and at which addresses?
//
// A Target is cut once from the bytes of the wire. A Policy of layered rules is walked by name (Decide), and again with
// the addresses that one lookup gave (DecideAddrs); the guard then takes away special-use addresses that no rule opened.
// The answer is a Decision, which every front end renders and none reinterprets.
//
// The package is pure: it does no IO, reads no clock and no environment, and its zero values deny. It does not parse
// rule files (package rules), does not look names up (package resolve) and does not know the proxy's own listeners
// (proxy.Gate does).
package netrule
