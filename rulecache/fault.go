package rulecache

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// fault is an error in words of our own, safe to show.
type fault string

// Error returns the words.
func (f fault) Error() string { return string(f) }

const (
	// errPooler ends a listener: a pooler hands out another session each time.
	errPooler = fault("a pooler such as pgbouncer is between, which cannot pass on notifications")
	// errStandby ends a listener: a standby refuses LISTEN.
	errStandby = fault("the server is a standby, which cannot notify")
	// errSlow is the cause of a context that ended because the server was slow.
	errSlow = fault("timed out")
)

// redact returns err in words that hold nothing of the DSN. The errors of pgx
// quote the user and the database, so none of their text is used.
func redact(err error) fault {
	var known fault
	var answer *pgconn.PgError
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &answer):
		return sqlFault(answer.Code)
	case errors.As(err, &lookup):
		return "the host's name was not found"
	case errors.As(err, &certificate):
		return "the server's certificate is not accepted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.Canceled):
		return "stopped"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection lost"
	}
	return "connection failed"
}

// Describe returns an error of pgx in words that hold nothing of the DSN: the user,
// the host and the database are left out.
func Describe(err error) error { return redact(err) }

// sqlFault puts what PostgreSQL answered into words.
func sqlFault(code string) fault {
	if len(code) != 5 {
		return "the server answered with an error"
	}
	words := "the server answered with an error"
	switch code {
	case "42501":
		words = "permission denied"
	case "42P01":
		words = "the table does not exist"
	case "42703":
		words = "a column does not exist"
	case "25006":
		words = "the server is a standby or read only, and takes no writes"
	case "3D000":
		words = "the database does not exist"
	case "53300":
		words = "too many connections"
	case "57P03":
		words = "the server is starting or stopping"
	case "57P01", "57P02":
		words = "the server ended the session"
	case "57014":
		words = "the server canceled the query"
	default:
		if code[:2] == "28" {
			words = "the user or password is not accepted"
		}
	}
	return fault(words + " (SQLSTATE " + code + ")")
}
