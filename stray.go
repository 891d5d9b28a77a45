package ratelimit

import (
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// A stray rule is one for a route that no handler of this gateway has: mostly a
// slip, and no error, because other gateways may read the same rules.

// strays counts the stray rules of one snapshot, each time it is another one.
type strays struct {
	mu    sync.Mutex
	of    *rulecache.Snapshot
	count int
}

// isStray reports whether no handler has the route of a rule.
func (a *App) isStray(route string) bool {
	return route != rulecache.Wildcard && a.layouts[route] == nil
}

// strayRules counts the stray rules, static ones and those of PostgreSQL.
func (a *App) strayRules() int {
	a.strays.mu.Lock()
	defer a.strays.mu.Unlock()
	if loaded := a.loadedRules(); loaded != a.strays.of {
		a.strays.of, a.strays.count = loaded, 0
		for pair := range loaded.All() {
			if a.isStray(pair.Route) {
				a.strays.count++
			}
		}
	}
	count := a.strays.count
	for i := range a.StaticRules {
		if a.isStray(a.StaticRules[i].Route) {
			count++
		}
	}
	return count
}

// warnOfStrays tells of static rules for routes that no handler has. All handlers
// are there when the app starts.
func (a *App) warnOfStrays() {
	routes := slices.Sorted(maps.Keys(a.layouts))
	for i := range a.StaticRules {
		route := a.StaticRules[i].Route
		if !a.isStray(route) {
			continue
		}
		fields := []zap.Field{zap.Int("static_rule", i), zap.String("route", route)}
		if meant := limit.Nearest(route, routes...); meant != "" {
			fields = append(fields, zap.String("did_you_mean", meant))
		}
		a.logger.Warn("a static rule is for a route that no rate_limit has, so it counts for nobody", fields...)
	}
}
