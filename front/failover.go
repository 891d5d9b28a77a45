// Package front holds the layers that stand before the buckets, each a
// limit.Limiter over a limit.Limiter.
package front

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Fallback is what a Failover does when its primary cannot answer.
type Fallback uint8

// The fallbacks.
const (
	// FallbackLocal asks this instance's own buckets for its share of the limit.
	FallbackLocal Fallback = iota
	// FallbackAllow grants everything.
	FallbackAllow
	// FallbackDeny refuses everything.
	FallbackDeny
)

// String returns the word for the fallback that configuration uses.
func (f Fallback) String() string {
	switch f {
	case FallbackAllow:
		return "allow"
	case FallbackDeny:
		return "deny"
	default:
		return "local"
	}
}

// ParseFallback reads the word for a fallback. The error lists those allowed.
func ParseFallback(word string) (Fallback, error) {
	for f := FallbackLocal; f <= FallbackDeny; f++ {
		if word == f.String() {
			return f, nil
		}
	}
	return 0, limit.UnknownWord("fallback", word, FallbackLocal.String(), FallbackAllow.String(), FallbackDeny.String())
}

const (
	// DefaultTimeout is how long a Failover waits for its primary by default.
	DefaultTimeout = 5 * time.Millisecond
	// DefaultDenyFor is the wait that a Failover names under FallbackDeny by
	// default.
	DefaultDenyFor = time.Second
)

// Failover asks a primary Limiter within a deadline, and goes on without it
// where it fails. Set the fields before the first call; it must not be copied.
type Failover struct {
	// Primary is asked first.
	Primary limit.Limiter

	// Local holds this process's own buckets, for FallbackLocal.
	Local limit.Limiter

	// Timeout is how long the primary may take for one decision. It becomes the
	// request's Deadline, unless that is set already. Default: DefaultTimeout.
	Timeout time.Duration

	// Instances tells how many instances share a limit when they cannot ask the
	// primary: each gives limit.Rule.Share of it. It is asked at each such decision,
	// on the request's goroutine; less than 1 counts as 1. Default: 1.
	Instances func() int64

	// Fallback is what happens where the primary fails. Default: FallbackLocal.
	Fallback Fallback

	// DenyFor is the RetryAfter under FallbackDeny: the time after which the
	// primary is asked again. Default: DefaultDenyFor.
	DenyFor time.Duration

	// OnError is told every failure of the primary, on the request's goroutine.
	// Clients that left are none. Default: nobody is told.
	OnError func(error)

	// Clock tells the time that Timeout counts from. Default: time.Now.
	Clock func() time.Time

	// scratch holds *[]limit.Bucket, for shares of rules that the caller's
	// buckets must not see.
	scratch sync.Pool
}

// Take returns the primary's decision or, where that fails, the fallback's, which
// for a Local request is FallbackLocal in any case: with SourceLocal one by this instance's share, in which a cost above the share's
// capacity costs that capacity; with SourceNone one that asked no bucket, its
// states zero but for RetryAfter. The error is the context's where the client
// has left, and then nothing is charged locally, or else a failure of Local.
func (f *Failover) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if req.Local {
		if left := ctx.Err(); left != nil {
			return limit.Decision{}, left
		}
		return f.takeLocal(ctx, req)
	}
	if req.Deadline.IsZero() {
		req.Deadline = f.now().Add(orDefault(f.Timeout, DefaultTimeout))
	}
	decision, err := f.Primary.Take(ctx, req)
	if err == nil {
		f.keepOut(&req, &decision)
		return decision, nil
	}
	if left := ctx.Err(); left != nil {
		return limit.Decision{}, left
	}
	if f.OnError != nil {
		f.OnError(err)
	}
	switch f.Fallback {
	case FallbackAllow:
		return withoutBuckets(&req, req.Count, 0), nil
	case FallbackDeny:
		return withoutBuckets(&req, 0, orDefault(f.DenyFor, DefaultDenyFor)), nil
	default:
		return f.takeLocal(ctx, req)
	}
}

// Settle settles where the unit was granted: in the primary, or in the local bucket,
// which gave this instance's share.
func (f *Failover) Settle(s limit.Settlement) {
	if s.Source != limit.SourceLocal {
		f.keepOutSettled(&s)
		f.Primary.Settle(s)
		return
	}
	whole := s.Bucket.Rule
	s.Bucket.Rule, s.Bucket.Ban = whole.Share(counted(f.Instances)), 0
	s.Bucket.Cost = min(s.Bucket.Cost, s.Bucket.Rule.Capacity)
	if s.Taken <= whole.Capacity {
		s.Taken = min(s.Taken, s.Bucket.Rule.Capacity)
	}
	f.Local.Settle(s)
}

