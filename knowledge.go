package ratelimit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// ruleSet is all rules that are in force.
type ruleSet struct {
	loaded, static *rulecache.Snapshot // either may be nil
	pending        bool                // whether those of PostgreSQL are not known yet
	share          float64             // of this region in every rule, 0: all of it
	shares         *regions.Shares     // of this region in each rule, nil: share counts
}

// knows reports whether the tenant has a rule of its own. While that cannot be
// said, every tenant is as good as known.
func (s ruleSet) knows(tenant string) bool {
	return s.pending || s.loaded.HasTenant(tenant) || s.static.HasTenant(tenant)
}

// ignorant reports whether the rules or this region's shares of them are not known.
// A bucket in Redis is cut to the capacity of whoever asks, so that one who may
// have the wrong one decides by what it has in memory.
func (s *ruleSet) ignorant() bool {
	return s.pending || s.shares != nil && !s.shares.Known()
}

// rules returns the rules that are in force. A request that comes before anyone
// knows whether there are any, or which share of them is this region's, waits for
// the first attempt to find out, for a second in all.
func (a *App) rules(ctx context.Context) ruleSet {
	set := a.knownRules()
	if !set.ignorant() || !a.learning() {
		return set
	}
	ctx, cancel := context.WithTimeout(ctx, firstRulesWait)
	defer cancel()
	if a.source != nil {
		a.source.Await(ctx, firstRulesWait)
	}
	if a.regions != nil {
		a.regions.Await(ctx, firstRulesWait)
	}
	return a.knownRules()
}

// knownRules is rules for one who does not wait for them.
func (a *App) knownRules() ruleSet {
	set := ruleSet{static: a.static, share: a.share}
	if a.source != nil {
		set.loaded = a.source.Snapshot()
		set.pending = set.loaded == nil
	}
	if a.regions != nil {
		set.shares = a.regions.Shares()
	}
	return set
}

// learning reports whether a first attempt to read rules or shares is still under
// way, or to come.
func (a *App) learning() bool {
	return a.source != nil && a.source.Trying() || a.regions != nil && a.regions.Trying()
}

// firstRulesWait is how long a request waits at most while nobody has tried yet
// whether there are rules: from the start on, or before that, from its own arrival.
const firstRulesWait = time.Second

// deciding returns by whom is decided now.
func (a *App) deciding() string {
	if a.client == nil {
		return adminapi.DecidingAlone
	}
	set := a.knownRules()
	switch {
	case set.pending:
		return adminapi.DecidingNoRules
	case !set.ignorant():
		return adminapi.DecidingShared
	}
	switch status := a.regions.Status(); {
	case status.Lapsed:
		return adminapi.DecidingLapsed
	case !status.Running:
		return adminapi.DecidingShareIsBack
	default:
		return adminapi.DecidingNoShare
	}
}

// ignorant reports whether this gateway decides by itself because it does not know
// what it would have to, though there is a Redis that it shares with others.
func (a *App) ignorant() bool {
	set := a.knownRules()
	return a.client != nil && set.ignorant()
}

// knowledgeInterval is how often the app looks at what it knows, to tell of it.
const knowledgeInterval = time.Second

// watchKnowledge tells once when this gateway begins to decide by itself, for want
// of knowledge, and once when it ends, until stop is called.
func (a *App) watchKnowledge() (stop func()) {
	told := adminapi.DecidingShared
	return background.Every(knowledgeInterval, func() { told = a.tellDeciding(told) })
}

// tellDeciding logs by whom is decided where that is not what was told, and returns
// what it is. What a first attempt is still to find out is not worth a line.
func (a *App) tellDeciding(told string) string {
	now := a.deciding()
	switch {
	case now == told || a.learning():
		return told
	case now == adminapi.DecidingShared:
		a.logger.Info("rules and shares are known: this gateway decides through Redis, together with the others", zap.String("deciding", now), zap.String("before", told))
	default:
		a.logger.Warn("this gateway does not know the rules or its region's share, so it decides alone, within its own share of the limits, and changes nothing in Redis",
			zap.String("deciding", now), zap.String("before", told))
	}
	return now
}

// staleAfter is how many refresh intervals may pass without PostgreSQL having
// confirmed the rules before they are called stale.
const staleAfter = 3

// staleness notices that rules have not been confirmed for too long, once, until
// they are confirmed again.
type staleness struct {
	age  func() time.Duration // of the rules
	most time.Duration
	tell func(age time.Duration)
	told bool
}

// look is called now and then.
func (s *staleness) look() {
	age := s.age()
	stale := age > s.most
	if stale && !s.told {
		s.tell(age)
	}
	s.told = stale
}

// watchRules tells when the rules have become stale, until stop is called.
func (a *App) watchRules() (stop func()) {
	s := staleness{
		age:  func() time.Duration { return a.source.Status().Age },
		most: staleAfter * cmp.Or(time.Duration(a.Rules.Refresh), rulecache.DefaultRefresh),
		tell: func(age time.Duration) {
			a.logger.Warn("PostgreSQL: rules are stale", zap.Duration("age", age))
			a.tellChange(rulesStaleEvent, map[string]any{"age": age})
		},
	}
	return background.Every(max(s.most/10, time.Second/4), s.look)
}

// ignorantDesc tells of a gateway that does not know what it would have to.
var ignorantDesc = stateDesc("ignorant", "Whether this gateway decides by itself, whatever the fallback is, because it does not know the rules or its region's share: 1, or 0.")

// collectKnowledge sends whether the app knows what it has to, where that matters.
func (a *App) collectKnowledge(gauge func(desc *prometheus.Desc, value float64, labels ...string)) {
	if a.client == nil || a.source == nil {
		return
	}
	ignorant := 0.0
	if a.ignorant() {
		ignorant = 1
	}
	gauge(ignorantDesc, ignorant)
}

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
		a.logger.Warn("a static rule names a route that no rate_limit has, so it has no effect", fields...)
	}
}
