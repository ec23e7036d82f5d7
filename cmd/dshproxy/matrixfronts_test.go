//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// seen is what the client of a cell gets.
type seen struct {
	status int // of the proxy's answer, or of the origin's to a plain request
	fields http.Header
	reply  byte   // of SOCKS5
	body   string // of the answer; where a tunnel came about, of that to the request in it
}

// ask sends the request of a cell.
func (m *matrix) ask(t *testing.T, p *process, c *cell) seen {
	t.Helper()
	nc, err := net.Dial("tcp", p.addresses["proxy"])
	check(t, err)
	defer nc.Close()
	check(t, nc.SetDeadline(time.Now().Add(15*time.Second)))
	authority := net.JoinHostPort(c.host(), m.port(c))
	switch c.front {
	case "absolute":
		return asked(t, nc, "GET http://"+authority+"/hello.txt HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	case "websocket":
		return upgraded(t, nc, authority)
	case "socks5":
		s := seen{reply: requestSOCKS(t, nc, c.host(), m.port(c))}
		if s.reply == 0 {
			s.body = m.inside(t, nc, c.host(), authority, "origin")
		}
		return s
	default:
		root := "origin"
		if c.front == "inspected" {
			root = "inspector"
		}
		s := connected(t, nc, authority)
		if s.status == http.StatusOK {
			s.body = m.inside(t, nc, c.host(), authority, root)
		}
		return s
	}
}

// asked sends a request and reads the answer.
func asked(t *testing.T, c io.ReadWriter, request string) seen {
	t.Helper()
	_, err := io.WriteString(c, request)
	check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(t, err)
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	return seen{status: resp.StatusCode, fields: resp.Header, body: string(body)}
}

// connected asks for a tunnel.
func connected(t *testing.T, c io.ReadWriter, authority string) seen {
	t.Helper()
	_, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", authority)
	check(t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	check(t, err)
	s := seen{status: resp.StatusCode, fields: resp.Header}
	if s.status != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		s.body = string(body)
	} else if r.Buffered() > 0 {
		t.Errorf("%d bytes behind the answer to CONNECT, before anything was sent", r.Buffered())
	}
	return s
}

// inside sends a request in TLS and gives the body of the answer.
func (m *matrix) inside(t *testing.T, c net.Conn, host, authority, root string) string {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.pool(t, root)) {
		t.Fatalf("no certificate of the %s", root)
	}
	tc := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: host})
	defer tc.Close()
	s := asked(t, tc, "GET /hello.txt HTTP/1.1\r\nHost: "+authority+"\r\nConnection: close\r\n\r\n")
	if s.status != http.StatusOK {
		t.Errorf("inside: status %d", s.status)
	}
	return s.body
}

// requestSOCKS asks for a tunnel in SOCKS5 without credentials (RFC 1928) and gives the reply code.
func requestSOCKS(t *testing.T, c io.ReadWriter, host, port string) byte {
	t.Helper()
	exchange := func(request []byte, answer int) []byte {
		_, err := c.Write(request)
		check(t, err)
		b := make([]byte, answer)
		_, err = io.ReadFull(c, b)
		check(t, err)
		return b
	}
	if b := exchange([]byte{5, 1, 0}, 2); b[0] != 5 || b[1] != 0 {
		t.Fatalf("method %v, want 0", b)
	}
	n, err := strconv.Atoi(port)
	check(t, err)
	request := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	b := exchange(append(request, byte(n>>8), byte(n)), 10)
	if b[0] != 5 || b[3] != 1 {
		t.Fatalf("malformed reply %v", b)
	}
	return b[1]
}

// upgraded asks for an upgrade, and for the greeting once it has one.
func upgraded(t *testing.T, c io.ReadWriter, authority string) seen {
	t.Helper()
	_, err := fmt.Fprintf(c, "GET http://%s/echo HTTP/1.1\r\nHost: %[1]s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", authority)
	check(t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	check(t, err)
	s := seen{status: resp.StatusCode, fields: resp.Header}
	if s.status != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		s.body = string(body)
		return s
	}
	s.status = http.StatusOK // as far as the table is concerned
	_, err = fmt.Fprintln(c, greeting)
	check(t, err)
	s.body, err = r.ReadString('\n')
	check(t, err)
	return s
}
