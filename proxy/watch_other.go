//go:build !unix

package proxy

// watchClient cannot look without reading here; the idle limit ends what nobody waits for.
func (x *exchange) watchClient(bool) (stop func()) { return func() {} }

// watch cannot look without reading here; limits.answer bounds what it would watch.
func (c *conn) watch(func()) (stop func()) { return func() {} }
