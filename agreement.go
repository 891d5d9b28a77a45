package ratelimit

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// Handlers of one route share its buckets, also over sites. Where they do not
// agree on the limit, whoever asks last decides what the bucket holds, which
// nobody means. Rules that count for the route leave nothing to disagree on.

// warnOfAnother tells of a limit of the route that another handler has.
func (h *Handler) warnOfAnother(z *zone) {
	if h.app.coversRoute(z.route) {
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
