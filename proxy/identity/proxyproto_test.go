package identity

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"
)

// v2 makes a binary header: command, family, and what the length counts.
func v2(command, family byte, body string) string {
	return signatureV2 + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + body
}

const (
	ends4 = "\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x34\x0c\x38"                                                                                                 // 192.0.2.1:4660 to 10.0.0.1:3128
	ends6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x12\x34\x0c\x38" // [2001:db8::1]:4660
	from6 = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01\x12\x34\x0c\x38" // mapped
	long6 = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"                                       // the longest that has addresses
	tlv   = "\x04\x00\x03abc"                                                                                                                                  // PP2_TYPE_NOOP
	addr4 = "192.0.2.1:4660"
	addr6 = "[2001:db8::1]:4660"
)

func TestParseProxyHeader(t *testing.T) {
	tests := []struct{ name, header, want string }{
		{"TCP4", "PROXY TCP4 192.0.2.1 10.0.0.1 4660 3128\r\n", addr4},
		{"TCP6", "PROXY TCP6 2001:db8::1 2001:db8::2 4660 3128\r\n", addr6},
		{"TCP6 in full", "PROXY TCP6 2001:0DB8:0000:0000:0000:0000:0000:0001 2001:db8::2 4660 3128\r\n", addr6},
		{"TCP6 of a mapped address", "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 4660 3128\r\n", addr4},
		{"the longest", long6, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
		{"ports of 0", "PROXY TCP4 192.0.2.1 10.0.0.1 0 0\r\n", "192.0.2.1:0"},
		{"UNKNOWN", "PROXY UNKNOWN\r\n", ""},
		{"UNKNOWN with words", "PROXY UNKNOWN ffff::1 whatever 1 2\r\n", ""},
		{"UNKNOWN, 107 bytes", "PROXY UNKNOWN " + strings.Repeat("x", 107-16) + "\r\n", ""},

		{"v2 TCP4", v2(proxyV2, tcp4V2, ends4), addr4},
		{"v2 TCP6", v2(proxyV2, tcp6V2, ends6), addr6},
		{"v2 TCP6 of a mapped address", v2(proxyV2, tcp6V2, from6), addr4},
		{"v2 with TLVs", v2(proxyV2, tcp4V2, ends4+tlv+tlv), addr4},
		{"v2 with TLVs, IPv6", v2(proxyV2, tcp6V2, ends6+tlv), addr6},
		{"v2 of 4 KiB", v2(proxyV2, tcp4V2, ends4+strings.Repeat("\x04\x00\x01a", 1017)), addr4},
		{"v2 LOCAL", v2(localV2, 0, ""), ""},
		{"v2 LOCAL with addresses", v2(localV2, tcp4V2, ends4), ""},
		{"v2 LOCAL of another transport", v2(localV2, 0x12, ends4+tlv), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const rest = "CONNECT a.test:443 HTTP/1.1\r\n\r\n"
			addr, n, err := ParseProxyHeader([]byte(tt.header + rest))
			got := ""
			if addr.IsValid() {
				got = addr.String()
			}
			if err != nil || got != tt.want || n != len(tt.header) {
				t.Errorf("%s, %d bytes, %v, want %s, %d", got, n, err, tt.want, len(tt.header))
			}
			for i := range len(tt.header) {
				if addr, n, err := ParseProxyHeader([]byte(tt.header[:i])); !errors.Is(err, ErrMore) || n != 0 || addr.IsValid() {
					t.Fatalf("the first %d bytes: %v %d %v, want ErrMore", i, addr, n, err)
				}
			}
		})
	}
}

