package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// Rules says which PostgreSQL table holds the rules and how changes are seen.
type Rules struct {
	// The database: a URL `postgres://user:pass@host:port/database`. Placeholders in
	// it, and the certificates that it names, are read anew for each connection.
	// Required.
	DSN string `json:"dsn,omitempty"`

	// The table, with its schema if it needs one. Default: `rate_limit_rule`.
	Table string `json:"table,omitempty"`

	// The table that says which plan each tenant has, and which tenants are blocked,
	// with its schema if it needs one. It is read in one transaction with the rules.
	// Default: none is read.
	Tenants string `json:"tenants,omitempty"`

	// How old the rules may become before the table is asked for changes, from
	// 1 s to 24 h. A notification makes it sooner. Default: 30s.
	Refresh caddy.Duration `json:"refresh,omitempty"`

	// The channel that notifications of changes come on, up to 63 bytes.
	// Default: `rate_limit_rule`.
	Channel string `json:"channel,omitempty"`

	// Whether to listen for notifications; otherwise the table is only polled.
	// Default: true.
	Listen *bool `json:"listen,omitempty"`

	// How many rules there may be, from 1 to 10,000,000. A table with more is
	// refused whole, and the rules that were known stay. Default: 1000000.
	MaxRules int `json:"max_rules,omitempty"`

	// What else tells of changes, beside PostgreSQL's notifications and the polls:
	// a module that is built in, such as `kafka`. Default: none.
	TriggerRaw json.RawMessage `json:"trigger,omitempty" caddy:"namespace=rate_limit.triggers inline_key=name"`
}

// StaticRule is a rule for one tenant and one route that stands in the
// configuration.
type StaticRule struct {
	// The tenant, up to 64 characters, `~guest` for the guests, or `*` for all.
	// Required.
	Tenant string `json:"tenant,omitempty"`

	// The route, or `*` for all. Required.
	Route string `json:"route,omitempty"`

	// How many tokens the bucket holds, from 1 to 2147483647. Required.
	Capacity int64 `json:"capacity,omitempty"`

	// How many tokens come back each second. Capacity / refill_per_second is from
	// 1 ms to 10 years. Required.
	RefillPerSecond float64 `json:"refill_per_second,omitempty"`

	// How the bucket counts: `token_bucket`, `sliding_window_log` or
	// `sliding_window_counter`. Default: the handler's.
	Algorithm string `json:"algorithm,omitempty"`

	// What the rule means: `enforce` refuses what is over the limit, `shadow`
	// counts it only, `unlimited` asks no bucket, `deny` answers 403. Default: the
	// handler's.
	Mode string `json:"mode,omitempty"`

	// How many tokens each gateway may take ahead, from 0 to 100,000, or `auto`; it
	// counts where a request has this one bucket and costs 1. Default: the
	// handler's.
	Prefetch Prefetch `json:"prefetch,omitempty"`

	// Into how many parts the bucket is split, from 1 to 16; it counts for a token
	// bucket where a request has this one bucket, costs 1, and nothing is taken
	// ahead. Default: the handler's.
	Shards int `json:"shards,omitempty"`

	// How many requests of the tenant run on the route at one time, from 1 to 10,000.
	// Default: the handler's.
	Concurrent int64 `json:"concurrent,omitempty"`
}

// Limit is how much may be asked where no rule is found.
type Limit struct {
	// The route that the limit is for. Default: the handler's.
	Route string `json:"route,omitempty"`

	// How many tokens the bucket holds, from 1 to 2147483647. Required.
	Capacity int64 `json:"capacity,omitempty"`

	// How many tokens come back each second. Capacity / refill_per_second is from
	// 1 ms to 10 years. Required.
	RefillPerSecond float64 `json:"refill_per_second,omitempty"`
}