// Reset resets the bucket in both. It returns the primary's error, but only after
// the local bucket was reset.
func (f *Failover) Reset(ctx context.Context, key limit.Key) error {
	primaryErr := f.Primary.Reset(ctx, key)
	if f.Local != nil {
		if err := f.Local.Reset(ctx, key); err != nil && primaryErr == nil {
			return fmt.Errorf("resetting the local bucket: %w", err)
		}
	}
	return primaryErr
}

// banKeeper is a Local that keeps the bans which the primary has told.
type banKeeper interface {
	KeepOut(key limit.Key, rest time.Duration)
}

// keepOut has bans hold also while the primary cannot be asked.
func (f *Failover) keepOut(req *limit.Request, decision *limit.Decision) {
	if decision.Granted > 0 || len(decision.Rest) != len(req.Buckets)-1 {
		return
	}
	for i := range req.Buckets {
		if rest := decision.At(i).Banned; rest > 0 {
			if keeper, ok := f.Local.(banKeeper); ok {
				keeper.KeepOut(req.Buckets[i].Key, rest)
			}
		}
	}
}

// keepOutSettled has a ban that the settlement begins hold here as well.
func (f *Failover) keepOutSettled(s *limit.Settlement) {
	keeper, ok := f.Local.(banKeeper)
	if !ok || s.Bucket.Ban <= 0 {
		return
	}
	ended, key := s.Ended, s.Bucket.Key
	s.Ended = func(with limit.Settled) {
		if with.Banned > 0 {
			keeper.KeepOut(key, with.Banned)
		}
		if ended != nil {
			ended(with)
		}
	}
}

// takeLocal asks the local buckets for this instance's share.
func (f *Failover) takeLocal(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if req.Splits() { // as each has a cost of its own then
		return req.TakeEach(func(one limit.Request) (limit.Decision, error) { return f.takeLocal(ctx, one) })
	}
	borrowed, _ := f.scratch.Get().(*[]limit.Bucket)
	if borrowed == nil {
		borrowed = new([]limit.Bucket)
	}
	shares := f.share(&req, (*borrowed)[:0])
	decision, err := f.Local.Take(ctx, req)
	clear(shares) // the names may be parts of a request's buffer
	*borrowed = shares
	f.scratch.Put(borrowed)
	if err != nil {
		return limit.Decision{}, fmt.Errorf("falling back to the local buckets: %w", err)
	}
	return decision, nil
}

// share replaces the buckets of req by this instance's shares, appended to shares,
// and lowers a cost above the least of them. A cost that is over a whole capacity
// stays, so that it is still refused for good.
func (f *Failover) share(req *limit.Request, shares []limit.Bucket) []limit.Bucket {
	cost, possible, instances := req.Cost, true, counted(f.Instances)
	for i, bucket := range req.Buckets {
		whole := bucket.Rule.Capacity
		bucket.Rule, bucket.Ban = bucket.Rule.Share(instances), 0 // a share bans nobody
		switch {
		case bucket.Cost == 0:
			possible = possible && req.Cost <= whole
			cost = min(cost, bucket.Rule.Capacity)
		case req.CostOf(i) <= whole:
			bucket.Cost = min(bucket.Cost, bucket.Rule.Capacity)
		}
		shares = append(shares, bucket)
	}
	req.Buckets = shares
	if possible {
		req.Cost = cost
	}
	return shares
}

// withoutBuckets returns a decision that no bucket made.
func withoutBuckets(req *limit.Request, granted int64, retryAfter time.Duration) limit.Decision {
	state := limit.State{RetryAfter: retryAfter}
	decision := limit.Decision{Granted: granted, Source: limit.SourceNone, First: state}
	for range len(req.Buckets) - 1 {
		decision.Rest = append(decision.Rest, state)
	}
	return decision
}

func (f *Failover) now() time.Time {
	if f.Clock == nil {
		return time.Now()
	}
	return f.Clock()
}

func orDefault(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		return fallback
	}
	return d
}

// Interface guards
var _ limit.Limiter = (*Failover)(nil)
