package rulecache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// explain puts an error of the transaction into words that hold nothing of the
// DSN nor of other rows, with the line of the file where PostgreSQL names it.
func (i *importing) explain(err error) error {
	if lines, found := errors.AsType[*ImportError](err); found {
		return lines
	}
	answer, found := errors.AsType[*pgconn.PgError](err)
	if !found {
		return fmt.Errorf("importing into the table: %w", i.options.Options.redact(err))
	}
	words := i.words(answer)
	if line, found := i.lineOf(answer.Where); found {
		return &ImportError{Count: 1, Lines: []BadLine{{Line: line, Reason: string(words)}}}
	}
	return fmt.Errorf("importing into the table: %w", words)
}

// lineOf reads the line of the file out of PostgreSQL's "COPY name, line 3, …",
// which counts the rules.
func (i *importing) lineOf(where string) (int, bool) {
	_, rest, found := strings.Cut(where, "COPY rate_limit_import, line ")
	if !found {
		return 0, false
	}
	digits := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = rest[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > len(i.file.lines) {
		return 0, false
	}
	return int(i.file.lines[n-1]), true
}

// words says what PostgreSQL refused, or why it could not be asked.
func (i *importing) words(answer *pgconn.PgError) fault {
	if words := importWords(answer); words != "" {
		return words
	}
	return i.options.Options.redact(answer)
}

// importWords says what PostgreSQL refused, in the names of the table;
// "" where that has nothing to do with an import.
func importWords(answer *pgconn.PgError) fault {
	column := answer.ColumnName
	if column == "" {
		// COPY tells it in its context only.
		if _, rest, found := strings.Cut(answer.Where, ", column "); found {
			column, _, _ = strings.Cut(rest, ":")
		}
	}
	if column != "" {
		column = " " + column
	}
	switch answer.Code {
	case "22001":
		return fault("a value is too long for the table's column" + column)
	case "22003", "22P02":
		return fault("a value does not fit the type of the table's column" + column)
	case "22P05", "22021":
		return fault("a character cannot be stored in the database's encoding")
	case "23502":
		return fault("the table's column" + column + " must not be NULL and has no default")
	case "23503", "23505", "23514", "23P01":
		return fault("the table's constraint " + answer.ConstraintName + " is violated")
	case "25006":
		return "the server is read-only, such as a standby: name the primary"
	case "55P03":
		return "another transaction holds the table: nothing was waited for any longer than 10 s"
	}
	return ""
}

// commitFault tells a refused commit from one whose answer was lost.
func (i *importing) commitFault(err error) error {
	if answer, found := errors.AsType[*pgconn.PgError](err); found {
		return fmt.Errorf("committing: %w", i.words(answer))
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %w", ErrUnknownOutcome)
	}
	return ErrUnknownOutcome
}
