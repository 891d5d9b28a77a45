package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate is a self-signed certificate for 127.0.0.1 and localhost, as
// files: it serves as a server's, as a client's and as its own authority.
type Certificate struct {
	// CertFile and KeyFile are the paths of the PEM files.
	CertFile, KeyFile string

	parsed *x509.Certificate
}

// NewCertificate makes a certificate that is valid for a day.
func NewCertificate(t testing.TB) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "servertest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatalf("signing a certificate: %v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("encoding a key: %v", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("reading a certificate: %v", err)
	}
	dir := t.TempDir()
	return Certificate{
		CertFile: writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", der),
		KeyFile:  writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", keyDER),
		parsed:   parsed,
	}
}

// pool returns the certificate as the one authority to be trusted.
func (c Certificate) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.parsed)
	return pool
}

func writePEM(t testing.TB, path, kind string, der []byte) string {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatalf("writing %s: %v", path, err)
	}
	return path
}
