package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func itoa(n uint16) string { return strconv.Itoa(int(n)) }

// socksServer is a parent of RFC 1928 that asks for a login when it has one, and echoes behind its reply.
func socksServer(t *testing.T, user, password string, requests chan<- []byte, reply string) string {
	return fake(t, func(c net.Conn) {
		head := make([]byte, 2)
		if _, err := io.ReadFull(c, head); err != nil || head[0] != 5 {
			t.Errorf("greeting % x, %v", head, err)
			return
		}
		methods := make([]byte, head[1])
		_, _ = io.ReadFull(c, methods)
		want := byte(0)
		if user != "" {
			want = 2
		}
		if bytes.IndexByte(methods, want) < 0 {
			_, _ = c.Write([]byte{5, 0xff})
			return
		}
		_, _ = c.Write([]byte{5, want})
		if want == 2 && !socksLoginOf(c, user, password) {
			return
		}
		head = make([]byte, 5)
		_, _ = io.ReadFull(c, head)
		rest := make([]byte, map[byte]int{1: 3 + 2, 3: int(head[4]) + 2, 4: 15 + 2}[head[3]])
		_, _ = io.ReadFull(c, rest)
		requests <- append(head, rest...)
		_, _ = io.WriteString(c, reply)
		_, _ = io.Copy(c, c)
	})
}

func socksLoginOf(c net.Conn, user, password string) bool {
	want := append([]byte{1, byte(len(user))}, user...)
	want = append(append(want, byte(len(password))), password...)
	got := make([]byte, len(want))
	_, _ = io.ReadFull(c, got)
	ok := bytes.Equal(got, want)
	_, _ = c.Write([]byte{1, map[bool]byte{true: 0, false: 1}[ok]})
	return ok
}

// TestSOCKS: names go as names, adjudicated addresses as addresses (UPS-15), with a login and without; the bound address
// of the reply is skipped exactly, so that what follows is whole.
func TestSOCKS(t *testing.T) {
	requests := make(chan []byte, 1)
	replies := []string{
		"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50",
		"\x05\x00\x00\x04" + strings.Repeat("\x00", 16) + "\x00\x50",
		"\x05\x00\x00\x03\x06a.test\x00\x50",
		"\x05\x00\x00\x03\x00\x00\x50",
	}
	for _, login := range []string{"", "ann:sesame@"} {
		user, password, _ := strings.Cut(strings.TrimSuffix(login, "@"), ":")
		for _, reply := range replies {
			p := mustParent(t, "socks5h://"+login+socksServer(t, user, password, requests, reply+"hello"))
			for _, tc := range []struct {
				dest Destination
				want string
			}{
				{Named(p, "a.test", 443), "\x05\x01\x00\x03\x06a.test\x01\xbb"},
				{Named(p, "192.0.2.1", 443), "\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb"},
				{Through(p, pin(80, "192.0.2.1")), "\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"},
				{Through(p, pin(80, "2001:db8::1")), "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x00\x50"},
			} {
				c, early, _, err := dialer().DialThrough(t.Context(), tc.dest, "1.1 us-1")
				if err != nil {
					t.Fatal(err)
				}
				if got := <-requests; string(got) != tc.want {
					t.Errorf("asked % x, want % x", got, tc.want)
				}
				if _, bare := c.(*net.TCPConn); !bare || len(early) != 0 {
					t.Errorf("a %T, early %q", c, early)
				}
				hello := make([]byte, 5)
				if _, err := io.ReadFull(c, hello); err != nil || string(hello) != "hello" {
					t.Errorf("%q %v", hello, err)
				}
				echoes(t, c)
				c.Close()
			}
		}
	}
}

