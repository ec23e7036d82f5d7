package inspect

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// madeCA is a CA as an operator might bring it.
type madeCA struct {
	cert *x509.Certificate
	der  []byte
	key  crypto.Signer
}

func (m *madeCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.der})
}

func (m *madeCA) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// makeCA makes a CA, signed by another one or by itself.
func makeCA(t *testing.T, by *madeCA, change func(*x509.Certificate)) *madeCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return makeCAWith(t, key, by, change)
}

func makeCAWith(t *testing.T, key crypto.Signer, by *madeCA, change func(*x509.Certificate)) *madeCA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: fmt.Sprintf("test CA %p", key)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &madeCA{cert, der, key}
}

// TestNewRefuses: a CA that could not serve stops the start, with the reason.
func TestNewRefuses(t *testing.T) {
	own, err := NewCA([]string{"api.test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	old, err := NewCA([]string{"api.test"}, time.Now().Add(-366*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	early, err := NewCA([]string{"api.test"}, time.Now().Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair := func(change func(*x509.Certificate)) Options {
		ca := makeCA(t, nil, change)
		return Options{Domains: []string{"api.test"}, CACert: ca.pem(), CAKey: ca.keyPEM(t)}
	}
	for _, test := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing", Options{}, "inspection: no domains are given"},
		{"no CA", Options{Domains: []string{"api.test"}}, "inspection CA: failed to find any PEM data in certificate input"},
		{"no key", Options{Domains: []string{"api.test"}, CACert: own.Cert}, "failed to find any PEM data in key input"},
		{"another key", Options{Domains: []string{"api.test"}, CACert: own.Cert, CAKey: old.Key}, "private key does not match public key"},
		{"expired", Options{Domains: []string{"api.test"}, CACert: old.Cert, CAKey: old.Key}, "inspection CA: the certificate has expired, on 20"},
		{"early", Options{Domains: []string{"api.test"}, CACert: early.Cert, CAKey: early.Key}, "is not valid before 20"},
		{"no CA bit", pair(func(c *x509.Certificate) { c.IsCA = false }), "is not that of a CA"},
		{"no constraints at all", pair(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, false }), "is not that of a CA"},
		{"may not sign", pair(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), "may not sign"},
		{"for clients only", pair(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), "cannot speak for the domain"},
		{"other domain", Options{Domains: []string{"api.test", "other.test"}, CACert: own.Cert, CAKey: own.Key}, `cannot speak for the domain "other.test"`},
		{"wider domain", Options{Domains: []string{"*.test"}, CACert: own.Cert, CAKey: own.Key}, `cannot speak for the domain "*.test"`},
		{"narrower constraint", pair(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"v1.api.test"} }), "cannot speak for"},
		{"apex excluded", pair(func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"api.test"} }), "cannot speak for"},
		{"glob", Options{Domains: []string{"api-*.test"}, CACert: own.Cert, CAKey: own.Key}, `domain "api-*.test": only a name`},
		{"everything", Options{Domains: []string{"*"}, CACert: own.Cert, CAKey: own.Key}, `domain "*": only a name`},
		{"address", Options{Domains: []string{"127.0.0.1"}, CACert: own.Cert, CAKey: own.Key}, `domain "127.0.0.1": only a name`},
		{"URL", Options{Domains: []string{"https://api.test"}, CACert: own.Cert, CAKey: own.Key}, "a host pattern takes no scheme"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestNewCA: the CA speaks for its domains, and clients refuse it for every other name and every address.
func TestNewCA(t *testing.T) {
	now := time.Now()
	ca, err := NewCA([]string{"api.test", "*.wild.test", "=one.test"}, now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := loadAuthority(ca.Cert, ca.Key, now)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert.NotAfter.Sub(now) > 366*24*time.Hour || now.Sub(a.cert.NotBefore) > 2*time.Hour || !ca.NotAfter.Truncate(time.Second).Equal(a.cert.NotAfter) {
		t.Errorf("it lives from %s to %s", a.cert.NotBefore, a.cert.NotAfter)
	}
	if !a.cert.PermittedDNSDomainsCritical || !a.cert.MaxPathLenZero || a.cert.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("critical %v, path length zero %v, usage %d", a.cert.PermittedDNSDomainsCritical, a.cert.MaxPathLenZero, a.cert.KeyUsage)
	}
	if len(ca.Fingerprint) != 95 || ca.Fingerprint != fingerprint(a.cert.Raw) {
		t.Errorf("fingerprint %s", ca.Fingerprint)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	verify := func(change func(*x509.Certificate)) error {
		leaf := makeCA(t, &madeCA{a.cert, nil, a.key}, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
			change(c)
		})
		_, err := leaf.cert.Verify(x509.VerifyOptions{Roots: roots})
		return err
	}
	for name, want := range map[string]bool{
		"api.test": true, "v1.api.test": true, "x.wild.test": true, "one.test": true, "xapi.test": false, "test": false, "evil.test": false, "*.test": false,
	} {
		if err := verify(func(c *x509.Certificate) { c.DNSNames = []string{name} }); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, addr := range []string{"127.0.0.1", "8.8.8.8", "2001:4860::8888"} {
		if verify(func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP(addr)} }) == nil {
			t.Errorf("it speaks for %s", addr)
		}
	}
	again, err := NewCA([]string{"api.test"}, now)
	if err != nil || bytes.Equal(again.Key, ca.Key) {
		t.Errorf("a second CA has the same key, %v", err)
	}
}

