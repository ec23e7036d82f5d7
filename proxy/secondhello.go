package proxy

import (
	"bytes"
	"errors"
	"strings"
)

// secondHello follows what a client sends behind its hello, as far as another one in clear may come: a server may ask for
// it (RFC 8446 §4.1.4), and some then go by the name of that one. It is held until it is whole, and must name the host of
// the first.
type secondHello struct {
	first *clientHello
	held  []byte // the beginning of a record that cannot be told yet
	skip  int    // bytes of a record that pass
	early int    // bytes of early data that may still pass before the hello
}

// maxEarly is how much early data (RFC 8446 §4.2.10) may lie between two hellos: servers skip less.
const maxEarly = 64 << 10

const recordApplication = 23

var errOtherHello = errors.New("a second hello for another host")

// expectHello begins behind the first hello.
func expectHello(first *clientHello) *secondHello {
	s := &secondHello{first: first}
	if first.earlyData {
		s.early = maxEarly
	}
	return s
}

// take gives what may pass of the bytes so far, valid until the next call. done says that no hello can come any more.
func (s *secondHello) take(b []byte) (pass []byte, done bool, err error) {
	if s.held != nil {
		b = append(s.held, b...)
		s.held = nil
	}
	for at := 0; ; {
		n := min(s.skip, len(b)-at)
		s.skip -= n
		at += n
		rest := b[at:]
		if len(rest) == 0 {
			return b, false, nil
		}
		done, err := s.look(rest)
		switch {
		case errors.Is(err, errHelloMore):
			s.held = bytes.Clone(rest)
			return b[:at], false, nil
		case err != nil:
			return nil, false, err
		case done:
			return b, true, nil
		}
	}
}

// look judges one record. Unless it is done, or needs more, the record passes.
func (s *secondHello) look(b []byte) (done bool, err error) {
	if len(b) < recordHeader {
		return false, errHelloMore
	}
	length := int(b[3])<<8 | int(b[4])
	switch b[0] {
	case recordHandshake:
		if length > 0 && len(b) == recordHeader {
			return false, errHelloMore
		}
		if length > 0 && b[recordHeader] != messageClientHello {
			return true, nil
		}
		again, _, err := parseHello(b)
		if err == nil && (again.hasSNI != s.first.hasSNI || !strings.EqualFold(again.sni, s.first.sni)) {
			err = errOtherHello
		}
		return err == nil, err
	case recordApplication:
		if s.early -= length; s.early < 0 {
			return true, nil
		}
	}
	s.skip = recordHeader + length // a change of cipher, an alert, early data: a hello may still come
	return false, nil
}
