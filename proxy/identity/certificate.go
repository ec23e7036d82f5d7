package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// ofCertificate finds the first entry that a certificate satisfies.
func (b *Book) ofCertificate(cert *x509.Certificate, now time.Time) (Identity, bool) {
	if len(b.certificates) == 0 || !inTime(cert, now) {
		return Identity{}, false
	}
	sans := sansOf(cert)
	for i := range b.certificates {
		c := &b.certificates[i]
		if c.san != "" && slices.ContainsFunc(sans, c.names) || c.cn != "" && cert.Subject.CommonName == c.cn {
			return c.id, true
		}
	}
	return Identity{}, false
}

// names compares with an alternative name. DNS names have no case (RFC 4343), and letting go of it elsewhere would let
// the authority's other subjects in.
func (c *certificate) names(s san) bool {
	return s.text == c.san || s.dns && strings.EqualFold(s.text, c.san)
}

// inTime tests the validity of a certificate again: a connection can outlive it.
func inTime(cert *x509.Certificate, now time.Time) bool {
	return cert != nil && !now.IsZero() && !now.Before(cert.NotBefore) && !now.After(cert.NotAfter)
}

// san is a subject alternative name (RFC 5280 §4.2.1.6).
type san struct {
	text string
	dns  bool
}

func sansOf(cert *x509.Certificate) []san {
	var out []san
	for _, name := range cert.DNSNames {
		out = append(out, san{name, true})
	}
	for _, u := range cert.URIs {
		out = append(out, san{u.String(), false})
	}
	for _, mail := range cert.EmailAddresses {
		out = append(out, san{mail, false})
	}
	for _, ip := range cert.IPAddresses {
		out = append(out, san{ip.String(), false})
	}
	return out
}

// selfNamed is the client of a certificate that no entry names: the authority vouches for it, so it has a name, but no
// operator gave it agents.
func selfNamed(cert *x509.Certificate) Identity {
	sum := sha256.Sum256(cert.Raw)
	name := hex.EncodeToString(sum[:8])
	for _, s := range append(sansOf(cert), san{text: cert.Subject.CommonName}) {
		if checkName(s.text) == nil {
			name = s.text
			break
		}
	}
	return Identity{Name: name, Key: "cert:" + name}
}
