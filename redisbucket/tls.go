package redisbucket

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS says how the connection to Redis is encrypted. The files are read again
// for each connection, so a renewed certificate needs no reload.
type TLS struct {
	// CAFile holds the PEM certificates to trust. Default: the system's.
	CAFile string

	// CertFile and KeyFile hold the PEM certificate and key to present. Default:
	// none. One needs the other.
	CertFile, KeyFile string

	// ServerName is the name that the server's certificate must have. Default:
	// the URL's host.
	ServerName string
}

// config returns the TLS configuration for an endpoint, nil where TLS is off.
// An error names the field that is wrong.
func (t TLS) config(endpoint address) (*tls.Config, error) {
	if !endpoint.tls && t == (TLS{}) {
		return nil, nil
	}
	host, _, _ := net.SplitHostPort(endpoint.host)
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host,
		InsecureSkipVerify: endpoint.skipVerify, //nolint:gosec // asked for by name in the URL
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading redis tls ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("reading redis tls ca: the file holds no PEM certificate")
		}
	}
	return config, t.present(config)
}

// present adds the certificate that the client presents.
func (t TLS) present(config *tls.Config) error {
	if t.CertFile == "" && t.KeyFile == "" {
		return nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return errors.New("redis tls: cert and key must be given together")
	}
	certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("reading redis tls cert and key: %w", err)
	}
	config.Certificates = []tls.Certificate{certificate}
	return nil
}
