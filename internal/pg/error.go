package pg

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Error is an error in words of our own, safe to show.
type Error string

// Error returns the words.
func (e Error) Error() string { return string(e) }

// ErrSlow is what a server met that made no progress in time.
const ErrSlow = Error("timed out")

// NoTable is PostgreSQL's code for a table that is not there.
const NoTable = "42P01"

// Describe returns an error of a connection in words that hold nothing of the
// address. The errors of pgx quote the user and the database, so none of their
// text is used.
func Describe(err error) Error {
	var known Error
	var answer *pgconn.PgError
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &answer):
		return answered(answer)
	case errors.As(err, &lookup):
		return "the host's name was not found"
	case errors.As(err, &certificate):
		return "the server's certificate is not accepted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.Canceled):
		return "stopped"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ErrSlow
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection lost"
	}
	return "connection failed"
}

// answered puts an error of PostgreSQL into words. Row security has the code of a
// right that is missing, and is told by where it comes from, which no locale changes.
func answered(answer *pgconn.PgError) Error {
	if answer.Code == "42501" && answer.Routine == "check_enable_rls" {
		return "row security hides rows of the table from this user, and half a table is not read: let a view show the rows that are meant, or grant BYPASSRLS (SQLSTATE 42501)"
	}
	return Code(answer.Code)
}

// Code puts a code of PostgreSQL's into words.
func Code(code string) Error {
	if len(code) != 5 {
		return "the server answered with an error"
	}
	words := "the server answered with an error"
	switch code {
	case "42501":
		words = "permission denied"
	case NoTable:
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
	return Error(words + " (SQLSTATE " + code + ")")
}
