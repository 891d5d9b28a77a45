package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// zone is one limit of a handler: one bucket for each tenant. A handler with
// routes has a zone for each of them, and all ask for the same tenant.
type zone struct {
	name         string                // in labels, logs and headers
	route        string                // in keys and rules
	match        caddyhttp.MatcherSets // which requests it limits; none: all
	key          *keySource            // whom, nil: the handler's tenant
	defaults     limit.Rule            // what a rule does not name
	fallback     limit.Rule            // the rule where no other is found
	fallbackText string                // its capacity in headers; blank: not known
	counts       *routeMetrics         // nil: nothing is counted
	logKey       bool                  // whether logs and spans may name the tenant
	price        *costSource           // what a request takes, nil: the handler's cost
	meter        *meter                // what an answer costs, nil: what was taken
	ban          time.Duration         // who empties its bucket stays out, 0: nobody
	banStatus    int                   // what it then gets, 0: 429
	single       bool                  // whether its bucket is the only one of a request, at a cost of 1
	layout       *layout               // of the route's buckets in Redis
	sharers      func() int64          // gateways that divide a limit without Redis, nil: none

	ipv4Prefix, ipv6Prefix int // of a key that is an address; 0: all of it

	logger *zap.Logger
	erred  sync.Once // a matcher has, and it was told
}

// matches reports whether the zone limits the request. A matcher that errs does
// not match, as in caddy-ratelimit: the request may not fail for it.
func (z *zone) matches(r *http.Request) bool {
	if len(z.match) == 0 {
		return true
	}
	matched, err := z.match.AnyMatchWithError(r)
	if err != nil {
		z.erred.Do(func() {
			z.logger.Warn("a matcher of the zone has failed, so the zone did not limit the request", zap.String("zone", z.name), zap.Error(err))
		})
		return false
	}
	return matched
}

// rule returns the one rule that counts for a visitor.
func (z *zone) rule(who *visitor, rules ruleSet) limit.Rule {
	rule, found := rulecache.Find(who.rules, who.Plan, z.route, rules.loaded, rules.static)
	if !found {
		return z.fallback
	}
	rule = rule.Or(z.defaults)
	if rule.Algorithm == limit.SlidingWindowLog && rule.Capacity > limit.MaxLogCapacity {
		// The rule was not written for a log, and this is the same limit.
		rule.Algorithm = limit.SlidingWindowCounter
	}
	return z.alone(rule)
}

// capacity returns a rule's capacity as headers tell it. That of most requests is
// the zone's own, whose text is there already.
func (z *zone) capacity(n int64) string {
	if n == z.fallback.Capacity && z.fallbackText != "" {
		return z.fallbackText
	}
	return headers.Number(n)
}

// provisionZones makes the zones, of each route or as the configuration says.
func (h *Handler) provisionZones(ctx caddy.Context) (err error) {
	if len(h.RateLimits) > 0 {
		h.zones, err = h.zonesByName(ctx)
	} else {
		h.zones, err = h.zonesByRoute()
	}
	if err != nil {
		return err
	}
	if err := errors.Join(h.provisionCharges(), h.checkConcurrent()); err != nil {
		return err
	}
	for _, zone := range h.zones {
		h.metered = h.metered || zone.meter != nil
		zone.logKey, zone.logger = h.LogKey, h.logger
		h.warnOfAnother(zone)
		zone.fallbackText = headers.Number(zone.fallback.Capacity)
		zone.layout = h.app.layout(zone.route)
		if h.app.Redis != nil {
			zone.sharers = h.app.sharers
		}
		if zone.layout.join(zone) {
			h.logger.Warn("the handlers of this route have different shards, so its buckets are not split: give all of them the same number, one route, a cost of 1 and no prefetch",
				zap.String("route", zone.name))
		}
	}
	if h.DisableMetrics {
		return nil
	}
	for _, zone := range h.zones {
		zone.counts = h.app.metrics.route(zone.name)
		zone.counts.beginCharges(zone.meter, zone.ban > 0)
	}
	return nil
}

