package ratelimit

import (
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// decide asks the limiters about the charges, for what is wanted of each. The
// enforced ones are asked in one call, so that all give or none. Shadow buckets never
// have a say in that: they are asked after the others have granted. Who is ignorant
// of the rules asks its own buckets. It errs only where the client has left.
func (h *Handler) decide(r *http.Request, current *answer, from int, wanted limit.Request) error {
	charges, cost := current.charges[from:], wanted.Cost
	wanted.Cost, wanted.Deadline = payable(charges, cost), h.deadline(charges)
	granted, err := h.enforce(r.Context(), charges, current.buckets[:0], wanted)
	if err != nil || !granted {
		return err
	}
	wanted.Buckets = current.buckets[:0]
	return askShadows(charges, wanted, cost, func(wanted limit.Request) (limit.Decision, error) {
		return h.take(r.Context(), wanted)
	})
}

// askShadows asks about the buckets that may not refuse the request: each by itself,
// and all in one call, but for those of a region's share that cost something else.
func askShadows(charges []charge, wanted limit.Request, cost int64, ask func(limit.Request) (limit.Decision, error)) error {
	logs := logsOf(charges, false)
	for i := range charges {
		if charges[i].enforced() || charges[i].asked {
			continue
		}
		wanted.Apart, wanted.Buckets = true, wanted.Buckets[:0]
		wanted.Cost = charges[i].payable(cost)
		for j := i; j < len(charges); j++ {
			if c := &charges[j]; c.costs(wanted.Cost, cost) {
				c.asked = true
				if !c.tooLarge(wanted.Cost, logs, outcomeShadow) {
					wanted.Buckets = append(wanted.Buckets, c.bucket)
				}
			}
		}
		if len(wanted.Buckets) == 0 {
			continue
		}
		decision, err := ask(wanted)
		if err != nil {
			return err
		}
		noteShadows(charges[i:], wanted.Buckets, decision)
	}
	return nil
}

// costs reports whether the bucket may not refuse the request, is not asked yet,
// and is to be asked for this price.
func (c *charge) costs(price, cost int64) bool {
	return !c.enforced() && !c.asked && c.payable(cost) == price
}

// noteShadows writes a decision into the charges whose buckets were asked.
func noteShadows(charges []charge, buckets []limit.Bucket, decision limit.Decision) {
	next := 0
	for i := range charges {
		if c := &charges[i]; next < len(buckets) && !c.enforced() && c.bucket.Key == buckets[next].Key {
			part := decision.Part(next)
			c.note(part, part.First, outcomeShadow)
			next++
		}
	}
}

// enforce asks about all buckets that may refuse the request. They are put into
// buckets, which is empty.
func (h *Handler) enforce(ctx context.Context, charges []charge, buckets []limit.Bucket, wanted limit.Request) (granted bool, err error) {
	buckets, possible := enforcedBuckets(charges, buckets, wanted.Cost)
	if !possible || len(buckets) == 0 {
		return possible, nil
	}
	wanted.Buckets = buckets
	decision, err := h.take(ctx, wanted)
	if err != nil {
		return false, err
	}
	noteEnforced(charges, decision)
	return decision.Granted > 0, nil
}

// enforcedBuckets adds the buckets that may refuse the request to the list. It is
// not possible that they give where one of them bears no such cost.
func enforcedBuckets(charges []charge, buckets []limit.Bucket, cost int64) (list []limit.Bucket, possible bool) {
	logs := logsOf(charges, true)
	for i := range charges {
		if !charges[i].enforced() {
			continue
		}
		if charges[i].tooLarge(cost, logs, outcomeRefused) {
			return nil, false
		}
		buckets = append(buckets, charges[i].bucket)
	}
	return buckets, true
}

// noteEnforced writes a decision into the enforced charges. A refusal is never
// without one that refused, whatever the states say.
func noteEnforced(charges []charge, decision limit.Decision) {
	next, first, refused := 0, -1, false
	for i := range charges {
		if !charges[i].enforced() {
			continue
		}
		charges[i].note(decision, decision.At(next), outcomeRefused)
		refused = refused || charges[i].outcome == outcomeRefused
		if next == 0 {
			first = i
		}
		next++
	}
	if decision.Granted < 1 && !refused {
		charges[first].outcome = outcomeRefused
	}
}

// deadline is when all that is asked for one request must be answered, if it is
// asked in several calls. One call has the time that the chain gives it.
func (h *Handler) deadline(charges []charge) time.Time {
	if h.app.Redis == nil || len(charges) == 1 {
		return time.Time{}
	}
	return time.Now().Add(h.app.Redis.timeout())
}

// maxLogCost is the most that a request may take from logs in one call, all told.
// Each token is an entry there: more would hold up Redis for everyone.
const maxLogCost = 400

// logsOf is how many of the charges are logs, of those that may refuse the request
// or of the others.
func logsOf(charges []charge, enforced bool) (n int64) {
	for i := range charges {
		if charges[i].bucket.Rule.Algorithm == limit.SlidingWindowLog && charges[i].enforced() == enforced {
			n++
		}
	}
	return n
}

// tooLarge reports whether the cost is more than the bucket's kind can bear, beside
// other logs in one call, and notes that it can never be had.
func (c *charge) tooLarge(cost, logs int64, refused outcome) bool {
	if c.bucket.Rule.Algorithm != limit.SlidingWindowLog || cost <= maxLogCost/logs {
		return false
	}
	c.outcome, c.state = refused, limit.State{RetryAfter: limit.Never}
	return true
}

// take asks the chain of limiters.
func (h *Handler) take(ctx context.Context, wanted limit.Request) (limit.Decision, error) {
	decision, err := h.app.limiter.Take(ctx, wanted)
	if err == nil {
		return decision, nil
	}
	if cause := ctx.Err(); cause != nil {
		return decision, caddyhttp.Error(statusClientClosedRequest, cause)
	}
	// Even the last limiter of the chain failed. That is a defect of ours, and
	// no reason to fail the request.
	h.logger.Error("deciding failed, the request passes", zap.Error(err))
	return limit.Decision{Granted: 1, Source: limit.SourceNone, Rest: make([]limit.State, len(wanted.Buckets)-1)}, nil
}
