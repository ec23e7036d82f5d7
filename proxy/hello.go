package proxy

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

// clientHello is what a TLS client says before anything is encrypted, as far as it says where it wants to go.
type clientHello struct {
	sni    string // as it stands there; empty without one
	hasSNI bool
	ech    bool // an encrypted hello is in it (RFC 9849), or what looks like one

	earlyData bool // application data may follow at once (RFC 8446 §4.2.10)
}

const (
	recordHandshake    = 22
	recordHeader       = 5
	messageClientHello = 1
	maxRecord          = 1 << 14
	maxHello           = 16 << 10 // of all records that it takes, headers included

	extensionServerName = 0
	extensionEarlyData  = 42
	extensionECH        = 0xfe0d
)

var (
	errHelloMore = errors.New("more bytes are needed")
	errHello     = errors.New("no TLS hello")
)

// parseHello reads a ClientHello (RFC 8446 §4.1.2) that may be spread over records at will. errHelloMore means that the
// bytes so far are the beginning of one. rest is what follows its last record.
func parseHello(b []byte) (h clientHello, rest []byte, err error) {
	message, rest, err := helloMessage(b)
	if err != nil {
		return h, nil, err
	}
	h, err = helloBody(message)
	return h, rest, err
}

// helloMessage joins the handshake message out of its records (RFC 8446 §5.1). Nothing else may stand in the last one: a
// client has nothing to say before the server has spoken.
func helloMessage(b []byte) (message, rest []byte, err error) {
	owned := false // by this function, which has to join several records
	for whole := b; ; {
		if len(b) < recordHeader {
			return nil, nil, moreUpTo(whole)
		}
		length := int(b[3])<<8 | int(b[4])
		if b[0] != recordHandshake || b[1] != 3 || length == 0 || length > maxRecord {
			return nil, nil, errHello
		}
		body := b[recordHeader:]
		complete := len(body) >= length
		if complete {
			body = body[:length]
		}
		switch {
		case message == nil:
			message = body
		case owned:
			message = append(message, body...)
		default:
			message, owned = append(append(make([]byte, 0, 2*len(whole)), message...), body...), true
		}
		if len(message) > 0 && message[0] != messageClientHello {
			return nil, nil, errHello
		}
		if len(message) >= 4 {
			size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			switch {
			case size > maxHello || len(message) > 4+size:
				return nil, nil, errHello
			case len(message) == 4+size && complete:
				return message[4:], b[recordHeader+length:], nil
			case len(message) == 4+size:
				return nil, nil, errHello
			}
		}
		if !complete {
			return nil, nil, moreUpTo(whole)
		}
		b = b[recordHeader+length:]
	}
}

func moreUpTo(b []byte) error {
	if len(b) >= maxHello {
		return errHello
	}
	return errHelloMore
}

// helloBody finds the extensions. Anything malformed, and a server name that stands there twice, is an error: another
// reader may take the other one.
func helloBody(body []byte) (clientHello, error) {
	var h clientHello
	s := cryptobyte.String(body)
	var session, suites, methods, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) || !s.ReadUint8LengthPrefixed(&methods) {
		return h, errHello
	}
	if s.Empty() {
		return h, nil
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return h, errHello
	}
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return h, errHello
		}
		switch kind {
		case extensionServerName:
			if h.hasSNI || !h.serverName(data) {
				return h, errHello
			}
		case extensionEarlyData:
			h.earlyData = true
		case extensionECH:
			h.ech = true
		}
	}
	return h, nil
}

// serverName reads the list of names (RFC 6066 §3): exactly one, of the only type there is.
func (h *clientHello) serverName(data cryptobyte.String) bool {
	const hostName = 0
	var list, name cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&kind) || kind != hostName ||
		!list.ReadUint16LengthPrefixed(&name) || !list.Empty() || name.Empty() {
		return false
	}
	h.sni, h.hasSNI = string(name), true
	return true
}
