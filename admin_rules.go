package ratelimit

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// rulesAnswer is the answer to GET /rate_limit/rules.
type rulesAnswer struct {
	Hash        string       `json:"hash,omitempty"`
	Known       bool         `json:"known"`
	Postgres    int          `json:"postgres"`
	StaticRules int          `json:"static_rules"`
	Rules       []ruleAnswer `json:"rules"`
	Next        string       `json:"next,omitempty"`
}

// ruleAnswer is one rule. What a rule does not name is left out.
type ruleAnswer struct {
	Tenant string `json:"tenant,omitempty"`
	Route  string `json:"route,omitempty"`
	From   string `json:"from,omitempty"`

	// NoRoute says that no handler of this gateway has the route.
	NoRoute bool `json:"no_route,omitempty"`
	numbersAnswer
}

// numbersAnswer is what a rule says.
type numbersAnswer struct {
	Capacity        int64   `json:"capacity"`
	RefillPerSecond float64 `json:"refill_per_second"`
	Algorithm       string  `json:"algorithm,omitempty"`
	Mode            string  `json:"mode,omitempty"`
	Prefetch        any     `json:"prefetch,omitempty"`
	Shards          uint8   `json:"shards,omitempty"`
}

// Where a rule comes from.
const (
	fromPostgres = "postgres"
	fromStatic   = "static"
	fromHandler  = "handler"
	fromDefault  = "default"
)

const (
	defaultRulesPage = 100
	mostRulesPage    = 1000
)

// rulesCursor is where a page of rules begins: after that rule.
type rulesCursor struct {
	Tenant string `json:"t"`
	Route  string `json:"r"`
	From   string `json:"f"`
}

// answerRules lists the rules in force, by tenant, route and where they come from.
func answerRules(_ context.Context, app *App, q *adminQuery) (any, error) {
	most, err := q.number("limit", defaultRulesPage, mostRulesPage)
	if err != nil {
		return nil, err
	}
	after, err := parseCursor(q.text("cursor"))
	if err != nil {
		return nil, apiError(http.StatusBadRequest, "%w", err)
	}
	for _, name := range []string{"tenant", "route"} {
		if q.has(name) && q.text(name) == "" {
			return nil, apiError(http.StatusBadRequest, "parameter %s is blank: allowed is that of a rule, or none at all for every %s", name, name)
		}
	}
	loaded := app.loadedRules()
	answer := &rulesAnswer{
		Known: app.source == nil || loaded != nil, Postgres: loaded.Len(), StaticRules: app.static.Len(),
		Rules: []ruleAnswer{},
	}
	if app.source != nil {
		answer.Hash = loaded.Hash()
	}
	query := rulecache.Query{Tenant: q.text("tenant"), Route: q.text("route"), After: after.pair(), Limit: int(most) + 1}
	for _, layer := range []struct {
		from  string
		rules *rulecache.Snapshot
	}{{fromPostgres, loaded}, {fromStatic, app.static}} {
		// A rule of PostgreSQL stands before a static one for the same pair.
		query.Including = layer.from == fromStatic && after.From == fromPostgres
		for _, entry := range layer.rules.Page(query) {
			rule := newRuleAnswer(entry.Pair, layer.from, entry.Rule)
			rule.NoRoute = app.isStray(entry.Pair.Route)
			answer.Rules = append(answer.Rules, rule)
		}
	}
	slices.SortFunc(answer.Rules, compareRules)
	answer.cut(int(most))
	return answer, nil
}

// loadedRules returns the rules of PostgreSQL that are known, or nil.
func (a *App) loadedRules() *rulecache.Snapshot {
	if a.source == nil {
		return nil
	}
	return a.source.Snapshot()
}

// cut leaves a page, and says where the next one begins.
func (a *rulesAnswer) cut(most int) {
	if len(a.Rules) <= most {
		return
	}
	a.Rules = a.Rules[:most]
	last := a.Rules[most-1]
	text, _ := json.Marshal(rulesCursor{last.Tenant, last.Route, last.From}) // three texts
	a.Next = base64.RawURLEncoding.EncodeToString(text)
}

func (c rulesCursor) pair() rulecache.Pair { return rulecache.Pair{Tenant: c.Tenant, Route: c.Route} }

func compareRules(a, b ruleAnswer) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route), cmp.Compare(a.From, b.From))
}

func parseCursor(text string) (cursor rulesCursor, err error) {
	if text == "" {
		return cursor, nil
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(decoded, &cursor)
	}
	if err != nil || cursor.Tenant == "" || cursor.Route == "" || cursor.From != fromPostgres && cursor.From != fromStatic {
		return cursor, errors.New("parameter cursor: it is none: allowed is the field next of an answer")
	}
	return cursor, nil
}

func newRuleAnswer(pair rulecache.Pair, from string, rule limit.Rule) ruleAnswer {
	return ruleAnswer{Tenant: pair.Tenant, Route: pair.Route, From: from, numbersAnswer: newNumbers(rule)}
}

func newNumbers(rule limit.Rule) numbersAnswer {
	n := numbersAnswer{
		Capacity: rule.Capacity, RefillPerSecond: rule.Refill,
		Algorithm: rule.Algorithm.String(), Mode: rule.Mode.String(), Shards: rule.Shards,
	}
	switch rule.Prefetch {
	case 0:
	case limit.PrefetchOff:
		n.Prefetch = 0
	case limit.PrefetchAuto:
		n.Prefetch = prefetchAuto
	default:
		n.Prefetch = rule.Prefetch
	}
	return n
}

// refreshTimeout is how long a refresh waits for the load to end.
const refreshTimeout = 30 * time.Second

// refreshAnswer is the answer to POST /rate_limit/rules/refresh.
type refreshAnswer struct {
	Rules       int     `json:"rules"`
	Rejected    int     `json:"rejected"`
	Hash        string  `json:"hash"`
	Changed     bool    `json:"changed"`
	TookSeconds float64 `json:"took_seconds"`
}

// answerRefresh loads the rules now.
func answerRefresh(ctx context.Context, app *App, _ *adminQuery) (any, error) {
	if app.source == nil {
		return nil, apiError(http.StatusBadRequest, "there is nothing to refresh: the configuration names no PostgreSQL (rules)")
	}
	before, began := app.source.Status().Hash, time.Now()
	known, stays := app.source.Snapshot() != nil, "the old rules stay in force"
	if !known {
		stays = "no rules are known"
	}
	err := app.source.Refresh(ctx)
	switch {
	case errors.Is(err, rulecache.ErrNotRunning):
		return nil, apiError(http.StatusServiceUnavailable, "%w", err)
	case ctx.Err() != nil && err != nil:
		return nil, apiError(http.StatusGatewayTimeout, "the load has not ended within %v and goes on; until then %s", refreshTimeout, stays)
	case err != nil:
		return nil, apiError(http.StatusBadGateway, "%w; %s", err, stays)
	}
	status := app.source.Status()
	return &refreshAnswer{
		Rules: status.Rules, Rejected: status.Rejected, Hash: status.Hash,
		Changed: !known || status.Hash != before, TookSeconds: seconds(time.Since(began)),
	}, nil
}