// TestLeaf: what a client gets in its handshake is good for one name and for a day at most, and signs nothing.
func TestLeaf(t *testing.T) {
	w := newWorld(t, nil)
	for range 2 { // made, and from the cache
		c := w.secure("h2")
		leaf := c.ConnectionState().PeerCertificates[0]
		now := time.Now()
		if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != host || len(leaf.IPAddresses)+len(leaf.URIs)+len(leaf.EmailAddresses) != 0 {
			t.Errorf("it is good for %v %v", leaf.DNSNames, leaf.IPAddresses)
		}
		if leaf.NotAfter.Sub(leaf.NotBefore) > 24*time.Hour || leaf.NotAfter.Before(now.Add(time.Hour)) || leaf.NotBefore.After(now.Add(-59*time.Minute)) || leaf.NotBefore.Before(now.Add(-61*time.Minute)) {
			t.Errorf("it lives from %s to %s", leaf.NotBefore, leaf.NotAfter)
		}
		if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			t.Errorf("its key is %T", leaf.PublicKey)
		}
		if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature || len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
			t.Errorf("CA %v, usage %v %v", leaf.IsCA, leaf.KeyUsage, leaf.ExtKeyUsage)
		}
		if c.ConnectionState().NegotiatedProtocol != "h2" {
			t.Errorf("ALPN chose %q", c.ConnectionState().NegotiatedProtocol)
		}
		c.Close()
	}
}

// TestLeafCache: leaves are kept, within bounds, and made anew before they end; never longer than the CA's life.
func TestLeafCache(t *testing.T) {
	now := time.Now()
	ca, err := NewCA([]string{"api.test"}, now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := loadAuthority(ca.Cert, ca.Key, now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLeaves(a)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 4
	get := func(name string, now time.Time) *tls.Certificate {
		t.Helper()
		c, err := l.get(name, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.byHost) > l.max {
			t.Fatalf("%d leaves are kept", len(l.byHost))
		}
		return c
	}
	first := get("api.test", now)
	if get("api.test", now.Add(20*time.Hour)) != first {
		t.Error("a leaf that is good was made anew")
	}
	if get("api.test", now.Add(21*time.Hour+time.Second)) == first {
		t.Error("a leaf that is about to end was kept")
	}
	for i := range 20 {
		get(fmt.Sprintf("%d.api.test", i), now)
	}
	long := strings.Repeat("a.", 100) + "api.test"
	if c := get(long, now); c.Leaf.Subject.CommonName != "" || c.Leaf.DNSNames[0] != long {
		t.Errorf("a long name gives %v", c.Leaf.Subject)
	}
	if c := get("api.test", a.cert.NotAfter.Add(-time.Minute)); c.Leaf.NotAfter.After(a.cert.NotAfter) {
		t.Errorf("the leaf lives to %s, the CA to %s", c.Leaf.NotAfter, a.cert.NotAfter)
	}
	if _, err := l.get("new.api.test", a.cert.NotAfter.Add(time.Second)); err == nil {
		t.Error("an expired CA signs")
	}
}

// TestOperatorsCA: an RSA root, and an intermediate whose chain is sent along, serve as well.
func TestOperatorsCA(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	root := makeCAWith(t, key, nil, nil)
	middle := makeCA(t, root, nil)
	for name, ca := range map[string]struct{ cert, key []byte }{
		"root":         {root.pem(), root.keyPEM(t)},
		"intermediate": {append(middle.pem(), root.pem()...), middle.keyPEM(t)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") }, func(o *Options, _ *tls.Config) {
				o.CACert, o.CAKey = ca.cert, ca.key
			})
			w.ca = &CA{Cert: root.pem()} // what the client trusts
			if _, body := w.get(w.client(2), "/"); body != "ok" {
				t.Errorf("got %q", body)
			}
			if !w.engine.NotAfter().Equal(root.cert.NotAfter) && !w.engine.NotAfter().Equal(middle.cert.NotAfter) {
				t.Errorf("it expires %s", w.engine.NotAfter())
			}
		})
	}
}

// TestDomains: patterns cover what they cover in rules.
func TestDomains(t *testing.T) {
	d, err := parseDomains([]string{"tree.test", "*.wild.test", "=one.test", "Bücher.test"})
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{domains: d}
	for name, want := range map[string]bool{
		"tree.test": true, "a.b.tree.test": true, "xtree.test": false, "wild.test": false, "a.wild.test": true,
		"one.test": true, "a.one.test": false, "xn--bcher-kva.test": true, "other.test": false, "10.0.0.1": false,
	} {
		if got := e.Covers(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got, want := fmt.Sprint(d.names()), "[tree.test wild.test one.test xn--bcher-kva.test]"; got != want {
		t.Errorf("names are %s, want %s", got, want)
	}
}
