// Package localbucket is a limit.Limiter in memory: all there is where no Redis
// is configured, and each instance's share of the limit while Redis is away.
package localbucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// Options are the settings of a Limiter.
type Options struct {
	// Clock tells the time; of times with a monotonic reading that one counts.
	// Default: the monotonic clock, which no step of the wall clock moves.
	Clock func() time.Time
}

// Limiter decides from the buckets of a Store. It is one config's view of them:
// several may work on one store. It waits for nothing but short locks
// that few callers share, so it ignores contexts and deadlines.
type Limiter struct {
	store *Store
	clock func() time.Time
}

// New returns a Limiter on store.
func New(store *Store, o Options) *Limiter {
	return &Limiter{store: store, clock: o.Clock}
}

// Take decides, with SourceLocal. For one bucket it allocates nothing, unless the
// bucket is new or its log outgrows its room. An error means that the request has
// no bucket, a cost below 1, a count below 0, or a rule out of bounds.
func (l *Limiter) Take(_ context.Context, req limit.Request) (limit.Decision, error) {
	if err := check(&req); err != nil {
		return limit.Decision{}, fmt.Errorf("deciding in memory: %w", err)
	}
	switch {
	case req.Splits():
		return req.TakeEach(func(one limit.Request) (limit.Decision, error) { return l.decide(&one), nil })
	default:
		return l.decide(&req), nil
	}
}

// decide decides for all buckets of a request together.
func (l *Limiter) decide(req *limit.Request) limit.Decision {
	switch {
	case req.Places():
		return l.takePlaces(req)
	case l.mayBan(req):
		return l.takeUnlessBanned(req)
	case len(req.Buckets) == 1:
		return l.takeSole(req)
	default:
		return l.takeAll(req)
	}
}

// Settle settles in the bucket at once. What is not of this process' memory is lost.
func (l *Limiter) Settle(s limit.Settlement) {
	one := limit.Request{Buckets: []limit.Bucket{s.Bucket}, Cost: 1}
	if err := check(&one); err != nil || s.Source != limit.SourceLocal {
		s.End(limit.Settled{Lost: "invalid"})
		return
	}
	var result limit.Settled
	switch algorithmOf(&s.Bucket) {
	case limit.Concurrency:
		l.settlePlaces(&s)
		s.End(result)
		return
	case limit.SlidingWindowLog:
		result.Cut = settleOne(l, l.store.logs, &s)
	case limit.SlidingWindowCounter:
		result.Cut = settleOne(l, l.store.counters, &s)
	default:
		result.Cut = settleOne(l, l.store.levels, &s)
	}
	result.Banned = l.settleBan(&s)
	s.End(result)
}

// takeSole decides for the only bucket of a request.
func (l *Limiter) takeSole(req *limit.Request) limit.Decision {
	switch algorithmOf(&req.Buckets[0]) {
	case limit.SlidingWindowLog:
		return takeOne(l, l.store.logs, req)
	case limit.SlidingWindowCounter:
		return takeOne(l, l.store.counters, req)
	default:
		return takeOne(l, l.store.levels, req)
	}
}

// Reset forgets the bucket under every algorithm. It never fails.
func (l *Limiter) Reset(_ context.Context, key limit.Key) error {
	name := l.store.fingerprint(key)
	forget(l.store.levels, name)
	forget(l.store.logs, name)
	forget(l.store.counters, name)
	forget(l.store.bans, name)
	return nil
}

func forget[S bounded.Value](in *bounded.Map[S], name fingerprint) {
	held := in.Lock(name)
	defer held.Unlock()
	held.Delete(name)
}

// takeOne decides for one bucket: what takeAll does, without allocating.
func takeOne[S state[S]](l *Limiter, in *states[S], req *limit.Request) limit.Decision {
	key := l.store.fingerprint(req.Buckets[0].Key)
	held := in.Lock(key)
	defer held.Unlock()
	t := newTurn[S](key, ask{cost: req.CostOf(0), count: req.Count, elapsed: l.elapsed()}, &req.Buckets[0].Rule)
	granted := min(req.Count, t.read(&held))
	return limit.Decision{Granted: granted, Source: limit.SourceLocal, First: t.settle(&held, granted)}
}

// settleOne settles in a bucket of one algorithm, and returns what it has no room for.
func settleOne[S state[S]](l *Limiter, in *states[S], s *limit.Settlement) (cut int64) {
	key := l.store.fingerprint(s.Bucket.Key)
	held := in.Lock(key)
	defer held.Unlock()
	elapsed := l.elapsed()
	t := newTurn[S](key, ask{cost: 1, count: 1, elapsed: elapsed}, &s.Bucket.Rule)
	t.read(&held)
	more := s.More()
	if t.stored == nil && more <= 0 {
		return 0
	}
	at := floorTo(elapsed-s.Age(l.now()), t.current.unit())
	t.current, cut = t.current.settled(more, at, t.rule, t.now)
	t.keep(&held, t.current.state(1, t.rule, t.now))
	return cut
}

// now tells the time that requests are told by.
func (l *Limiter) now() time.Time {
	if l.clock == nil {
		return time.Now()
	}
	return l.clock()
}

// elapsed returns the time since the store's epoch.
func (l *Limiter) elapsed() time.Duration {
	if l.clock == nil {
		return time.Since(l.store.epoch)
	}
	return l.clock().Sub(l.store.epoch)
}

// check holds a request to what limit.Request and limit.NewRule say.
func check(req *limit.Request) error {
	switch {
	case len(req.Buckets) == 0:
		return errors.New("the request has no bucket")
	case req.Cost < 1:
		return fmt.Errorf("cost %d is below 1", req.Cost)
	case req.Count < 0:
		return fmt.Errorf("count %d is below 0", req.Count)
	}
	for i := range req.Buckets {
		if err := checkRule(&req.Buckets[i].Rule); err != nil {
			return err
		}
	}
	return nil
}

// checkRule refuses what the arithmetic of the sliding windows has no answer for.
func checkRule(rule *limit.Rule) error {
	switch {
	case rule.Algorithm <= limit.TokenBucket:
		return nil
	case rule.Algorithm > limit.SlidingWindowCounter && rule.Algorithm != limit.Concurrency:
		return fmt.Errorf("algorithm %d is unknown", rule.Algorithm)
	case rule.Capacity < 1 || rule.Capacity > limit.MaxCapacity:
		return fmt.Errorf("capacity %d is out of bounds", rule.Capacity)
	case rule.WindowMillis < 1 || rule.WindowMillis > limit.MaxWindow.Milliseconds():
		return fmt.Errorf("a window of %d ms is out of bounds", rule.WindowMillis)
	}
	return nil
}

// algorithmOf returns the bucket's algorithm, which is the token bucket where
// the rule names none, as in limit.Rule.Share.
func algorithmOf(bucket *limit.Bucket) limit.Algorithm {
	if bucket.Rule.Algorithm == 0 {
		return limit.TokenBucket
	}
	return bucket.Rule.Algorithm
}

// Interface guards
var _ limit.Limiter = (*Limiter)(nil)
