package adminapi

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/limit"
)

// Query is the parameters of a call, each once.
type Query struct{ values url.Values }

// ParseQuery reads a query that may have the parameters allowed. An error names
// the parameter and what is allowed.
func ParseQuery(raw string, allowed []string) (*Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("the query cannot be read: write every byte of a value that is no letter or digit as %XX")
	}
	for name, all := range values {
		switch {
		case !slices.Contains(allowed, name) && len(allowed) == 0:
			return nil, fmt.Errorf("unknown parameter %.64q: none is allowed", name)
		case !slices.Contains(allowed, name):
			return nil, limit.UnknownWord("parameter", name, allowed...)
		case len(all) > 1:
			return nil, fmt.Errorf("parameter %s is there %d times: allowed is once", name, len(all))
		}
	}
	return &Query{values}, nil
}

// Has reports whether the parameter is there, blank or not.
func (q *Query) Has(name string) bool { return q.values.Has(name) }

// Text returns a parameter, blank where it is missing.
func (q *Query) Text(name string) string { return q.values.Get(name) }

// Number reads a whole number from 1 to most, and returns fallback where the
// parameter is missing.
func (q *Query) Number(name string, fallback, most int64) (int64, error) {
	if !q.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(q.Text(name), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("parameter %s: %.64q is not allowed: allowed is a whole number from 1 to %d", name, q.Text(name), most)
	}
	return n, nil
}

// Word reads one of the words allowed, and returns the first where the parameter is
// missing.
func (q *Query) Word(name string, allowed ...string) (string, error) {
	if !q.Has(name) {
		return allowed[0], nil
	}
	if word := q.Text(name); slices.Contains(allowed, word) {
		return word, nil
	}
	return "", limit.UnknownWord("value of parameter "+name, q.Text(name), allowed...)
}

// Subject is whose bucket of which route a query asks about.
type Subject struct {
	// Tenant is as clients send it.
	Tenant string

	// Stored is as rules have it, or a name of the gateway's own; then Tenant and
	// Address are blank.
	Stored string

	// Literal says that Stored is a tenant's, whatever it looks like.
	Literal bool

	// Address is a guest's, an IP address.
	Address string

	// Route is a name, or what keys have; blank for every route.
	Route string
}

// Subject reads whom and what a query asks about.
func (q *Query) Subject() (*Subject, error) {
	s := &Subject{
		Tenant: strings.TrimSpace(q.Text("tenant")), Stored: q.Text("stored"),
		Address: strings.TrimSpace(q.Text("ip")), Route: q.Text("route"),
	}
	if err := q.check(s); err != nil {
		return nil, err
	}
	if q.Has("key") {
		return s, s.readKey(q.Text("key"))
	}
	return s, nil
}

func (q *Query) check(s *Subject) error {
	switch {
	case s.Route == "" && q.Has("route"):
		return errors.New("parameter route is blank: allowed is a route, or no parameter at all for every route")
	case q.Has("stored") && (q.Has("tenant") || q.Has("ip") || q.Has("key")):
		return errors.New("parameter stored: not together with tenant, ip or key, because it names the bucket's owner already")
	case q.Has("key") && (q.Has("tenant") || q.Has("ip")):
		return errors.New("parameter key: not together with tenant or ip, because it names the bucket's owner already")
	case q.Has("stored") && s.Stored == "":
		return errors.New("parameter stored is blank: allowed is a tenant as rules and keys have it")
	case !q.Has("tenant") && !q.Has("stored") && !q.Has("key") && !q.Has("ip"):
		return errors.New("nobody is named: allowed are tenant, as a client sends it; stored, as rules have it; key, as Redis keys have it; and ip, for a guest")
	case s.Address == "" && q.Has("ip"):
		return errors.New("parameter ip is blank: allowed is an IP address")
	case s.Address == "":
		return nil
	}
	if _, err := netip.ParseAddr(s.Address); err != nil {
		return fmt.Errorf("parameter ip: %.64q is no IP address", s.Address)
	}
	return nil
}

// readKey reads a tenant as keys have it, escaped. That names also what no other
// parameter can: bytes that are no text, and what a client made look like a name of
// the gateway's own.
func (s *Subject) readKey(key string) error {
	if ownName.MatchString(key) {
		s.Stored = key
		return nil
	}
	tenant, err := url.PathUnescape(key)
	if err != nil || tenant == "" || limit.EscapeName(tenant) != key {
		return fmt.Errorf("parameter key: %.100q is none: allowed is what stands for the tenant in a Redis key, such as shop-a or a%%20b", key)
	}
	s.Stored, s.Literal = tenant, true
	return nil
}

// Owned reports whether a name of the gateway's own was asked for.
func (s *Subject) Owned() bool { return !s.Literal && ownName.MatchString(s.Stored) }

// ownName is what the gateway's own names look like, in keys: no tenant's escaped
// name has a tilde in it.
var ownName = regexp.MustCompile(`^~(guest|blank|ip-unknown|(ip|sha256)-[0-9a-f]{64})$`)

// StoredName is what the parameter stored takes for the bucket of a tenant, with
// what its key has for the tenant: the gateway's own names as keys have them, and
// all others as rules do. It is blank where that would name another bucket: a client
// can send what looks like a name of the gateway's own, and bytes that JSON cannot
// tell.
func StoredName(tenant, key string) string {
	if !utf8.ValidString(tenant) || ownName.MatchString(tenant) && tenant != key {
		return ""
	}
	return tenant
}
