package proxy

import "time"

// watchAfter is how long a response may take before somebody looks whether the client is still there.
const watchAfter = time.Second

// watcher is told what a watch sees.
type watcher interface {
	clientGone()  // the connection was reset
	clientEnded() // the client's side has ended; some clients still wait
}

// clientGone ends the exchange.
func (x *exchange) clientGone() {
	x.fl.note("client", "error")
	x.fl.end()
}

// clientEnded puts the exchange on the clock of a half-closed one.
func (x *exchange) clientEnded() { x.fl.half.Store(true) }
