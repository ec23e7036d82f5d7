package identity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// ErrMore says that bytes are missing before the header is whole.
var ErrMore = errors.New("identity: the PROXY header is not whole yet")

const (
	signatureV1   = "PROXY "
	signatureV2   = "\r\n\r\n\x00\r\nQUIT\n"
	maxHeaderV1   = 107 // with its line end
	lengthV2      = 16  // before addresses and TLVs
	maxHeaderV2   = 4 << 10
	localV2       = 0x20 // version and command
	proxyV2       = 0x21
	tcp4V2        = 0x11 // family and transport
	tcp6V2        = 0x21
	sizeOfTCP4V2  = 12 // two addresses, two ports
	sizeOfTCP6V2  = 36
	unknownSource = "UNKNOWN"
)

// ParseProxyHeader reads a PROXY protocol header (haproxy's proxy-protocol.txt, version 1 and 2) at the start of b: the
// client's address and the length of the header, behind which the client's own bytes begin. The address is invalid when
// the balancer speaks for itself (LOCAL, UNKNOWN): then the connection's own holds. It needs at most 4 KiB; while b may
// still become a header the error is ErrMore. TLVs are skipped, transports other than TCP refused.
func ParseProxyHeader(b []byte) (client netip.AddrPort, n int, err error) {
	switch {
	case startsAs(b, signatureV1):
		return parseV1(b)
	case startsAs(b, signatureV2):
		return parseV2(b)
	default:
		return netip.AddrPort{}, 0, errors.New("no PROXY header")
	}
}

// startsAs reports whether b begins with a signature, as far as it goes.
func startsAs(b []byte, signature string) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == signature[:n]
}

// parseV1 reads the line "PROXY TCP4 source destination sourceport destinationport".
func parseV1(b []byte) (client netip.AddrPort, n int, err error) {
	fail := func(what string) (netip.AddrPort, int, error) {
		return netip.AddrPort{}, 0, errors.New("PROXY header, version 1: " + what)
	}
	end := bytes.IndexByte(b[:min(len(b), maxHeaderV1)], '\n')
	switch {
	case end < 0 && len(b) >= maxHeaderV1:
		return fail("longer than 107 bytes")
	case end < 0:
		return netip.AddrPort{}, 0, ErrMore
	case end < len(signatureV1) || b[end-1] != '\r':
		return fail("a line that does not end in CR LF")
	}
	words := strings.Split(string(b[len(signatureV1):end-1]), " ")
	if words[0] == unknownSource {
		return netip.AddrPort{}, end + 1, nil // what follows the word must be ignored
	}
	if len(words) != 5 {
		return fail("not five words")
	}
	var is func(netip.Addr) bool
	switch words[0] {
	case "TCP4":
		is = netip.Addr.Is4
	case "TCP6":
		is = netip.Addr.Is6
	default:
		return fail("a transport other than TCP4 and TCP6")
	}
	from, okFrom := parseEndV1(words[1], words[3], is)
	_, okTo := parseEndV1(words[2], words[4], is)
	if !okFrom || !okTo {
		return fail("a malformed address or port")
	}
	return from, end + 1, nil
}

func parseEndV1(addr, port string, is func(netip.Addr) bool) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	if err != nil || !is(a) || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(p, 10) != port {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

// parseV2 reads the binary header: signature, version and command, family and transport, length, addresses, TLVs.
func parseV2(b []byte) (client netip.AddrPort, n int, err error) {
	fail := func(what string) (netip.AddrPort, int, error) {
		return netip.AddrPort{}, 0, errors.New("PROXY header, version 2: " + what)
	}
	if len(b) < lengthV2 {
		return netip.AddrPort{}, 0, ErrMore
	}
	n = lengthV2 + int(binary.BigEndian.Uint16(b[14:]))
	command, family := b[12], b[13]
	switch {
	case command != localV2 && command != proxyV2:
		return fail("another version or command")
	case n > maxHeaderV2:
		return fail("longer than 4 KiB")
	case command == proxyV2 && family != tcp4V2 && family != tcp6V2:
		return fail("a transport other than TCP over IPv4 and IPv6")
	case command == proxyV2 && n-lengthV2 < sizeV2(family):
		return fail("too short for its addresses")
	case len(b) < n:
		return netip.AddrPort{}, 0, ErrMore
	case command == localV2:
		return netip.AddrPort{}, n, nil
	}
	ends := b[lengthV2 : lengthV2+sizeV2(family)]
	size := len(ends)/2 - 2
	addr, _ := netip.AddrFromSlice(ends[:size]) // of 4 or 16 bytes
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(ends[2*size:])), n, nil
}

func sizeV2(family byte) int {
	if family == tcp4V2 {
		return sizeOfTCP4V2
	}
	return sizeOfTCP6V2
}
