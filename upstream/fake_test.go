package upstream

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// serveOn hands each connection to a function of its own goroutine, and closes it behind it.
func serveOn(t testing.TB, l net.Listener, handle func(net.Conn)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// fake starts a parent that does as the function says and gives its authority.
func fake(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, handle)
	return l.Addr().String()
}

// readHead reads up to an empty line.
func readHead(r *bufio.Reader) string {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String()
		}
	}
}

// answering is a parent that reads a request, says something, and then echoes what comes.
func answering(heads chan<- string, answers ...string) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		head := readHead(r)
		if heads != nil {
			heads <- head
		}
		for _, a := range answers {
			if _, err := io.WriteString(c, a); err != nil {
				return
			}
		}
		_, _ = io.Copy(c, r)
	}
}

// echoes checks that a connection is whole: both ways, and without a deadline.
func echoes(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Fatalf("%q %v", got, err)
	}
}

// asParentError checks step and status of an error, and that it shows no password.
func asParentError(t *testing.T, err error, op string, status int) *ParentError {
	t.Helper()
	var pe *ParentError
	if !errors.As(err, &pe) {
		t.Fatalf("%T %v is no ParentError", err, err)
	}
	if pe.Op != op || pe.Status != status {
		t.Errorf("got %s %d (%v), want %s %d", pe.Op, pe.Status, err, op, status)
	}
	if strings.Contains(err.Error(), "sesame") {
		t.Errorf("the error shows the password: %v", err)
	}
	return pe
}

// authority makes a CA and a certificate of it for a name or address.
func authority(t testing.TB, host string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter}
	if addr, err := netip.ParseAddr(host); err == nil {
		leaf.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		leaf.DNSNames = []string{host}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return pool, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
