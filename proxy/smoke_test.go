package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

func TestConnectSmoke(t *testing.T) {
	w := newWorld(t, allowLoopback)
	o := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) { io.Copy(c, r); c.CloseWrite() })
	w.name("a.test", "127.0.0.1")
	c := w.dial().send(fmt.Sprintf("CONNECT a.test:%d HTTP/1.1\r\nHost: a.test\r\n\r\nearly ", o.port))
	if got := c.response("CONNECT").Status; got != "200 Connection Established" {
		t.Fatal(got)
	}
	c.send("late")
	c.CloseWrite()
	if got := c.rest(); got != "early late" {
		t.Errorf("got %q", got)
	}
	w.await("close", func() bool { return len(w.closes) == 1 })
	if cl := w.closes[0]; cl.BytesIn != 10 || cl.BytesOut != 10 || cl.ClosedBy != "client" || cl.Why != "eof" {
		t.Errorf("%+v", cl)
	}
}

func TestForwardSmoke(t *testing.T) {
	w := newWorld(t, allowLoopback)
	o := httpOrigin(t, func(r *http.Request, head string) string { return okReply(head) })
	w.name("a.test", "127.0.0.1")
	c := w.dial()
	for range 3 {
		c.send(fmt.Sprintf("GET http://a.test:%d/x?y HTTP/1.1\r\nHost: b.test\r\nProxy-Authorization: x\r\n\r\n", o.port))
		r := c.response("GET")
		want := fmt.Sprintf("GET /x?y HTTP/1.1\r\nHost: a.test:%d\r\nVia: 1.1 %s\r\n\r\n", o.port, w.srv.Pseudonym())
		if got := bodyOf(r); got != want {
			t.Fatalf("got %q want %q", got, want)
		}
	}
	if o.accepted() != 1 {
		t.Errorf("%d origin connections", o.accepted())
	}
}
