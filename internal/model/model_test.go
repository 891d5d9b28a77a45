package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestModel holds the model itself to cases worked out by hand.
func TestModel(t *testing.T) {
	t.Parallel()
	type call struct {
		at                  time.Duration
		cost, count         int64
		granted, remaining  int64
		retry, reset        time.Duration
		capacity, windowSec int64 // of a rule that changes here
	}
	const s = time.Second
	for name, c := range map[string]struct {
		algorithm limit.Algorithm
		capacity  int64
		windowSec int64
		calls     []call
	}{
		"token bucket": {limit.TokenBucket, 10, 10, []call{
			{at: 0, cost: 3, count: 9, granted: 3, remaining: 1, retry: 2 * s, reset: 9 * s},
			{at: 1500 * time.Millisecond, cost: 3, count: 1, remaining: 2, retry: s / 2, reset: 7500 * time.Millisecond},
			{at: 2 * s, cost: 3, count: 1, granted: 1, remaining: 0, retry: 3 * s, reset: 10 * s},
			{at: 2 * s, cost: 11, count: 1, retry: limit.Never, reset: 10 * s},
		}},
		"log": {limit.SlidingWindowLog, 3, 10, []call{
			{at: 0, cost: 1, count: 1, granted: 1, remaining: 2, reset: 10 * s},
			{at: 4 * s, cost: 1, count: 5, granted: 2, retry: 6 * s, reset: 10 * s},
			{at: 9 * s, cost: 2, count: 1, retry: 5 * s, reset: 5 * s},
			{at: 10 * s, cost: 1, count: 1, granted: 1, retry: 4 * s, reset: 10 * s},
			{at: 11 * s, cost: 1, count: 0, capacity: 3, windowSec: 5, remaining: 2, reset: 4 * s},
		}},
		"counter (A3)": {limit.SlidingWindowCounter, 100, 60, []call{
			{at: 0, cost: 1, count: 50, granted: 50, remaining: 50, reset: 120 * s},
			{at: 60 * s, cost: 10, count: 1, granted: 1, remaining: 40, reset: 120 * s},
			{at: 66 * s, cost: 1, count: 1, granted: 1, remaining: 44, reset: 114 * s},
			{at: 66 * s, cost: 60, count: 1, remaining: 44, retry: 19_200 * time.Millisecond, reset: 114 * s},
		}},
		"one in 10 s (A3)": {limit.SlidingWindowCounter, 1, 10, []call{
			{at: 0, cost: 1, count: 1, granted: 1, retry: 20 * s, reset: 20 * s},
			{at: s, cost: 1, count: 1, retry: 19 * s, reset: 19 * s},
			{at: 20 * s, cost: 1, count: 1, granted: 1, retry: 20 * s, reset: 20 * s},
		}},
	} {
		l := New()
		for i, want := range c.calls {
			capacity, window := c.capacity, c.windowSec
			if want.capacity > 0 {
				capacity, window = want.capacity, want.windowSec
			}
			rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: float64(capacity) / float64(window), Algorithm: c.algorithm})
			require.NoError(t, err)
			d := l.Take(begin+want.at.Microseconds(), limit.Request{
				Buckets: []limit.Bucket{{Rule: rule}}, Cost: want.cost, Count: want.count,
			})
			require.Equal(t, want.granted, d.Granted, "%s, call %d", name, i)
			state := limit.State{Remaining: want.remaining, RetryAfter: want.retry, ResetAfter: want.reset}
			require.Equal(t, state, d.First, "%s, call %d", name, i)
		}
	}
}
