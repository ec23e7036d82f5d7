//go:build !unix

package proxy

import "time"

// watchClient cannot look without reading here; the idle limit ends what nobody waits for.
func (x *exchange) watchClient(bool) (stop func()) { return func() {} }

// watchFor cannot look without reading here; limits.answer bounds what it would watch.
func (c *conn) watchFor(time.Duration, func(), func()) (stop func()) { return func() {} }