func TestSOCKSRefusals(t *testing.T) {
	requests := make(chan []byte, 10)
	for _, tc := range []struct {
		name, reply string
		status      int
		want        error
	}{
		{"not allowed", "\x05\x02\x00\x01", 2, nil},
		{"cut refusal", "\x05\x05", 5, nil},
		{"unassigned", "\x05\xfe", 0xfe, nil},
		{"HTTP", "HTTP/1.1 200 OK\r\n\r\n", 0, errSOCKSVersion},
		{"SOCKS4", "\x00\x5a", 0, errSOCKSVersion},
		{"unknown address", "\x05\x00\x00\x02\x00\x00", 0, errSOCKSAddress},
	} {
		p := mustParent(t, "socks5://"+socksServer(t, "", "", requests, tc.reply))
		_, _, _, err := dialer().DialThrough(t.Context(), Named(p, "a.test", 443), "1.1 us-1")
		if pe := asParentError(t, err, OpSOCKS, tc.status); tc.want != nil && !errors.Is(pe, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestSOCKSLogin: a parent that wants what was not offered, or refuses the login, is told apart, and is sent no request.
func TestSOCKSLogin(t *testing.T) {
	requests := make(chan []byte, 10)
	at := socksServer(t, "ann", "sesame", requests, "")
	odd := func(said string) string {
		return fake(t, func(c net.Conn) { _, _ = io.WriteString(c, said); _, _ = io.Copy(io.Discard, c) })
	}
	for _, tc := range []struct {
		url  string
		want error
	}{
		{"socks5://" + at, errSOCKSMethod},
		{"socks5://ann:other1@" + at, errSOCKSLogin},
		{"socks5://" + odd("\x05\x02"), errSOCKSMethod},
		{"socks5://ann:sesame@" + odd("\x05\x01"), errSOCKSMethod},
		{"socks5://" + odd("\x04\x00"), errSOCKSVersion},
		{"socks5://ann:sesame@" + odd("\x05\x02\x05\x00"), errSOCKSVersion},
	} {
		_, _, _, err := dialer().DialThrough(t.Context(), Named(mustParent(t, tc.url), "a.test", 443), "1.1 us-1")
		if pe := asParentError(t, err, OpSOCKS, 0); !errors.Is(pe, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.url, err, tc.want)
		}
	}
	if len(requests) != 0 {
		t.Error("a request was sent")
	}
}

// TestSOCKSNextAddress: the codes for an address that was not reached lead to the next one.
func TestSOCKSNextAddress(t *testing.T) {
	for code, tries := range map[byte]int{1: 2, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1} {
		requests := make(chan []byte, 10)
		p := mustParent(t, "socks5://"+socksServer(t, "", "", requests, string([]byte{5, code})))
		_, _, addr, err := dialer().DialThrough(t.Context(), Through(p, pin(1, "192.0.2.1", "192.0.2.2")), "1.1 us-1")
		asParentError(t, err, OpSOCKS, int(code))
		if len(requests) != tries || addr != (netip.AddrPort{}) {
			t.Errorf("reply %d: %d tries, %v", code, len(requests), addr)
		}
	}
}

// FuzzSOCKSReply: the method and the reply are read without a byte too many.
func FuzzSOCKSReply(f *testing.F) {
	for _, s := range []string{
		"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50rest", "\x05\x02\x05\x00\x00\x03\x01a\x00\x50", "\x05\xff", "\x05\x00\x05\x05",
		"\x05\x00\x05\x00\x00\x03\xff", "\x05\x00\x05\x00\x00\x04" + strings.Repeat("\x00", 18),
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, login bool) {
		r := bytes.NewReader(data)
		method, err := readMethod(r, login)
		if err != nil {
			return
		}
		if method != 0 && (method != 2 || !login) || r.Len() != len(data)-2 {
			t.Fatalf("% x: method %d, %d bytes left", data, method, r.Len())
		}
		reply := data[2:]
		code, err := readReply(r)
		if err != nil {
			if code != 0 && (code != int(reply[1]) || r.Len() != len(reply)-2) {
				t.Fatalf("% x: code %d, %d bytes left", data, code, r.Len())
			}
			return
		}
		length := map[byte]int{1: 10, 4: 22}[reply[3]]
		if reply[3] == 3 {
			length = 7 + int(reply[4])
		}
		if reply[0] != 5 || reply[1] != 0 || r.Len() != len(reply)-length {
			t.Fatalf("% x: %d bytes left", data, r.Len())
		}
	})
}
