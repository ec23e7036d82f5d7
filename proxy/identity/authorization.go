package identity

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
)

// maxAuthorization is the size of a credential in bytes. The longest token fits.
const maxAuthorization = 8 << 10

// ParseAuthorization reads the value of a Proxy-Authorization field (RFC 9110 §11.7.2): Basic with a name and a token
// (RFC 7617), or Bearer (RFC 6750 §2.1), and nothing else. It is stricter than clients need: one space, base64 with its
// padding, no control characters, at most 8 KiB. The error never tells what was sent.
func ParseAuthorization(value []byte) (Credential, error) {
	if len(value) > maxAuthorization {
		return Credential{}, errors.New("credentials of more than 8 KiB")
	}
	scheme, rest, ok := bytes.Cut(value, []byte(" "))
	if !ok || len(rest) == 0 {
		return Credential{}, errors.New("credentials without a scheme or with nothing behind it")
	}
	if !isToken68(rest) {
		return Credential{}, errors.New("credentials that are no token68")
	}
	switch strings.ToLower(string(scheme)) {
	case "basic":
		return parseBasic(rest)
	case "bearer":
		return Credential{Token: string(rest), Bearer: true}, nil
	default:
		return Credential{}, errors.New("a scheme other than Basic and Bearer")
	}
}

// parseBasic reads name:token, where the first colon ends the name.
func parseBasic(encoded []byte) (Credential, error) {
	text, err := base64.StdEncoding.Strict().DecodeString(string(encoded))
	if err != nil {
		return Credential{}, errors.New("basic credentials that are no base64")
	}
	if bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Credential{}, errors.New("basic credentials with control characters")
	}
	name, token, ok := strings.Cut(string(text), ":")
	if !ok {
		return Credential{}, errors.New("basic credentials without a colon")
	}
	return Credential{Name: name, Token: token}, nil
}

// isToken68 tests RFC 9110 §11.2: letters, digits and -._~+/, then any number of equals signs. It also keeps out the line
// ends that the base64 decoder would skip.
func isToken68(b []byte) bool {
	body := bytes.TrimRight(b, "=")
	return len(body) > 0 && !bytes.ContainsFunc(body, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("-._~+/", r)
	})
}
