package upstream

import (
	"errors"
	"fmt"
	"io"
)

// The bytes of SOCKS5 (RFC 1928 §3 to §6) and of its user and password (RFC 1929 §2).
const (
	socksVersion   = 5
	socksAnonymous = 0
	socksPassword  = 2
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksLogin     = 1 // the version of RFC 1929
)

var (
	errSOCKSVersion = errors.New("an answer that is not SOCKS5")
	errSOCKSMethod  = errors.New("it wants an authentication that was not offered")
	errSOCKSLogin   = errors.New("it refused the credentials")
	errSOCKSAddress = errors.New("an answer with an unknown kind of address")
)

// socks has a parent connect to the target. It reads the very bytes of the answers and none behind them, so nothing is
// left over. The reply code of a refusal comes with the error.
func socks(rw io.ReadWriter, l func() login, target endpoint) (code int, err error) {
	hello := []byte{socksVersion, 1, socksAnonymous}
	if l != nil {
		hello = []byte{socksVersion, 2, socksPassword, socksAnonymous}
	}
	if _, err := rw.Write(hello); err != nil {
		return 0, err
	}
	method, err := readMethod(rw, l != nil)
	if err != nil {
		return 0, err
	}
	if method == socksPassword {
		if err := socksAuthenticate(rw, l()); err != nil {
			return 0, err
		}
	}
	if _, err := rw.Write(appendSOCKS(nil, target)); err != nil {
		return 0, err
	}
	return readReply(rw)
}

// readMethod reads which of the offered methods the parent chose.
func readMethod(r io.Reader, login bool) (byte, error) {
	var b [2]byte
	if err := readFull(r, b[:]); err != nil {
		return 0, err
	}
	switch {
	case b[0] != socksVersion:
		return 0, errSOCKSVersion
	case b[1] == socksAnonymous, b[1] == socksPassword && login:
		return b[1], nil
	default: // 0xff for none, or one that nobody offered
		return 0, errSOCKSMethod
	}
}

func socksAuthenticate(rw io.ReadWriter, l login) error {
	b := append([]byte{socksLogin, byte(len(l.user))}, l.user...)
	b = append(append(b, byte(len(l.password))), l.password...)
	if _, err := rw.Write(b); err != nil {
		return err
	}
	var status [2]byte
	switch err := readFull(rw, status[:]); {
	case err != nil:
		return err
	case status[0] != socksLogin:
		return errSOCKSVersion
	case status[1] != 0:
		return errSOCKSLogin
	}
	return nil
}

// appendSOCKS writes the CONNECT request. A name goes as a name; its length is a byte, which 253 fits.
func appendSOCKS(b []byte, target endpoint) []byte {
	b = append(b, socksVersion, socksConnect, 0)
	switch addr := target.addr; {
	case addr.Is4():
		b = append(append(b, socksIPv4), addr.AsSlice()...)
	case addr.Is6():
		b = append(append(b, socksIPv6), addr.AsSlice()...)
	default:
		b = append(append(b, socksName, byte(len(target.host))), target.host...)
	}
	return append(b, byte(target.port>>8), byte(target.port))
}

// readReply reads the reply to CONNECT. The bound address in it is of no use and only skipped. A refusal is told by its
// code before the rest is waited for, which some servers leave out.
func readReply(r io.Reader) (code int, err error) {
	var b [4 + 255 + 2]byte
	if err := readFull(r, b[:2]); err != nil {
		return 0, err
	}
	if b[0] != socksVersion {
		return 0, errSOCKSVersion
	}
	if b[1] != 0 {
		return int(b[1]), refusedSOCKS(b[1])
	}
	if err := readFull(r, b[2:4]); err != nil {
		return 0, err
	}
	n := 0
	switch b[3] {
	case socksIPv4:
		n = 4
	case socksIPv6:
		n = 16
	case socksName:
		if err := readFull(r, b[:1]); err != nil {
			return 0, err
		}
		n = int(b[0])
	default:
		return 0, errSOCKSAddress
	}
	return 0, readFull(r, b[:n+2])
}

// refusedSOCKS words a reply code (RFC 1928 §6).
func refusedSOCKS(code byte) error {
	words := [...]string{
		1: "general failure", 2: "not allowed by its rules", 3: "network unreachable", 4: "host unreachable",
		5: "connection refused", 6: "TTL expired", 7: "command not supported", 8: "address type not supported",
	}
	text := "unassigned"
	if int(code) < len(words) {
		text = words[code]
	}
	return fmt.Errorf("refused with reply %d, %s", code, text)
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errAnswerEnd
	}
	return err
}
