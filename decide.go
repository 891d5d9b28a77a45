package ratelimit

import (
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// decide asks the limiters about the charges, for what is wanted of each. The enforced ones are asked in one
// call, so that all give or none; a shadow bucket never has a say in that, and is
// asked by itself after the others have granted. Who is ignorant of the rules asks
// its own buckets. It errs only where the client has left.
func (h *Handler) decide(r *http.Request, current *answer, from int, wanted limit.Request) error {
	charges, cost := current.charges[from:], wanted.Cost
	wanted.Cost, wanted.Deadline = payable(charges, cost), h.deadline(charges)
	granted, err := h.enforce(r.Context(), charges, current.buckets[:0], wanted)
	if err != nil || !granted {
		return err
	}
	for i := range charges {
		c := &charges[i]
		wanted.Cost = c.payable(cost)
		if c.enforced() || c.tooLarge(wanted.Cost, outcomeShadow) {
			continue
		}
		wanted.Buckets = []limit.Bucket{c.bucket}
		decision, err := h.take(r.Context(), wanted)
		if err != nil {
			return err
		}
		c.note(decision, decision.First, outcomeShadow)
	}
	return nil
}

// enforce asks about all buckets that may refuse the request. They are put into
// buckets, which is empty.
func (h *Handler) enforce(ctx context.Context, charges []charge, buckets []limit.Bucket, wanted limit.Request) (granted bool, err error) {
	for i := range charges {
		if !charges[i].enforced() {
			continue
		}
		if charges[i].tooLarge(wanted.Cost, outcomeRefused) {
			return false, nil
		}
		buckets = append(buckets, charges[i].bucket)
	}
	if len(buckets) == 0 {
		return true, nil
	}
	wanted.Buckets = buckets
	decision, err := h.take(ctx, wanted)
	if err != nil {
		return false, err
	}
	noteEnforced(charges, decision)
	return decision.Granted > 0, nil
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

// maxLogCost is the most that a request may take from a log, which writes an
// entry for each token: more would hold up Redis for everyone.
const maxLogCost = 1000

// tooLarge reports whether the cost is more than the bucket's kind can bear, and
// notes that it can never be had.
func (c *charge) tooLarge(cost int64, refused outcome) bool {
	if cost <= maxLogCost || c.bucket.Rule.Algorithm != limit.SlidingWindowLog {
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
