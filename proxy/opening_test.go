package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// helloOf gives the ClientHello that crypto/tls sends for a name.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan []byte, 1)
	go func() {
		var head [5]byte
		_, _ = io.ReadFull(server, head[:])
		body := make([]byte, int(head[3])<<8|int(head[4]))
		_, _ = io.ReadFull(server, body)
		server.Close()
		done <- append(head[:], body...)
	}()
	_ = tls.Client(client, config).Handshake()
	client.Close()
	return <-done
}

// inRecords cuts the handshake message of a hello into records of a size.
func inRecords(hello []byte, size int) []byte {
	var out []byte
	for message := hello[5:]; len(message) > 0; {
		n := min(size, len(message))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

// TestParseHello: whole, cut anywhere, in records of any size; what is malformed or names two hosts is no hello (CON-16,
// CON-17).
func TestParseHello(t *testing.T) {
	hello := helloOf(t, &tls.Config{ServerName: "a.test"})
	for _, b := range [][]byte{hello, inRecords(hello, 1), inRecords(hello, 100), append(bytes.Clone(hello), "more"...)} {
		h, err := parseHello(b)
		if err != nil || h.sni != "a.test" || !h.hasSNI {
			t.Fatalf("%+v %v", h, err)
		}
	}
	for i := range len(hello) {
		if _, err := parseHello(hello[:i]); !errors.Is(err, errHelloMore) {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
	if h, err := parseHello(helloOf(t, &tls.Config{InsecureSkipVerify: true})); err != nil || h.hasSNI { //nolint:gosec // it is never verified here
		t.Errorf("without a name: %+v %v", h, err)
	}
	twice := bytes.Replace(hello, []byte("\x00\x0b\x00\x09\x00\x00\x06a.test"), []byte("\x00\x0b\x00\x09\x00\x00\x02aa\x00\x00\x01b"), 1)
	for name, bad := range map[string][]byte{
		"another record":     append([]byte{22, 3, 1, 0, 1, 1, 23, 3, 3, 0, 1}, 0),
		"a server's message": {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"an empty record":    {22, 3, 1, 0, 0},
		"a huge record":      {22, 3, 1, 0xff, 0xff, 1},
		"a huge hello":       {22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff},
		"another version":    {22, 2, 1, 0, 4, 1, 0, 0, 0},
		"two names":          twice,
		"endless":            append(bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 1), bytes.Repeat([]byte{22, 3, 1, 0, 1, 0}, 3000)...),
	} {
		if h, err := parseHello(bad); !errors.Is(err, errHello) {
			t.Errorf("%s: %+v %v", name, h, err)
		}
	}
}

func FuzzParseHello(f *testing.F) {
	hello := helloOf(f, &tls.Config{ServerName: "a.test"})
	f.Add(hello)
	f.Add(inRecords(hello, 7))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if again, err := parseHello(append(bytes.Clone(b), "tail"...)); err != nil || again != h {
			t.Fatalf("with more behind it: %+v %v", again, err)
		}
	})
}

// TestReadsAs: what a text in a tunnel may become, as the most lenient origin reads it.
func TestReadsAs(t *testing.T) {
	for text, want := range map[string]textKind{
		"GET / HTTP/1.1\r\n":                textHTTP,
		"get /x http/1.0\n":                 textHTTP,
		"\r\n\r\nGET / HTTP/1.1\r\n":        textHTTP,
		"GET\t/\tHTTP/1.1\r\n":              textHTTP,
		"GET / HTTP/2.0\r\n":                textHTTP,
		"GET":                               textMore,
		"GET /":                             textMore,
		"GET / HTTP/1.1":                    textMore,
		"\r\n":                              textMore,
		"SSH-2.0-OpenSSH_9.6 x\r\n":         textOther,
		"SSH-2.0-OpenSSH_9.6\r\n":           textOther,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":  textOther,
		"EHLO a.test\r\n":                   textOther,
		"*1\r\n":                            textOther,
		"\x00":                              textOther,
		strings.Repeat("A", 33):             textOther,
		"GET /" + strings.Repeat("a", 2000): textTooLong,
		strings.Repeat("\r\n", 1000):        textTooLong,
	} {
		if got := readsAs([]byte(text), false, 1000); got != want {
			t.Errorf("%.40q is %d, want %d", text, got, want)
		}
	}
	for _, text := range []string{"GET", "GET /", "hello"} {
		if got := readsAs([]byte(text), true, 1000); got != textOther {
			t.Errorf("%q at the end is %d", text, got)
		}
	}
}

// FuzzReadsAs: a verdict once given does not depend on how the bytes arrive.
func FuzzReadsAs(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\n", "SSH-2.0-x\r\n", "\r\nPUT /", "PRI * HTTP/2.0\r\n", "A\tb HTTP/"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		last := textMore
		for i := range len(b) + 1 {
			kind := readsAs(b[:i], false, 1<<20)
			if last != textMore && kind != last {
				t.Fatalf("%q: %d after %d bytes, %d before", b[:i], kind, i, last)
			}
			last = kind
		}
	})
}
