package proxy

import (
	"math/rand/v2"
	"time"
)

// newID makes an id that sorts by time: 48 bits of milliseconds and 80 of randomness, in Crockford's base 32 (ULID).
func newID(now time.Time) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var b [26]byte
	for i, ms := 9, uint64(now.UnixMilli()); i >= 0; i-- {
		b[i] = alphabet[ms&31]
		ms >>= 5
	}
	for i, hi, lo := 25, rand.Uint64(), rand.Uint64(); i >= 10; i-- {
		if i >= 18 {
			b[i] = alphabet[lo&31]
			lo >>= 5
		} else {
			b[i] = alphabet[hi&31]
			hi >>= 5
		}
	}
	return string(b[:])
}