// zonesByRoute makes a zone of each route.
func (h *Handler) zonesByRoute() ([]*zone, error) {
	routes := h.routes()
	defaults, err := h.ruleDefaults()
	if err != nil {
		return nil, err
	}
	limits, err := newLimits(h.Limits, routes, defaults)
	if err != nil {
		return nil, err
	}
	zones := make([]*zone, 0, len(routes))
	for i, route := range routes {
		if !limit.ValidRoute(route) {
			return nil, fmt.Errorf("routes: %q is not a route: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", route, limit.MaxRouteLength)
		}
		if slices.Contains(routes[:i], route) {
			return nil, fmt.Errorf("routes: %q is given twice", route)
		}
		own := defaults
		if own.Concurrent, err = h.placesOf(route); err != nil {
			return nil, err
		}
		fallback, err := h.fallbackFor(route, limits, own)
		if err != nil {
			return nil, err
		}
		fallback.Concurrent = own.Concurrent
		zones = append(zones, &zone{
			name: route, route: route, defaults: own, fallback: fallback,
			single: len(routes) == 1 && h.cost.fixed == 1 && own.Concurrent == 0,
		})
	}
	return zones, nil
}

// defaultRoute is the route of a handler that names none.
const defaultRoute = "default"

// routes returns the routes that count.
func (h *Handler) routes() []string {
	if len(h.Routes) == 0 {
		return []string{defaultRoute}
	}
	return h.Routes
}

// ruleDefaults returns what a rule of this handler does not name.
func (h *Handler) ruleDefaults() (limit.Rule, error) {
	defaults := limit.Rule{Algorithm: limit.TokenBucket, Mode: limit.Enforce, Prefetch: limit.PrefetchOff, Shards: 1}
	if h.Algorithm != "" {
		var err error
		if defaults.Algorithm, err = limit.ParseAlgorithm(h.Algorithm); err != nil {
			return defaults, fmt.Errorf("algorithm: %w", err)
		}
	}
	if most := int64(max(1, maxLogCost/len(h.routes()))); defaults.Algorithm == limit.SlidingWindowLog && h.cost.fixed > most {
		return defaults, fmt.Errorf("cost: %d is more than a sliding_window_log bears, which is %d: %d in all for each of the routes", h.cost.fixed, most, maxLogCost)
	}
	if h.Shadow {
		defaults.Mode = limit.Shadow
	}
	ahead, err := h.Prefetch.rule()
	if err != nil {
		return defaults, err
	}
	defaults = limit.Rule{Prefetch: ahead, Shards: uint8(min(max(h.Shards, 0), limit.MaxShards))}.Or(defaults)
	return defaults, h.checkFront(defaults)
}

// fallbackFor returns the rule of a route where no other is found.
func (h *Handler) fallbackFor(route string, limits map[string]limit.Rule, defaults limit.Rule) (limit.Rule, error) {
	for _, name := range []string{route, ""} {
		if own, found := limits[name]; found {
			return own, nil
		}
	}
	if h.app.fallback != nil {
		rule, err := limit.NewRule(h.app.fallback.Or(defaults))
		if err != nil {
			return rule, fmt.Errorf("default, for route %q: %w", route, err)
		}
		return rule, nil
	}
	if defaults.Concurrent > 0 && !h.app.coversRoute(route) {
		return limit.Rule{Mode: defaults.Mode}, nil // places alone
	}
	if !h.app.coversRoute(route) {
		return limit.Rule{}, fmt.Errorf("route %q has no rule that every tenant falls back to, and no zone is there either: give the directive a `limit`, the global option a `default`, or add a static rule for (*, %s)", route, route)
	}
	return limit.Rule{}, nil
}

// checkFront returns why the handler's options of the layers before Redis do not
// go together.
func (h *Handler) checkFront(defaults limit.Rule) error {
	ahead := defaults.Prefetch != limit.PrefetchOff
	switch {
	case !ahead && defaults.Shards <= 1:
		return nil
	case len(h.routes()) > 1 || len(h.RateLimits) > 0:
		return errors.New("prefetch and shards: they are for one route, because several buckets are decided at once")
	case h.cost.fixed != 1:
		return errors.New("prefetch and shards: they are for requests that cost 1")
	case defaults.Shards > 1 && ahead:
		return errors.New("shards: they do not go together with prefetch")
	case defaults.Shards > 1 && defaults.Algorithm != limit.TokenBucket:
		return errors.New("shards: they are for the token bucket, because the parts of a window are no window")
	case h.app.Redis == nil:
		h.logger.Warn("prefetch and shards have no effect without redis")
	}
	return nil
}

// layout is how the buckets of a route may lie in Redis, over all handlers that
// share them: a bucket that one splits and another does not would be two.
type layout struct {
	shards uint8 // what the handlers ask for
	known  bool
	whole  bool // no bucket of the route may be split
}

// layout returns that of the route. It is complete when all handlers are
// provisioned, and so before any request.
func (a *App) layout(route string) *layout {
	known, found := a.layouts[route]
	if !found {
		known = new(layout)
		a.layouts[route] = known
	}
	return known
}

