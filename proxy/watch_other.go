//go:build !unix

package proxy

import "time"

// watch cannot look without reading here: limits.answer and the idle limit bound what it would watch.
type watch struct{}

func (*watch) start(*conn, time.Duration, watcher) {}
func (*watch) end()                                {}
