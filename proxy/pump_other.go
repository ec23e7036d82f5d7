//go:build !linux

package proxy

// pipePool is empty where there is no splice(2).
type pipePool struct{}

func newPipePool() *pipePool { return &pipePool{} }

func (p *pipePool) close() {}

// rawReader reads without waiting in a buffer; there is nothing like it here.
type rawReader struct{}

func (p *pump) run() relayEnd { return p.copyAll() }

func (p *pump) begin(early []byte) (relayEnd, bool) { return p.beginPlain(early) }