// join adds a zone to those that share the layout, and reports whether that
// makes shards impossible which somebody asks for.
func (l *layout) join(z *zone) (lost bool) {
	asked := max(l.shards, z.defaults.Shards)
	if !z.single || z.defaults.Prefetch != limit.PrefetchOff || l.known && l.shards != z.defaults.Shards {
		l.whole = true
	}
	l.shards, l.known = asked, true
	return l.whole && asked > 1
}

// alone makes a rule one that the layers before Redis can act on. What it asks
// for beyond that is left out: the limit is the same without.
func (z *zone) alone(rule limit.Rule) limit.Rule {
	if !z.single || rule.Concurrent > 0 {
		rule.Prefetch = limit.PrefetchOff
	}
	if rule.Concurrent > 0 {
		rule.Shards = min(rule.Shards, 1)
	}
	if rule.Shards > 1 && (z.layout.whole || rule.Algorithm != limit.TokenBucket || rule.Prefetch != limit.PrefetchOff) {
		rule.Shards = 1
	}
	return rule
}

// Handlers of one route share its buckets, also over sites. Where they do not
// agree on the limit, whoever asks last decides what the bucket holds, which
// nobody means. Rules that count for the route leave nothing to disagree on.

// warnOfAnother tells of a limit of the route that another handler has.
func (h *Handler) warnOfAnother(z *zone) {
	if h.app.coversRoute(z.route) || z.fallback.Capacity == 0 {
		return
	}
	first, found := h.app.limits[z.route]
	if !found {
		h.app.limits[z.route] = z.fallback
		return
	}
	if agree(first, z.fallback) {
		return
	}
	h.logger.Warn("two handlers limit one route differently, and share its buckets: give them the same limit, or each a route of its own",
		zap.String("route", z.name), zap.String("limit", sentenceOf(first)), zap.String("other", sentenceOf(z.fallback)))
}

// agree reports whether two rules make the same bucket.
func agree(a, b limit.Rule) bool {
	return a.Capacity == b.Capacity && a.Refill == b.Refill && a.Algorithm == b.Algorithm
}

// sentenceOf is a rule in words, such as "10 in 1m0s by sliding_window_log".
func sentenceOf(r limit.Rule) string {
	return fmt.Sprintf("%d in %v by %v", r.Capacity, time.Duration(r.WindowMillis)*time.Millisecond, r.Algorithm)
}

// written is a limit of a Caddyfile, with the place where its directive stands.
type written struct {
	rule  limit.Rule
	place string
}

// warnOfPlaces tells of limits of one route that two directives of the Caddyfile
// write differently. Only here their places are known.
func warnOfPlaces(h httpcaddyfile.Helper, place string, handler *Handler) {
	const key = "rate_limit.limits"
	limits, found := h.State[key].(map[string]written)
	if !found {
		limits = map[string]written{}
		h.State[key] = limits
	}
	for route, rule := range handler.writtenLimits() {
		first, found := limits[route]
		if !found {
			limits[route] = written{rule: rule, place: place}
			continue
		}
		if !agree(first.rule, rule) {
			caddy.Log().Named(directive).Warn("two directives limit one route differently",
				zap.String("route", route), zap.String("first", first.place), zap.String("second", place),
				zap.String("limit", sentenceOf(first.rule)), zap.String("other", sentenceOf(rule)))
		}
	}
}

// writtenLimits returns the limits that the directive itself writes, by route.
func (h *Handler) writtenLimits() map[string]limit.Rule {
	limits := map[string]limit.Rule{}
	algorithm := func(word, other string, fallback limit.Algorithm) limit.Rule {
		for _, text := range []string{word, other} {
			if parsed, err := limit.ParseAlgorithm(text); err == nil {
				return limit.Rule{Algorithm: parsed}
			}
		}
		return limit.Rule{Algorithm: fallback}
	}
	for name, z := range h.RateLimits {
		if rule, err := z.rule(name, algorithm(z.Algorithm, h.Algorithm, limit.SlidingWindowLog)); err == nil {
			limits[name] = rule
		}
	}
	byRoute, err := newLimits(h.Limits, h.routes(), algorithm(h.Algorithm, "", limit.TokenBucket))
	if err != nil {
		return limits
	}
	for _, route := range h.routes() {
		for _, name := range []string{"", route} {
			if rule, found := byRoute[name]; found {
				limits[route] = rule
			}
		}
	}
	return limits
}
