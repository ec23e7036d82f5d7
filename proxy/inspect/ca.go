package inspect

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// CA is a new certificate authority, in PEM.
type CA struct {
	Cert, Key []byte
	// Fingerprint is the SHA-256 of the certificate, in hexadecimal with colons.
	Fingerprint string
	NotAfter    time.Time
}

const (
	caLife    = 365 * 24 * time.Hour
	clockSkew = time.Hour // that a client's clock may be behind
)

// NewCA makes a CA that can speak for servers in the domains and for nothing else: names outside of them and every
// address are excluded by a critical constraint (RFC 5280 §4.2.1.10). It lives for one year from now.
func NewCA(domainTexts []string, now time.Time) (*CA, error) {
	d, err := parseDomains(domainTexts)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// The serial number tells one CA from the next in the lists of a trust store.
		Subject:               pkix.Name{CommonName: "dshproxy inspection CA " + hex.EncodeToString(serial.Bytes()[:4])},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		// A kind of name that has no permitted subtree is not constrained at all, so each needs a word of its own.
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         d.names(),
		ExcludedIPRanges:            []*net.IPNet{everyIP(net.IPv4len), everyIP(net.IPv6len)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &CA{
		Cert:        pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		Fingerprint: fingerprint(der), NotAfter: template.NotAfter,
	}, nil
}

func everyIP(size int) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, size), Mask: make(net.IPMask, size)}
}

// newSerial draws a positive number of 127 bits (RFC 5280 §4.1.2.2).
func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x7f | 0x40 // so that it is never short
	return new(big.Int).SetBytes(b[:]), nil
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// authority is a CA that signs leaves.
type authority struct {
	cert *x509.Certificate
	// chain is sent behind a leaf: what was given, without a root, which no client takes from the wire.
	chain [][]byte
	key   crypto.Signer
}

// loadAuthority reads a CA and refuses one that could not serve: expired, no CA, or with another one's key.
func loadAuthority(certPEM, keyPEM []byte, now time.Time) (*authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "tls: "))
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	cert := pair.Leaf
	switch {
	case now.After(cert.NotAfter):
		return nil, fmt.Errorf("the certificate has expired, on %s", cert.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(cert.NotBefore):
		return nil, fmt.Errorf("the certificate is not valid before %s", cert.NotBefore.UTC().Format(time.RFC3339))
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return nil, errors.New("the certificate is not that of a CA")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("the certificate may not sign others")
	}
	a := &authority{cert: cert, chain: pair.Certificate, key: key}
	if bytes.Equal(cert.RawIssuer, cert.RawSubject) {
		a.chain = nil
	}
	return a, nil
}

// speaksFor tries whether clients accept what the CA signs, for samples of every domain: with that, its name constraints
// are held against the domains by the code that clients use, not by a reading of ours.
func (a *authority) speaksFor(d domains, l *leaves, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for i := range d {
		for _, name := range d[i].samples() {
			leaf, err := l.sign(name, now)
			if err != nil {
				return err
			}
			if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
				return fmt.Errorf("the CA cannot speak for the domain %q: %w", d[i].text, err)
			}
		}
	}
	return nil
}