func TestParseProxyHeaderRefuses(t *testing.T) {
	const (
		none  = "no PROXY header"
		words = "PROXY header, version 1: not five words"
		ends  = "PROXY header, version 1: a malformed address or port"
		line  = "PROXY header, version 1: a line that does not end in CR LF"
		kind  = "PROXY header, version 1: a transport other than TCP4 and TCP6"
		kind2 = "PROXY header, version 2: a transport other than TCP over IPv4 and IPv6"
		short = "PROXY header, version 2: too short for its addresses"
		other = "PROXY header, version 2: another version or command"
	)
	for header, want := range map[string]string{
		"GET / HTTP/1.1\r\n":                                none,
		"\x05":                                              none,
		"proxy TCP4 192.0.2.1 10.0.0.1 1 2\r\n":             none,
		"PROXY\tTCP4 192.0.2.1 10.0.0.1 1 2\r\n":            none,
		"\r\n\r\n\x00\r\nQUIT\r":                            none,
		"PROXY \n":                                          line,
		"PROXY \r\n":                                        words,
		"PROXY TCP4\r\n":                                    words,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\n":               line,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1\r\n":               words,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 2 \r\n":            words,
		"PROXY TCP4  192.0.2.1 10.0.0.1 1 2\r\n":            words,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n":           words,
		"PROXY TCP4 192.0.2.1 10.0.0.1 01 2\r\n":            ends,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 +2\r\n":            ends,
		"PROXY TCP4 192.0.2.1 10.0.0.1 65536 2\r\n":         ends,
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\r\n":           ends,
		"PROXY TCP4 192.0.2.01 10.0.0.1 1 2\r\n":            ends,
		"PROXY TCP4 192.0.2.1 10.0.0.256 1 2\r\n":           ends,
		"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n":        ends,
		"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n":             ends,
		"PROXY TCP6 fe80::1%eth0 2001:db8::2 1 2\r\n":       ends,
		"PROXY TCP4 host.test 10.0.0.1 1 2\r\n":             ends,
		"PROXY UDP4 192.0.2.1 10.0.0.1 1 2\r\n":             kind,
		"PROXY UNKNOWNS 192.0.2.1 10.0.0.1 1 2\r\n":         kind,
		"PROXY tcp4 192.0.2.1 10.0.0.1 1 2\r\n":             kind,
		"PROXY UNKNOWN " + strings.Repeat("x", 200):         "PROXY header, version 1: longer than 107 bytes",
		"PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n": "PROXY header, version 1: longer than 107 bytes",

		v2(0x22, tcp4V2, ends4):    other,
		v2(0x11, tcp4V2, ends4):    other,
		v2(0x00, tcp4V2, ends4):    other,
		v2(proxyV2, 0x00, ends4):   kind2,
		v2(proxyV2, 0x12, ends4):   kind2, // UDP
		v2(proxyV2, 0x31, ends6):   kind2, // a unix socket
		v2(proxyV2, 0x41, ends4):   kind2,
		v2(proxyV2, tcp4V2, ""):    short,
		v2(proxyV2, tcp4V2, "123"): short,
		v2(proxyV2, tcp6V2, ends4): short,
		v2(proxyV2, tcp4V2, ends4+strings.Repeat("\x04\x00\x00", 1400)): "PROXY header, version 2: longer than 4 KiB",
		v2(localV2, 0, strings.Repeat("x", 4081)):                       "PROXY header, version 2: longer than 4 KiB",
	} {
		if addr, n, err := ParseProxyHeader([]byte(header)); err == nil || err.Error() != want || n != 0 || addr.IsValid() {
			t.Errorf("%.70q: %v, %d, %v, want %s", header, addr, n, err, want)
		}
	}
}

// checkProxyHeader compares with another implementation: what we take it takes, with the same address and length.
func checkProxyHeader(t *testing.T, b []byte) {
	addr, n, err := ParseProxyHeader(b)
	if err != nil {
		if n != 0 || addr.IsValid() || errors.Is(err, ErrMore) && len(b) >= maxHeaderV2 {
			t.Fatalf("%q: %v, %d, %v", b, addr, n, err)
		}
		return
	}
	if n <= 0 || n > len(b) || n > maxHeaderV2 {
		t.Fatalf("%q: a header of %d bytes", b, n)
	}
	again, m, err := ParseProxyHeader(b[:n])
	if err != nil || m != n || again != addr {
		t.Fatalf("%q: depends on what follows", b)
	}
	r := bufio.NewReaderSize(bytes.NewReader(b), 1<<16)
	h, err := proxyproto.Read(r)
	if !addr.IsValid() {
		return // the other one is stricter and laxer about what must be ignored
	}
	if err != nil {
		t.Fatalf("%q: taken here, refused there: %v", b, err)
	}
	source, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok || netip.AddrPortFrom(source.AddrPort().Addr().Unmap(), source.AddrPort().Port()) != addr {
		t.Fatalf("%q: %v here, %v there", b, addr, h.SourceAddr)
	}
	if left := r.Buffered(); left != len(b)-n {
		t.Fatalf("%q: %d bytes follow here, %d there", b, len(b)-n, left)
	}
}

func FuzzParseProxyHeader(f *testing.F) {
	for _, seed := range []string{
		"PROXY TCP4 192.0.2.1 10.0.0.1 4660 3128\r\nGET", long6, "PROXY UNKNOWN\r\n", v2(proxyV2, tcp4V2, ends4), v2(proxyV2, tcp6V2, ends6+tlv) + "rest", v2(localV2, 0, ""),
		"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkProxyHeader)
}

// What another implementation writes is read here.
func TestParseProxyHeaderOfOthers(t *testing.T) {
	for _, pair := range [][2]string{{addr4, "10.0.0.1:3128"}, {addr6, "[2001:db8::2]:3128"}} {
		from, to := netip.MustParseAddrPort(pair[0]), netip.MustParseAddrPort(pair[1])
		for _, version := range []byte{1, 2} {
			h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to))
			text, err := h.Format()
			if err != nil {
				t.Fatal(err)
			}
			if got, n, err := ParseProxyHeader(text); err != nil || got != from || n != len(text) {
				t.Errorf("version %d: %v, %d, %v, want %v", version, got, n, err, from)
			}
		}
	}
}
