package ratelimit

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// decide asks the limiters about the charges. The enforced ones are asked in one
// call, so that all give or none; a shadow bucket never has a say in that, and is
// asked by itself after the others have granted. It errs only where the client
// has left.
func (h *Handler) decide(r *http.Request, current *answer, from int, cost int64) error {
	charges := current.charges[from:]
	granted, err := h.enforce(r.Context(), charges, current.buckets[:0], cost)
	if err != nil || !granted {
		return err
	}
	for i := range charges {
		c := &charges[i]
		if c.enforced() {
			continue
		}
		decision, err := h.take(r.Context(), []limit.Bucket{c.bucket}, cost)
		if err != nil {
			return err
		}
		c.note(decision, decision.First, outcomeShadow)
	}
	return nil
}

// enforce asks about all buckets that may refuse the request. They are put into
// buckets, which is empty.
func (h *Handler) enforce(ctx context.Context, charges []charge, buckets []limit.Bucket, cost int64) (granted bool, err error) {
	for i := range charges {
		if charges[i].enforced() {
			buckets = append(buckets, charges[i].bucket)
		}
	}
	if len(buckets) == 0 {
		return true, nil
	}
	decision, err := h.take(ctx, buckets, cost)
	if err != nil {
		return false, err
	}
	next := 0
	for i := range charges {
		if charges[i].enforced() {
			charges[i].note(decision, decision.At(next), outcomeRefused)
			next++
		}
	}
	return decision.Granted > 0, nil
}

// take asks the chain of limiters.
func (h *Handler) take(ctx context.Context, buckets []limit.Bucket, cost int64) (limit.Decision, error) {
	decision, err := h.app.limiter.Take(ctx, limit.Request{Buckets: buckets, Cost: cost, Count: 1})
	if err == nil {
		return decision, nil
	}
	if cause := ctx.Err(); cause != nil {
		return decision, caddyhttp.Error(statusClientClosedRequest, cause)
	}
	// Even the last limiter of the chain failed. That is a defect of ours, and
	// no reason to fail the request.
	h.logger.Error("deciding failed, the request passes", zap.Error(err))
	return limit.Decision{Granted: 1, Source: limit.SourceNone, Rest: make([]limit.State, len(buckets)-1)}, nil
}
