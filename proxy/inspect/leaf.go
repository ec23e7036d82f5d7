package inspect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	leafLife  = 24 * time.Hour // from NotBefore, which lies clockSkew back
	leafRenew = 2 * time.Hour  // of life that a leaf from the cache has left, at least
	maxLeaves = 1024
	maxCN     = 64 // RFC 5280, ub-common-name
)

// leaves signs certificates for hosts and keeps them. They share one key, which never leaves the process.
type leaves struct {
	ca  *authority
	key *ecdsa.PrivateKey
	max int

	mu     sync.Mutex
	byHost map[string]*tls.Certificate
}

func newLeaves(ca *authority) (*leaves, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &leaves{ca: ca, key: key, max: maxLeaves, byHost: map[string]*tls.Certificate{}}, nil
}

// get gives a certificate for a canonical name. Names under a wildcard are the client's choice, so the cache is bounded:
// when it is full, any other one makes room.
func (l *leaves) get(host string, now time.Time) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byHost[host]; c != nil && now.Add(leafRenew).Before(c.Leaf.NotAfter) && now.After(c.Leaf.NotBefore) {
		return c, nil
	}
	c, err := l.sign(host, now)
	if err != nil {
		return nil, err
	}
	for other := range l.byHost {
		if len(l.byHost) < l.max {
			break
		}
		delete(l.byHost, other)
	}
	l.byHost[host] = c
	return c, nil
}

var errCAExpired = errors.New("the inspection CA has expired")

// sign makes a certificate that is good for one name, for less than a day, and never longer than the CA's own.
func (l *leaves) sign(host string, now time.Time) (*tls.Certificate, error) {
	if now.After(l.ca.cert.NotAfter) {
		return nil, errCAExpired
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		DNSNames:              []string{host},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(leafLife - clockSkew),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(l.ca.cert.NotAfter) {
		template.NotAfter = l.ca.cert.NotAfter
	}
	if len(host) <= maxCN {
		template.Subject = pkix.Name{CommonName: host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.ca.cert, l.key.Public(), l.ca.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign for %q: %w", host, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, l.ca.chain...), PrivateKey: l.key, Leaf: leaf}, nil
}
