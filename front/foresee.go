package front

import (
	"context"
	"errors"

	"github.com/caddygate/ratelimit/limit"
)

// Foresee returns what Take would decide now, and changes nothing.
func (f *Failover) Foresee(ctx context.Context, req limit.Request) (limit.Decision, error) {
	foresight := &Failover{
		Primary: foreseen{f.Primary}, Local: foreseen{f.Local}, Timeout: f.Timeout,
		Instances: f.Instances, Fallback: f.Fallback, DenyFor: f.DenyFor, Clock: f.Clock,
	}
	return foresight.Take(ctx, req)
}

// Foresee grants a token from hand where there is one, and else returns what Next
// would decide. It changes nothing.
func (p *Prefetch) Foresee(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if takesAhead(&req) {
		if decision, ok := p.glance(&req.Buckets[0]); ok {
			return decision, nil
		}
	}
	return limit.Foresee(ctx, p.Next, req)
}

// glance is the decision on the next token from hand, which stays there.
func (p *Prefetch) glance(bucket *limit.Bucket) (limit.Decision, bool) {
	now := p.Store.elapsed(p.Clock)
	h, found := p.Store.peek(p.Store.key(bucket.Key))
	if !found || h.rule != bucket.Rule || !h.spend(now) {
		return limit.Decision{}, false
	}
	return h.decision(now), true
}

// Foresee returns what Take would decide now, and changes nothing. The part that
// is asked first is a random one here, too.
func (s *Shards) Foresee(ctx context.Context, req limit.Request) (limit.Decision, error) {
	foresight := &Shards{Next: foreseen{s.Next}, Random: s.Random, Clock: s.Clock}
	return foresight.Take(ctx, req)
}

// Foresee refuses where a refusal is known to hold, and else returns what Next
// would decide. It changes nothing.
func (m *Memory) Foresee(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if found := m.recall(&req, m.Store.elapsed(m.Clock), false); found.refuses {
		return found.decision, nil
	}
	return limit.Foresee(ctx, m.Next, req)
}

// foreseen is a Limiter that decides what another one would.
type foreseen struct{ of limit.Limiter }

// Take foresees a decision.
func (f foreseen) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	return limit.Foresee(ctx, f.of, req)
}

// Settle is not supported, because nothing is to change.
func (f foreseen) Settle(s limit.Settlement) { s.End(limit.Settled{Lost: "unsupported"}) }

// Reset is not supported, because nothing is to change.
func (f foreseen) Reset(context.Context, limit.Key) error { return errors.ErrUnsupported }

// Interface guards
var (
	_ limit.Limiter  = foreseen{}
	_ limit.Foreseer = (*Failover)(nil)
	_ limit.Foreseer = (*Prefetch)(nil)
	_ limit.Foreseer = (*Shards)(nil)
	_ limit.Foreseer = (*Memory)(nil)
)
