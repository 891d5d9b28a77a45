package rulecache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/internal/pg"
)

const (
	// importTimeout bounds a whole import, from the connection to the commit.
	importTimeout = 30 * time.Minute
	// importShown is how many differences of each kind a result names.
	importShown = 10
)

// ImportOptions say where the rules of a file go, and how.
type ImportOptions struct {
	// Options name the database and the table, which must be there.
	Options Options

	// DeleteMissing deletes the rows whose pair the file does not name.
	// Default: false, they stay.
	DeleteMissing bool

	// Apply writes the differences. Default: false, they are only counted.
	Apply bool

	// Progress is told how many rules were sent to PostgreSQL, now and then, and
	// what is done next. Default: nil, nobody is told.
	Progress func(step string, rules int)
}

// ImportResult is how a file differs from the table.
type ImportResult struct {
	// Inserted, Updated, Deleted and Unchanged count rows of the table. They were
	// written where Applied says so, and else would be.
	Inserted, Updated, Deleted, Unchanged int
	// Others counts the rows whose pair the file does not name and which stay.
	Others int
	// Applied tells whether the table is now as the file has it.
	Applied bool
	// Changes are the first ten differences of each kind.
	Changes []ImportChange
}

// Differences returns how many rows differ.
func (r *ImportResult) Differences() int { return r.Inserted + r.Updated + r.Deleted }

// Rows returns how many rows the table has once the differences are written.
func (r *ImportResult) Rows() int { return r.Inserted + r.Updated + r.Unchanged + r.Others }

// ChangeKind is what an import does to a row.
type ChangeKind string

// The kinds of changes.
const (
	ChangeInsert ChangeKind = "insert"
	ChangeUpdate ChangeKind = "update"
	ChangeDelete ChangeKind = "delete"
)

// ImportChange is one row that differs.
type ImportChange struct {
	// Kind is what is done to the row.
	Kind ChangeKind
	// Pair is whom and what the row is for. It is empty where the row has NULL.
	Pair Pair
	// Values are the columns of the file apart from the pair: all of them where a
	// row is inserted or deleted, and those that differ where it is updated.
	Values []ImportValue
}

// ImportValue is one column of a row that differs. Nil is NULL, or no row.
type ImportValue struct {
	// Column is the column's name.
	Column string
	// Before and After are what the column holds, as text.
	Before, After *string
}

// Import compares a file with the table, and writes the differences where
// ImportOptions.Apply is set. That is one transaction, all or nothing: readers of
// the table go on meanwhile, other writers wait from the comparison on, and the
// trigger of the schema notifies once. An error means that nothing was written,
// but for ErrUnknownOutcome; it holds nothing of the DSN, and is an *ImportError
// where a line of the file does not fit the table.
func Import(ctx context.Context, file *ImportFile, o ImportOptions) (*ImportResult, error) {
	if err := o.Options.Validate(); err != nil {
		return nil, err
	}
	table, err := o.Options.identifier()
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string, int) {}
	}
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	s, err := pg.Dialing{Address: o.Options.address(), Refresh: DefaultRefresh}.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", o.Options.redact(err))
	}
	defer s.Close()
	return (&importing{session: s, file: file, options: o, table: table}).run(ctx)
}

// ErrUnknownOutcome is what Import answers where the connection was lost while
// the transaction was being committed: all of it was written, or nothing.
var ErrUnknownOutcome = errors.New("the connection was lost at the commit: either everything was written or nothing; run the import again to see")
