package rulecache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/caddygate/ratelimit/internal/pg"
)

// maxIdentifierLength is the longest identifier of PostgreSQL, in bytes.
const maxIdentifierLength = 63

// Options say what a Source talks to. They are what makes two sources the same.
type Options struct {
	// DSN is the address of the database: a URL that begins with postgres:// or
	// postgresql://. It may name several hosts. Query parameters that would
	// change timeouts, retries or pools are refused. What it leaves out is taken
	// from the environment (PGPASSWORD and the like) and ~/.pgpass, as in psql.
	DSN string

	// Expand replaces the placeholders in the DSN. That is done for each
	// connection, so that a password which was replaced counts without a new
	// Source; certificates and ~/.pgpass are read as often. Its error must hold
	// nothing of the DSN. Default: nil, the DSN is taken as it is.
	Expand func(dsn string) (string, error)

	// Table is the table or view of the rules, optionally with its schema before
	// a dot. Names are taken as they are: upper case stays upper case.
	// Default: rate_limit_rule.
	Table string

	// Tenants is the table or view that says which tenants have a plan and which are
	// blocked, named like Table. Default: none is read.
	Tenants string
}

// Validate reports what is wrong with o. It opens no connection. An error names
// the part that is wrong and holds nothing of the DSN.
func (o Options) Validate() error {
	if _, err := o.address().Config(); err != nil {
		return fmt.Errorf("rules address: %w", err)
	}
	if _, err := o.tenantsIdentifier(); err != nil {
		return err
	}
	_, err := o.identifier()
	return err
}

// PoolKey returns the hex SHA-256 of the DSN, as it is before Expand, and the
// table. It is equal for options that talk to the same, and gives away nothing of
// the DSN.
func (o Options) PoolKey() string {
	sum := sha256.Sum256([]byte(o.DSN + "\x00" + o.tables()))
	return hex.EncodeToString(sum[:])
}

// StoreKey returns the hex SHA-256 of the hosts, the database and the table. A
// new password or parameter leaves it as it is, so that the last good rules are
// found again. It is empty where the options are not valid.
func (o Options) StoreKey() string {
	identity := o.address().Identity()
	if identity == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(identity + "\x00" + o.tables()))
	return hex.EncodeToString(sum[:])
}

func (o Options) address() pg.Address { return pg.Address{Written: o.DSN, Expand: o.Expand} }

func (o Options) table() string {
	if o.Table == "" {
		return DefaultTable
	}
	return o.Table
}

// tables names the tables that are read. Without one of tenants it is the name of
// that of rules, as it was before there were others.
func (o Options) tables() string {
	if o.Tenants == "" {
		return o.table()
	}
	return o.table() + "\x00" + o.Tenants
}

// identifier returns the table of rules in the form in which SQL can hold it.
func (o Options) identifier() (string, error) { return identifier("table", o.table()) }

// tenantsIdentifier returns the table of tenants in that form; "" where there is none.
func (o Options) tenantsIdentifier() (string, error) {
	if o.Tenants == "" {
		return "", nil
	}
	return identifier("tenants", o.Tenants)
}

func identifier(option, name string) (string, error) {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		return "", fmt.Errorf("%s may have one dot, between the schema and the table", option)
	}
	for _, part := range parts {
		if err := checkIdentifier(part); err != nil {
			return "", fmt.Errorf("%s: %w", option, err)
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

// checkIdentifier reports why name cannot be an identifier of PostgreSQL, which
// would cut a name that is too long without a word.
func checkIdentifier(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case len(name) > maxIdentifierLength:
		return fmt.Errorf("a name is %d bytes long: allowed are up to %d", len(name), maxIdentifierLength)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("a name holds a control character or is not valid UTF-8")
	}
	return nil
}
