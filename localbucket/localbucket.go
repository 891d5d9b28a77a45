// Package localbucket is a limit.Limiter in memory: all there is where no Redis
// is configured, and each instance's share of the limit while Redis is away.
package localbucket

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Take decides, with SourceLocal. It allocates nothing for one bucket, unless
// the bucket is new. An error means that the request has no bucket, a cost below
// 1, a count below 0, or an algorithm that is not built yet; the last wraps
// errors.ErrUnsupported.
func (l *Limiter) Take(_ context.Context, req limit.Request) (limit.Decision, error) {
	if err := check(&req); err != nil {
		return limit.Decision{}, fmt.Errorf("deciding in memory: %w", err)
	}
	if len(req.Buckets) == 1 {
		return l.takeOne(&req), nil
	}
	return l.takeAll(&req), nil
}

// Reset forgets the bucket under every algorithm. It never fails.
func (l *Limiter) Reset(_ context.Context, key limit.Key) error {
	bucket := l.store.hash(key, limit.TokenBucket)
	log := l.store.hash(key, limit.SlidingWindowLog)
	counter := l.store.hash(key, limit.SlidingWindowCounter)
	held := l.store.states.Lock(bucket, log, counter)
	defer held.Unlock()
	held.Delete(&bucket)
	held.Delete(&log)
	held.Delete(&counter)
	return nil
}

// takeOne decides for one bucket: what takeAll does, without its slices.
func (l *Limiter) takeOne(req *limit.Request) limit.Decision {
	key := l.store.hash(req.Buckets[0].Key, algorithmOf(&req.Buckets[0]))
	held := l.store.states.Lock(key)
	defer held.Unlock()
	t := turn{key: &key, rule: &req.Buckets[0].Rule, ask: ask{cost: req.Cost, count: req.Count, now: l.now()}}
	granted := min(req.Count, t.read(&held))
	return limit.Decision{Granted: granted, Source: limit.SourceLocal, First: t.settle(&held, granted)}
}

// takeAll reads every bucket, and then takes the same from each, or nothing.
func (l *Limiter) takeAll(req *limit.Request) limit.Decision {
	keys := make([]hashedKey, len(req.Buckets))
	for i := range keys {
		keys[i] = l.store.hash(req.Buckets[i].Key, algorithmOf(&req.Buckets[i]))
	}
	held := l.store.states.Lock(keys...)
	defer held.Unlock()
	wanted := ask{cost: req.Cost, count: req.Count, now: l.now()}
	turns := make([]turn, len(keys))
	granted := req.Count
	for i := range turns {
		turns[i] = turn{key: &keys[i], rule: &req.Buckets[i].Rule, ask: wanted}
		granted = min(granted, turns[i].read(&held))
	}
	rest := make([]limit.State, len(turns)-1)
	for i := range rest {
		turns[i+1].stored = held.Get(turns[i+1].key)
		rest[i] = turns[i+1].settle(&held, granted)
	}
	turns[0].stored = held.Get(turns[0].key)
	return limit.Decision{Granted: granted, Source: limit.SourceLocal, First: turns[0].settle(&held, granted), Rest: rest}
}

// now returns the time since the store's epoch in ms, rounded down.
func (l *Limiter) now() int64 {
	var since time.Duration
	if l.clock == nil {
		since = time.Since(l.store.epoch)
	} else {
		since = l.clock().Sub(l.store.epoch)
	}
	ms := since.Milliseconds()
	if since%time.Millisecond < 0 {
		ms--
	}
	return ms
}

// check holds a request to what limit.Request says.
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
		switch algorithm := algorithmOf(&req.Buckets[i]); algorithm {
		case limit.TokenBucket:
		default:
			return fmt.Errorf("algorithm %q: %w", algorithm, errors.ErrUnsupported)
		}
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
