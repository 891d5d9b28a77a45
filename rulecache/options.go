package rulecache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddygate/ratelimit/limit"
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

	// Table is the table or view of the rules, optionally with its schema before
	// a dot. Names are taken as they are: upper case stays upper case.
	// Default: rate_limit_rule.
	Table string
}

// Validate reports what is wrong with o. It opens no connection. An error names
// the part that is wrong and holds nothing of the DSN.
func (o Options) Validate() error {
	if _, err := o.config(); err != nil {
		return err
	}
	_, err := o.identifier()
	return err
}

// PoolKey returns the hex SHA-256 of the DSN and the table. It is equal for
// options that talk to the same, and gives away nothing of the DSN.
func (o Options) PoolKey() string {
	sum := sha256.Sum256([]byte(o.DSN + "\x00" + o.table()))
	return hex.EncodeToString(sum[:])
}

// StoreKey returns the hex SHA-256 of the hosts, the database and the table. A
// new password or parameter leaves it as it is, so that the last good rules are
// found again. It is empty where the options are not valid.
func (o Options) StoreKey() string {
	config, err := o.config()
	if err != nil {
		return ""
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%d\x00", config.Host, config.Port)
	for _, other := range config.Fallbacks {
		fmt.Fprintf(hash, "%s\x00%d\x00", other.Host, other.Port)
	}
	fmt.Fprintf(hash, "%s\x00%s", config.Database, o.table())
	return hex.EncodeToString(hash.Sum(nil))
}

func (o Options) table() string {
	if o.Table == "" {
		return DefaultTable
	}
	return o.Table
}

// identifier returns the table in the form in which SQL can hold it.
func (o Options) identifier() (string, error) {
	parts := strings.Split(o.table(), ".")
	if len(parts) > 2 {
		return "", errors.New("table may have one dot, between the schema and the table")
	}
	for _, part := range parts {
		if err := checkIdentifier(part); err != nil {
			return "", fmt.Errorf("table: %w", err)
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

// config parses the DSN.
func (o Options) config() (*pgconn.Config, error) {
	if err := checkDSN(o.DSN); err != nil {
		return nil, fmt.Errorf("rules address: %w", err)
	}
	config, err := pgconn.ParseConfigWithOptions(o.DSN, pgconn.ParseConfigOptions{
		ConnStringAllowedKeys: append(allowedParameters(), "user", "password", "database"),
	})
	if err != nil {
		// The cause is left out because it may quote the DSN.
		return nil, errors.New("rules address: it cannot be used: check the user, host and port, and the settings of TLS")
	}
	return config, nil
}

// allowedParameters returns the query parameters that a DSN may have: those
// that say who is talked to and how that is proved.
func allowedParameters() []string {
	return []string{
		"application_name", "channel_binding", "host", "krbspn", "krbsrvname", "options", "passfile", "port",
		"require_auth", "search_path", "sslcert", "sslcertmode", "sslkey", "sslmode", "sslnegotiation",
		"sslpassword", "sslrootcert", "sslsni", "target_session_attrs",
	}
}

// checkDSN finds the mistakes whose place can be named. It splits the URL as
// libpq does, which does not follow the rules of other URLs.
func checkDSN(dsn string) error {
	_, rest, found := strings.Cut(dsn, "://")
	if !found || !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return errors.New("it must be a URL that begins with postgres:// or postgresql://, such as postgres://user@127.0.0.1/gateway")
	}
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	if strings.ContainsAny(rest, "@#") {
		return errors.New("the user, password or database holds a character that must be percent-encoded: @ as %40, / as %2F, # as %23")
	}
	address, query, _ := strings.Cut(rest, "?")
	hosts, _, _ := strings.Cut(address, "/")
	if err := checkPorts(hosts); err != nil {
		return err
	}
	if query == "" {
		return nil
	}
	return checkParameters(strings.Split(query, "&"))
}

func checkPorts(hosts string) error {
	for host := range strings.SplitSeq(hosts, ",") {
		colon := strings.LastIndexByte(host, ':')
		if colon < 0 || colon < strings.LastIndexByte(host, ']') || colon == len(host)-1 {
			continue
		}
		if port, err := strconv.Atoi(host[colon+1:]); err != nil || port < 1 || port > 65535 {
			return errors.New("the port is not a number from 1 to 65535 (or the password holds a character that must be percent-encoded)")
		}
	}
	return nil
}

func checkParameters(parameters []string) error {
	seen := make(map[string]struct{})
	for i, parameter := range parameters {
		key, value, _ := strings.Cut(parameter, "=")
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" || key == "" {
			return fmt.Errorf("query parameter number %d is not of the form name=value with a known name", i+1)
		}
		if !slices.Contains(allowedParameters(), key) {
			return fmt.Errorf("query parameter %s is not allowed, because it could change timeouts, retries or pools: allowed are %s%s",
				key, strings.Join(allowedParameters(), ", "), limit.DidYouMean(key, allowedParameters()...))
		}
		if _, found := seen[key]; found {
			return fmt.Errorf("query parameter %s is given twice", key)
		}
		seen[key] = struct{}{}
		if err := checkParameter(key, value); err != nil {
			return err
		}
	}
	return nil
}

func checkParameter(key, encoded string) error {
	value, err := url.PathUnescape(encoded)
	if err != nil || value == "" {
		return fmt.Errorf("query parameter %s has no value, or one that is not percent-encoded right", key)
	}
	var allowed []string
	switch key {
	case "sslmode":
		allowed = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
	case "target_session_attrs":
		allowed = []string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"}
	case "sslcert", "sslkey":
		if _, err := os.Stat(value); err != nil {
			return fmt.Errorf("the file that query parameter %s names cannot be read", key)
		}
	case "sslrootcert":
		if _, err := os.Stat(value); err != nil && value != "system" {
			return fmt.Errorf("the file that query parameter %s names cannot be read", key)
		}
	}
	if allowed != nil && !slices.Contains(allowed, value) {
		return fmt.Errorf("query parameter %s must be one of %s", key, strings.Join(allowed, ", "))
	}
	return nil
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
