package redisbucket

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddygate/ratelimit/limit"
)

// address is a parsed URL.
type address struct {
	network, host  string // host is host:port, or a socket's path
	user, password string
	db             int
	tls            bool
	skipVerify     bool
}

// The ports where a URL names none.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// at returns the address of another server that is talked to in the same way.
func (a address) at(host string) address {
	a.host = host
	return a
}

// String names what is talked to, without secrets.
func (a address) String() string { return a.host + "/" + strconv.Itoa(a.db) }

// parseURL reads a URL. No error quotes any part of it that may hold a secret:
// a password with a stray character ends up in any other part.
func parseURL(text, defaultPort string) (address, error) {
	if text == "" {
		return address{}, errors.New("redis url is missing")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return address{}, errors.New("redis url: it must begin with redis://, rediss:// or unix://, such as redis://127.0.0.1:6379/0")
	}
	if scheme != "unix" && strings.LastIndexByte(rest, '@') > strings.IndexAny(rest+"/", "/?#") {
		return address{}, errors.New("redis url: its user or password holds a character that must be written as %XX: @ as %40, / as %2F, # as %23, ? as %3F")
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return address{}, errors.New("redis url: it is not a URL; characters of the user or password other than letters and digits may have to be written as %XX")
	}
	var a address
	switch parsed.Scheme {
	case "redis", "rediss":
		a, err = parseTCP(parsed, defaultPort)
	case "unix":
		a, err = parseUnix(parsed)
	default:
		return address{}, errors.New("redis url: its scheme must be redis, rediss or unix" + limit.DidYouMean(scheme, "redis", "rediss", "unix"))
	}
	if err != nil {
		return address{}, err
	}
	if parsed.Fragment != "" || parsed.Opaque != "" {
		return address{}, errors.New("redis url: it must not have a fragment; write # as %23")
	}
	if parsed.User != nil {
		a.user = parsed.User.Username()
		a.password, _ = parsed.User.Password()
	}
	return a, a.readQuery(parsed.RawQuery)
}

func parseTCP(parsed *url.URL, defaultPort string) (address, error) {
	host, port := parsed.Hostname(), parsed.Port()
	if host == "" {
		return address{}, errors.New("redis url: its host is missing")
	}
	if port == "" {
		port = defaultPort
	}
	if !isPort(port) {
		return address{}, errors.New("redis url: its port must be a number from 1 to 65535")
	}
	a := address{network: "tcp", host: net.JoinHostPort(host, port), tls: parsed.Scheme == "rediss"}
	if path := strings.Trim(parsed.Path, "/"); path != "" {
		return a, a.setDB(path)
	}
	return a, nil
}

// isPort reports whether text is a number from 1 to 65535.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func parseUnix(parsed *url.URL) (address, error) {
	if parsed.Host != "" || parsed.Path == "" {
		return address{}, errors.New("redis url: a unix URL must have an absolute path and no host")
	}
	return address{network: "unix", host: parsed.Path}, nil
}

func (a *address) setDB(text string) error {
	db, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("redis url: its database must be a whole number from 0")
	}
	a.db = int(db)
	return nil
}

// readQuery takes the parameters that say what to talk to. Those that would
// change how (retries, timeouts, pools, the protocol) are refused, because a
// decision's time is bounded only if they are ours.
func (a *address) readQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("redis url: its query cannot be read")
	}
	for name, values := range query {
		if len(values) > 1 {
			return errors.New("redis url: a query parameter is given twice")
		}
		if err := a.setParameter(name, values[0]); err != nil {
			return err
		}
	}
	return nil
}

func (a *address) setParameter(name, value string) error {
	const allowed = "allowed are db and skip_verify"
	switch {
	case name == "db":
		return a.setDB(value)
	case name == "skip_verify":
		skip, err := strconv.ParseBool(value)
		if err != nil || !a.tls {
			return errors.New("redis url: skip_verify must be true or false, and needs rediss")
		}
		a.skipVerify = skip
		return nil
	case slices.Contains(refusedParameters(), name):
		return fmt.Errorf("redis url: the query parameter %s is not allowed: %s", name, allowed)
	}
	return errors.New("redis url: it has an unknown query parameter: " + allowed)
}

// refusedParameters are those that go-redis knows. Only these are named in an
// error: an unknown one may be the rest of a password.
func refusedParameters() []string {
	return []string{
		"protocol", "client_name", "max_retries", "min_retry_backoff", "max_retry_backoff",
		"dial_timeout", "read_timeout", "write_timeout", "pool_fifo", "pool_size", "pool_timeout",
		"min_idle_conns", "max_idle_conns", "max_active_conns", "max_concurrent_dials",
		"pipeline_pool_size", "pipeline_read_buffer_size", "pipeline_write_buffer_size",
		"conn_max_idle_time", "idle_timeout", "conn_max_lifetime", "max_conn_age", "conn_max_lifetime_jitter",
	}
}
