package ratelimit

import (
	"context"
	"net/http"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
)

// nextAnswer is what the next request would get.
type nextAnswer struct {
	Outcome    string `json:"outcome"`
	Status     int    `json:"status,omitempty"`
	Route      string `json:"route,omitempty"`
	Cost       int64  `json:"cost,omitempty"`
	Remaining  *int64 `json:"remaining,omitempty"`
	RetryAfter *int64 `json:"retry_after,omitempty"`
	Source     string `json:"source,omitempty"`
}

// outcomeUnknown is the outcome where the query does not name one bucket.
const outcomeUnknown = "unknown"

// ended is what a request gets for whose it is. A directive in shadow lets it pass.
func ended(means standing, shadow bool) nextAnswer {
	if means == standingFree {
		return nextAnswer{Outcome: outcomeWords[outcomeAllowed], Status: http.StatusOK}
	}
	status := http.StatusUnauthorized
	if shadow {
		status = http.StatusOK
	}
	return nextAnswer{Outcome: outcomeWords[outcomeUnauthorized], Status: status}
}

// next tells what ServeHTTP would do with the visitor's next request, in the same
// steps, and takes nothing.
func (e *explanation) next(ctx context.Context, who visitor) nextAnswer {
	current, cost := new(verdict), e.price()
	for _, zone := range e.zones() {
		rule := zone.rule(&who, e.rules)
		switch rule.Mode {
		case limit.Deny:
			return nextAnswer{Outcome: outcomeWords[outcomeDenied], Status: http.StatusForbidden, Route: zone.name}
		case limit.Unlimited:
		default:
			key := limit.Key{Tenant: who.key, Route: zone.route}
			current.add(e.rules.charge(zone, key, who.shown, rule))
		}
	}
	if len(current.charges) == 0 {
		return nextAnswer{Outcome: outcomeWords[outcomeUnlimited], Status: http.StatusOK}
	}
	wanted := limit.Request{Cost: cost, Count: 1, Local: e.rules.ignorant()}
	if err := e.handler.decide(current.charges, wanted, e.handler.foreseeing(ctx)); err != nil {
		return nextAnswer{Outcome: outcomeUnknown, Cost: cost}
	}
	return e.told(current, cost)
}

// zones are those that a request meets for sure: all of a handler with routes, and
// of zones that match for themselves the one that is asked about.
func (e *explanation) zones() []*zone {
	if len(e.handler.RateLimits) > 0 {
		return []*zone{e.zone}
	}
	return e.handler.zones
}

// told is what a decided request is told.
func (e *explanation) told(current *verdict, cost int64) nextAnswer {
	violated := current.violated(0)
	if violated < 0 {
		current.showNearest(0, headerStyle{})
	} else {
		current.about = violated
	}
	about := &current.charges[current.about]
	next := nextAnswer{
		Outcome: outcomeWords[about.outcome], Status: http.StatusOK, Route: about.zone.name, Cost: cost, Source: about.source.String(),
	}
	if about.shown() {
		remaining := min(max(about.state.Remaining, 0), about.bucket.Rule.Capacity)
		next.Remaining = &remaining
	}
	if violated < 0 {
		return next
	}
	next.Status = http.StatusTooManyRequests
	if wait := about.state.RetryAfter; wait != limit.Never {
		seconds := max(1, headers.WholeSeconds(wait))
		next.RetryAfter = &seconds
	}
	return next
}
