package pg

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

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddygate/ratelimit/limit"
)

// Address says where a database is, in words that are read anew for each
// connection: a password that was replaced counts from the next one on.
type Address struct {
	// Written is a URL that begins with postgres:// or postgresql://, perhaps
	// with placeholders. It may name several hosts.
	Written string

	// Expand replaces the placeholders. Its error holds no secret. Default: nil,
	// there are none.
	Expand func(string) (string, error)
}

// Text returns the URL as it is now, expanded, trimmed and checked. An error
// names the part that is wrong and holds nothing of the URL.
func (a Address) Text() (string, error) {
	text := a.Written
	if a.Expand != nil {
		var err error
		if text, err = a.Expand(text); err != nil {
			return "", err
		}
	}
	text = strings.TrimSpace(text)
	return text, check(text)
}

// Config parses the URL, and reads what it names: certificates and the file of
// passwords. What it leaves out is taken from the environment (PGPASSWORD and the
// like) and ~/.pgpass, as in psql.
func (a Address) Config() (*pgconn.Config, error) {
	text, err := a.Text()
	if err != nil {
		return nil, err
	}
	config, err := pgconn.ParseConfigWithOptions(text, pgconn.ParseConfigOptions{
		ConnStringAllowedKeys: append(allowedParameters(), "user", "password", "database"),
	})
	if err != nil {
		return nil, ErrUnusable
	}
	return config, nil
}

// ErrUnusable is a URL that is well formed and cannot be used. The cause is left
// out because it may quote the URL.
const ErrUnusable = Error("it cannot be used: check the user, host and port, and the settings of TLS")

// Identity returns the hex SHA-256 of the hosts and the database. A new password
// or parameter leaves it as it is. It is empty where the URL cannot be used.
func (a Address) Identity() string {
	config, err := a.Config()
	if err != nil {
		return ""
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%d\x00", config.Host, config.Port)
	for _, other := range config.Fallbacks {
		fmt.Fprintf(hash, "%s\x00%d\x00", other.Host, other.Port)
	}
	fmt.Fprint(hash, config.Database)
	return hex.EncodeToString(hash.Sum(nil))
}

// allowedParameters returns the query parameters that a URL may have: those
// that say who is talked to and how that is proved.
func allowedParameters() []string {
	return []string{
		"application_name", "channel_binding", "host", "krbspn", "krbsrvname", "options", "passfile", "port",
		"require_auth", "search_path", "sslcert", "sslcertmode", "sslkey", "sslmode", "sslnegotiation",
		"sslpassword", "sslrootcert", "sslsni", "target_session_attrs",
	}
}

// check finds the mistakes whose place can be named. It splits the URL as
// libpq does, which does not follow the rules of other URLs.
func check(dsn string) error {
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