func (r *Rules) check() error {
	errs := []error{
		refreshBounds.CheckSet("rules.refresh", time.Duration(r.Refresh)),
		maxRulesBounds.CheckSet("rules.max_rules", r.MaxRules),
	}
	if r.DSN == "" {
		return errors.Join(append(errs, errors.New("rules.dsn: a URL is needed, such as postgres://user@127.0.0.1/gateway"))...)
	}
	if _, err := block.Expand(r.DSN); err != nil {
		errs = append(errs, fmt.Errorf("rules.dsn: %w", err))
	} else if err := r.options().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("rules: %w", err))
	}
	if err := r.settings().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("rules: %w", err))
	}
	return errors.Join(errs...)
}

// options returns what connects to the table. The placeholders in the URL are
// replaced for each connection, so that a password in a file may be another one.
func (r *Rules) options() rulecache.Options {
	return rulecache.Options{DSN: r.DSN, Expand: block.Expand, Table: r.Table, Tenants: r.Tenants}
}

// settings returns how the table is read.
func (r *Rules) settings() rulecache.Settings {
	return rulecache.Settings{
		Refresh:   time.Duration(r.Refresh),
		Channel:   r.Channel,
		ListenOff: r.Listen != nil && !*r.Listen,
		MaxRules:  r.MaxRules,
	}
}

// staticSnapshot makes the static rules a rule set.
func staticSnapshot(rules []StaticRule, plans []TenantPlan) (*rulecache.Snapshot, error) {
	entries := make([]rulecache.Entry, 0, len(rules))
	for i := range rules {
		entry, err := rules[i].entry(fmt.Sprintf("static_rules[%d]", i))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	members := make([]rulecache.Member, len(plans))
	for i := range plans {
		var err error
		if members[i], err = plans[i].member(fmt.Sprintf("plans[%d]", i)); err != nil {
			return nil, err
		}
	}
	snapshot, err := rulecache.NewSnapshot(entries, members...)
	if err != nil {
		return nil, fmt.Errorf("static_rules and plans: %w", err)
	}
	return snapshot, nil
}

// entry checks the rule and returns it as one of a rule set.
func (r *StaticRule) entry(field string) (rulecache.Entry, error) {
	if r.Tenant == "" || r.Route == "" {
		return rulecache.Entry{}, fmt.Errorf("%s: a tenant and a route are needed, or * for all", field)
	}
	if r.Tenant != strings.TrimSpace(r.Tenant) {
		return rulecache.Entry{}, fmt.Errorf("%s.tenant: it begins or ends with white space, which no request's tenant does", field)
	}
	if block.HasPlaceholder(r.Tenant) {
		return rulecache.Entry{}, fmt.Errorf("%s.tenant: placeholders are not replaced here", field)
	}
	if r.Route != rulecache.Wildcard && !limit.ValidRoute(r.Route) {
		return rulecache.Entry{}, fmt.Errorf("%s.route: %q is not a route: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -, or * for all", field, r.Route, limit.MaxRouteLength)
	}
	wanted := limit.Rule{Capacity: r.Capacity, Refill: r.RefillPerSecond, Shards: uint8(min(max(r.Shards, 0), limit.MaxShards))}
	var err error
	if err := shardBounds.CheckSet(field+".shards", r.Shards); err != nil {
		return rulecache.Entry{}, err
	}
	if r.Concurrent != 0 {
		if _, err := limit.NewPlaces(r.Concurrent); err != nil {
			return rulecache.Entry{}, fmt.Errorf("%s.%w", field, err)
		}
		wanted.Concurrent = r.Concurrent
	}
	if wanted.Prefetch, err = r.Prefetch.rule(); err != nil {
		return rulecache.Entry{}, fmt.Errorf("%s.%w", field, err)
	}
	if r.Algorithm != "" {
		if wanted.Algorithm, err = limit.ParseAlgorithm(r.Algorithm); err != nil {
			return rulecache.Entry{}, fmt.Errorf("%s.algorithm: %w", field, err)
		}
	}
	if r.Mode != "" {
		if wanted.Mode, err = limit.ParseMode(r.Mode); err != nil {
			return rulecache.Entry{}, fmt.Errorf("%s.mode: %w", field, err)
		}
	}
	rule, err := limit.NewRule(wanted)
	if err != nil {
		return rulecache.Entry{}, fmt.Errorf("%s: %w", field, err)
	}
	entry := rulecache.Entry{Pair: rulecache.Pair{Tenant: r.Tenant, Route: r.Route}, Rule: rule}
	if _, err := rulecache.NewSnapshot([]rulecache.Entry{entry}); err != nil {
		return entry, fmt.Errorf("%s: %w", field, err)
	}
	return entry, nil
}

// rule checks the limit; without one there is no rule.
func (l *Limit) rule(field string) (*limit.Rule, error) {
	if l == nil {
		return nil, nil
	}
	if field == "default" && l.Route != "" {
		return nil, errors.New("default.route: the default is for every route")
	}
	rule, err := limit.NewRule(limit.Rule{Capacity: l.Capacity, Refill: l.RefillPerSecond})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return &rule, nil
}

// newLimits returns the handler's limits by route, and under the blank name the
// one for all routes that have none.
func newLimits(limits []Limit, routes []string, defaults limit.Rule) (map[string]limit.Rule, error) {
	byRoute := map[string]limit.Rule{}
	for i := range limits {
		field, route := fmt.Sprintf("limits[%d]", i), limits[i].Route
		if route != "" && !slices.Contains(routes, route) {
			return nil, fmt.Errorf("%s.route: %q is not a route of the handler, which has %s", field, route, strings.Join(routes, ", "))
		}
		if _, found := byRoute[route]; found {
			return nil, fmt.Errorf("%s: another limit is for the same route", field)
		}
		rule, err := limits[i].rule(field)
		if err != nil {
			return nil, err
		}
		if byRoute[route], err = limit.NewRule(rule.Or(defaults)); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
	}
	return byRoute, nil
}

// Prefetch is how many tokens may be taken ahead: a whole number from 0 to
// 100,000, or `auto`. Blank is what the handler says. JSON may have a number.
type Prefetch string

// prefetchAuto takes as many ahead as the measured demand asks for.
const prefetchAuto = "auto"

// UnmarshalJSON reads a text or a number.
func (p *Prefetch) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if unquoted, err := strconv.Unquote(string(text)); err == nil {
		*p = Prefetch(unquoted)
		return nil
	}
	if _, err := strconv.ParseInt(string(text), 10, 64); err != nil {
		return errors.New("prefetch: allowed are a whole number and \"auto\"")
	}
	*p = Prefetch(text)
	return nil
}

