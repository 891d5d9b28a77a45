package ratelimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/rulecache"
)

// answerRules lists the rules in force, by tenant, route and where they come from.
func answerRules(_ context.Context, app *App, q *adminapi.Query) (any, error) {
	most, err := q.Number("limit", adminapi.DefaultRulesPage, adminapi.MaxRulesPage)
	if err != nil {
		return nil, badQuery(err)
	}
	after, err := adminapi.ParseCursor(q.Text("cursor"))
	if err != nil {
		return nil, badQuery(err)
	}
	for _, name := range []string{"tenant", "route"} {
		if q.Has(name) && q.Text(name) == "" {
			return nil, apiError(http.StatusBadRequest, "parameter %s is blank: allowed is that of a rule, or none at all for every %s", name, name)
		}
	}
	loaded := app.loadedRules()
	answer := &adminapi.Rules{
		Known: app.source == nil || loaded != nil, Postgres: loaded.Len(), StaticRules: app.static.Len(),
		Rules: []adminapi.Rule{},
	}
	if app.source != nil {
		answer.Hash = loaded.Hash()
	}
	query := rulecache.Query{Tenant: q.Text("tenant"), Route: q.Text("route"), After: rulecache.Pair{Tenant: after.Tenant, Route: after.Route}, Limit: int(most) + 1}
	for _, layer := range []struct {
		from  string
		rules *rulecache.Snapshot
	}{{adminapi.FromPostgres, loaded}, {adminapi.FromStatic, app.static}} {
		// A rule of PostgreSQL stands before a static one for the same pair.
		query.Including = layer.from == adminapi.FromStatic && after.From == adminapi.FromPostgres
		for _, entry := range layer.rules.Page(query) {
			answer.Rules = append(answer.Rules, adminapi.Rule{
				Tenant: entry.Tenant, Route: entry.Route, From: layer.from, NoRoute: app.isStray(entry.Route),
				Numbers: adminapi.NewNumbers(entry.Rule),
			})
		}
	}
	answer.Cut(int(most))
	return answer, nil
}

// loadedRules returns the rules of PostgreSQL that are known, or nil.
func (a *App) loadedRules() *rulecache.Snapshot {
	if a.source == nil {
		return nil
	}
	return a.source.Snapshot()
}

// answerRefresh loads the rules now.
func answerRefresh(ctx context.Context, app *App, _ *adminapi.Query) (any, error) {
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
		return nil, apiError(http.StatusGatewayTimeout, "the load has not ended within %v and goes on; until then %s", adminapi.RefreshTimeout, stays)
	case err != nil:
		return nil, apiError(http.StatusBadGateway, "%w; %s", err, stays)
	}
	status := app.source.Status()
	return &adminapi.Refresh{
		Rules: status.Rules, Rejected: status.Rejected, Hash: status.Hash,
		Changed: !known || status.Hash != before, TookSeconds: seconds(time.Since(began)),
	}, nil
}
