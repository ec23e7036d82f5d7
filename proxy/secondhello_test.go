package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"testing"

	"dshproxy/netrule"
)

// withEarlyData adds the extension of that name to a hello.
func withEarlyData(hello []byte) []byte {
	b := bytes.Clone(hello)
	b = append(b, 0, extensionEarlyData, 0, 0)
	grow := func(at int) {
		n := int(b[at])<<8 | int(b[at+1])
		b[at], b[at+1] = byte((n+4)>>8), byte(n+4)
	}
	grow(3) // of the record
	grow(7) // of the message
	const fixed = 5 + 4 + 2 + 32
	at := fixed + 1 + int(b[fixed])        // behind the session
	at += 2 + int(b[at])<<8 + int(b[at+1]) // behind the suites
	grow(at + 1 + int(b[at]))              // of the extensions
	return b
}

// secondHellos are what may come behind a hello for allowed.test.
func secondHellos(t testing.TB) (first []byte, cases []secondCase) {
	hello := func(name string) []byte { return helloOf(t, &tls.Config{ServerName: name, InsecureSkipVerify: true}) } //nolint:gosec // never verified
	first = hello("allowed.test")
	cipher, alert := []byte{20, 3, 3, 0, 1, 1}, []byte{21, 3, 3, 0, 2, 1, 0}
	data := append([]byte{23, 3, 3, 0, 200}, make([]byte, 200)...)
	key := append([]byte{22, 3, 3, 0, 70, 16}, make([]byte, 69)...)
	early := withEarlyData(first)
	return first, []secondCase{
		{"the same again", first, first, false},
		{"the same in capitals", first, bytes.ReplaceAll(first, []byte("allowed.test"), []byte("Allowed.TEST")), false},
		{"another one", first, hello("evil.test"), true},
		{"another one in records of a byte", first, inRecords(hello("evil.test"), 1), true},
		{"another one behind a change of cipher", first, slices.Concat(cipher, hello("evil.test")), true},
		{"another one behind an alert", first, slices.Concat(alert, cipher, hello("evil.test")), true},
		{"another one behind early data", early, slices.Concat(data, cipher, data, hello("evil.test")), true},
		{"one without a name", first, helloOf(t, &tls.Config{InsecureSkipVerify: true}), true}, //nolint:gosec // never verified
		{"one that is malformed", first, []byte{22, 3, 3, 0, 5, 1, 0, 0, 1, 0}, true},
		{"an empty handshake record", first, slices.Concat([]byte{22, 3, 3, 0, 0}, hello("evil.test")), true},
		{"ciphertext that looks like one", first, slices.Concat(data, hello("evil.test")), false},
		{"what follows a key exchange", first, slices.Concat(key, hello("evil.test")), false},
		{"what is no TLS", first, []byte("GET / HTTP/1.1"), false},
	}
}

type secondCase struct {
	name         string
	first, after []byte
	refused      bool
}

// TestSecondHello: a hello that a server asks for again names the host of the first, however its bytes arrive, and nothing
// else is held up or lost (CON-13).
func TestSecondHello(t *testing.T) {
	_, cases := secondHellos(t)
	for _, tt := range cases {
		for _, size := range []int{1, 3, 64, 1 << 20} {
			first, rest, err := parseHello(tt.first)
			if err != nil || len(rest) > 0 {
				t.Fatal(err, len(rest))
			}
			s := expectHello(&first)
			var passed []byte
			done, refused := false, false
			for chunk := range slices.Chunk(tt.after, size) {
				if done {
					passed = append(passed, chunk...)
					continue
				}
				var pass []byte
				pass, done, err = s.take(bytes.Clone(chunk))
				if refused = err != nil; refused {
					break
				}
				passed = append(passed, pass...)
			}
			passed = append(passed, s.held...)
			if refused != tt.refused || !refused && !bytes.Equal(passed, tt.after) {
				t.Errorf("%s in pieces of %d: refused %v, %d of %d bytes", tt.name, size, refused, len(passed), len(tt.after))
			}
			if refused && bytes.Contains(passed, []byte("evil.test")) {
				t.Errorf("%s in pieces of %d: the name has passed", tt.name, size)
			}
		}
	}
}

// FuzzSecondHello: no piece of what passes is lost, and how the bytes arrive does not change the verdict.
func FuzzSecondHello(f *testing.F) {
	_, cases := secondHellos(f)
	for _, c := range cases {
		f.Add(c.after, uint8(7), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8, early bool) {
		first := clientHello{sni: "allowed.test", hasSNI: true, earlyData: early}
		run := func(size int) (passed []byte, err error) {
			s := expectHello(&first)
			done := false
			for chunk := range slices.Chunk(b, size) {
				pass := chunk
				if !done {
					if pass, done, err = s.take(bytes.Clone(chunk)); err != nil {
						return nil, err
					}
				}
				passed = append(passed, pass...)
			}
			return append(passed, s.held...), nil
		}
		whole, err1 := run(max(len(b), 1))
		pieces, err2 := run(int(size) + 1)
		if (err1 == nil) != (err2 == nil) || err1 == nil && (!bytes.Equal(whole, b) || !bytes.Equal(pieces, b)) {
			t.Fatalf("%v %v, %d and %d of %d bytes", err1, err2, len(whole), len(pieces), len(b))
		}
		if err1 != nil && !errors.Is(err1, errHello) && !errors.Is(err1, errOtherHello) {
			t.Fatal(err1)
		}
	})
}

// TestSecondHelloThrough: the same through a tunnel.
func TestSecondHelloThrough(t *testing.T) {
	_, cases := secondHellos(t)
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowNames)
			w.name("allowed.test", "127.0.0.1")
			c := w.tunnelTo("allowed.test", echo(t).port).send(string(tt.first))
			got := make([]byte, len(tt.first))
			if _, err := io.ReadFull(c.r, got); err != nil || !bytes.Equal(got, tt.first) {
				t.Fatal(err)
			}
			c.send(string(tt.after))
			if !tt.refused {
				c.CloseWrite()
				if rest := c.rest(); rest != string(tt.after) {
					t.Errorf("%d of %d bytes came back", len(rest), len(tt.after))
				}
				return
			}
			if rest := c.rest(); bytes.Contains([]byte(rest), []byte("evil.test")) {
				t.Errorf("the target got it: %d bytes", len(rest))
			}
			c.Close()
			w.await("the close", func() bool { return len(w.closes) == 1 })
			if cl := w.closes[0]; cl.ClosedBy != "proxy" || cl.Why != netrule.CodeSNIMismatch.String() {
				t.Errorf("%+v", cl)
			}
		})
	}
}
