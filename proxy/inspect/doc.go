// Package inspect looks into TLS tunnels to the hosts that an operator names, and into no others.
//
// An Engine terminates the client's TLS with a certificate that its own CA signs for the one host of the tunnel, serves
// HTTP/1.1 and HTTP/2 on it, and hands each request to goproxy, which runs the handlers of this package around a
// transport of ours. Each request must name the tunnel's own host and port, and is judged again. The origin's
// certificate is verified, and it is reached through the tunnel's Dial alone.
//
// goproxy's own interception is not used: its goroutines end the process when a handler panics, nothing limits the head
// of an HTTP/1 request or the time that it takes, and a failed origin closes the connection without an answer. Nothing
// is read from the environment, apart from what the system's certificate pool takes from it.
package inspect
