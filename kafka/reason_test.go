package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestReason puts each error into words that hold no address, user or password.
func TestReason(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"SASL_AUTHENTICATION_FAILED":               fmt.Errorf("bob: %w", kerr.SaslAuthenticationFailed),
		"a broker's name was not found":            &net.DNSError{Name: "secret"},
		"connection refused":                       &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"the broker's certificate is not accepted": &tls.CertificateVerificationError{Err: errors.New("secret")},
		"the broker does not speak TLS":            tls.RecordHeaderError{Msg: "secret"},
		"timed out":                                fmt.Errorf("secret: %w", context.DeadlineExceeded),
		"connection failed":                        errors.New("secret"),
	} {
		require.Equal(t, want, reason(err))
	}
}
