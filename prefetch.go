package ratelimit

import (
	"errors"

	"github.com/caddygate/ratelimit/limit"
)

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
		h.logger.Warn("without redis there is nothing to take ahead and no key to split: prefetch and shards have no effect")
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
	if !z.single {
		rule.Prefetch = limit.PrefetchOff
	}
	if rule.Shards > 1 && (z.layout.whole || rule.Algorithm != limit.TokenBucket || rule.Prefetch != limit.PrefetchOff) {
		rule.Shards = 1
	}
	return rule
}
