// Package rulecache keeps the rules of a PostgreSQL table in memory. A Source
// polls and listens in the background and publishes immutable snapshots; a
// request reads one with an atomic load and never meets the database. What goes
// wrong leaves the last good snapshot in force and is told to an observer.
package rulecache

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// Wildcard stands for every tenant or every route in a rule.
	Wildcard = "*"
	// Guest is the tenant under which the rules for requests without one are kept.
	Guest = "~guest"
	// DefaultTable is the table that rules are read from where none is named.
	DefaultTable = "rate_limit_rule"
	// DefaultChannel is the channel of notifications where none is named.
	DefaultChannel = "rate_limit_rule"
)

// maxNameLength is the longest name of a tenant, in characters.
const maxNameLength = 64

// Pair says whom and what a rule is for. Either may be Wildcard.
type Pair struct {
	// Tenant is a tenant's name of 1 to 64 characters, Guest or Wildcard.
	Tenant string
	// Route is a name that limit.ValidRoute accepts, or Wildcard.
	Route string
}

// Entry is one rule and the pair that it is for. What the rule does not name
// (algorithm, mode, prefetch, shards) is 0 and left to the handler.
type Entry struct {
	Pair
	Rule limit.Rule
}

// Find returns the first rule for a request of the tenant on the route, in the
// order (tenant, route), (tenant, *), (plan, route), (plan, *), (*, route), (*, *),
// each looked up in every layer in turn. A tenant of "" has no rows of its own; a plan
// is the tenant of its rules, see PlanTenant, and "" is none. Layers may be nil. It
// does not allocate.
func Find(tenant, plan, route string, layers ...*Snapshot) (limit.Rule, bool) {
	for _, name := range [...]string{tenant, plan, Wildcard} {
		if name == "" {
			continue
		}
		for _, route := range [...]string{route, Wildcard} {
			for _, layer := range layers {
				if rule, found := layer.Get(name, route); found {
					return rule, true
				}
			}
		}
	}
	return limit.Rule{}, false
}

// MayName reports whether a rule can be for a tenant of that name, which is its
// length in characters and that it is UTF-8.
func MayName(tenant string) bool { return Pair{Tenant: tenant, Route: Wildcard}.check() == nil }

// check reports why no rule can be for p.
func (p Pair) check() error {
	switch {
	case p.Tenant == "":
		return errors.New("the tenant is empty")
	case !utf8.ValidString(p.Tenant):
		return errors.New("the tenant is not valid UTF-8")
	case utf8.RuneCountInString(p.Tenant) > maxNameLength:
		return fmt.Errorf("the tenant is too long: allowed are up to %d characters", maxNameLength)
	case strings.TrimSpace(p.Tenant) != p.Tenant:
		return errors.New("the tenant begins or ends with white space, which no request's tenant does")
	case p.Route == Wildcard || limit.ValidRoute(p.Route):
		return nil
	case p.Route == "":
		return errors.New("the route is empty")
	case len(p.Route) > limit.MaxRouteLength:
		return fmt.Errorf("the route is too long: allowed are up to %d characters", limit.MaxRouteLength)
	}
	return fmt.Errorf("the route %q is neither a name of letters, digits, '.', '_' and '-', nor %q", p.Route, Wildcard)
}