// rule returns the number that a limit.Rule has, 0 where p is blank.
func (p Prefetch) rule() (int32, error) {
	switch p {
	case "":
		return 0, nil
	case prefetchAuto:
		return limit.PrefetchAuto, nil
	case "0":
		return limit.PrefetchOff, nil
	}
	n, err := strconv.ParseInt(string(p), 10, 32)
	if err != nil || n < 0 || n > limit.MaxPrefetch {
		return 0, fmt.Errorf("prefetch: %q is neither a whole number from 0 to %d nor auto", string(p), limit.MaxPrefetch)
	}
	return int32(n), nil
}

// ruleStorage keeps the last good rules in Caddy's storage, so that a gateway
// that starts while PostgreSQL is down has rules.
type ruleStorage struct {
	storage certmagic.Storage
	key     string
}

// Load returns what was saved, and an error that wraps fs.ErrNotExist if nothing was.
func (s ruleStorage) Load(ctx context.Context) ([]byte, error) { return s.storage.Load(ctx, s.key) }

// Save replaces what was saved.
func (s ruleStorage) Save(ctx context.Context, value []byte) error {
	return s.storage.Store(ctx, s.key, value)
}

// Interface guards
var (
	_ rulecache.Store = ruleStorage{}
	_ regions.Store   = ruleStorage{}
)
