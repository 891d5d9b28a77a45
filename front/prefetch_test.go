package front_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

// cluster is several instances that take from one place.
type cluster struct {
	*counted
	gateways []*front.Prefetch
	clock    *limittest.Clock
}

func newCluster(instances int) *cluster {
	c := &cluster{clock: new(limittest.Clock)}
	c.counted = &counted{Limiter: local(c.clock)}
	for range instances {
		c.gateways = append(c.gateways, prefetchOver(c.counted, int64(instances), c.clock))
	}
	return c
}

// warm sends a request a ms to each instance, for so long.
func (c *cluster) warm(t testing.TB, bucket limit.Bucket, d time.Duration) (passed int64) {
	t.Helper()
	for range d.Milliseconds() {
		for _, gateway := range c.gateways {
			passed += one(t, gateway, bucket).Granted
		}
		c.clock.Advance(t, time.Millisecond)
	}
	return passed
}

func TestPrefetchTakesAhead(t *testing.T) {
	t.Parallel()
	c := newCluster(1)
	a := ahead(t, 5000, 5000, 50)
	require.Equal(t, int64(200), c.warm(t, a, 200*time.Millisecond))
	c.taken()
	sources := map[limit.Source]int64{}
	for range 1000 {
		d := one(t, c.gateways[0], a)
		sources[d.Source] += d.Granted
		require.LessOrEqual(t, d.First.Remaining, int64(5000))
		require.Zero(t, d.First.RetryAfter)
		c.clock.Advance(t, time.Millisecond)
	}
	require.Equal(t, map[limit.Source]int64{limit.SourceLocal: 20, limit.SourcePrefetch: 980}, sources)
	require.Equal(t, int64(20), c.taken(), "50 decisions a call")
}

// TestPrefetchIsSizedByDemand: auto takes for the next 50 ms what the last 100 ms
// would have, and nothing where that is little.
func TestPrefetchIsSizedByDemand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSpan, prefetch, want int64
		capacity                int64
		refill                  float64
	}{
		{4, -2, 1, 1e6, 1e6},
		{6, -2, 4, 1e6, 1e6},
		{20, -2, 11, 1e6, 1e6},
		{100, -2, 51, 1e6, 1e6},
		{1000, -2, 501, 1e6, 1e6},
		{1000, -2, 50, 1e6, 500}, // what refills in 100 ms
		{1000, -2, 1, 1e6, 5},    // but one at least
		{1000, 30, 30, 1e6, 1e6}, // the rule's number
		{1000, 30, 3, 1e6, 30},   // and what refills
		{1000, 1, 1, 1e6, 1e6},   // one is none ahead
		{100, -1, 1, 1e6, 1e6},   // off
		{100, 0, 1, 1e6, 1e6},    // unnamed
		{100, 50, 50, 1e3, 1e6},  // refills at once
	} {
		cluster := newCluster(1)
		a := ahead(t, c.capacity, c.refill, int32(c.prefetch))
		var most int64
		cluster.before = func(req limit.Request) { most = max(most, req.Count) }
		for range 3 * c.perSpan {
			one(t, cluster.gateways[0], a)
			cluster.clock.Advance(t, 100*time.Millisecond/time.Duration(c.perSpan))
		}
		require.Equal(t, c.want, most, c)
	}
}

// TestPrefetchTakesItsPart: one call takes no more than the instance's part of what
// was left, which is known for a second.
func TestPrefetchTakesItsPart(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &fake{decision: limit.Decision{Granted: 1, Source: limit.SourceRedis, First: limit.State{Remaining: 28}}}
	prefetch := prefetchOver(next, 3, clock)
	a := ahead(t, 10_000, 10_000, 50)
	for range 150 {
		one(t, prefetch, a)
		clock.Advance(t, time.Millisecond)
	}
	require.Equal(t, int64(10), next.taken[len(next.taken)-1].Count)
	for _, c := range []struct{ left, want int64 }{{4, 2}, {3, 1}, {1, 1}, {0, 1}, {1000, 50}} {
		next.decision.First.Remaining = c.left
		next.taken = nil
		for range 3 {
			one(t, prefetch, a)
		}
		last := next.taken[len(next.taken)-1]
		require.Equal(t, c.want, last.Count, c)
	}
}

// TestPrefetchForgetsWhatWasLeft: after a second of failures nothing is known of
// what is left, and each asks for itself until one is told.
func TestPrefetchForgetsWhatWasLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outage time.Duration
		want   int64
	}{{500 * time.Millisecond, 50}, {1200 * time.Millisecond, 1}} {
		clock := new(limittest.Clock)
		next := &fake{decision: limit.Decision{Granted: 1, First: limit.State{Remaining: 5000}}}
		prefetch := prefetchOver(next, 1, clock)
		a := ahead(t, 10_000, 10_000, 50)
		for range 150 {
			one(t, prefetch, a)
			clock.Advance(t, time.Millisecond)
		}
		next.err = errDown
		for range c.outage.Milliseconds() {
			_, err := prefetch.Take(context.Background(), requestFor(a))
			require.ErrorIs(t, err, errDown)
			clock.Advance(t, time.Millisecond)
		}
		next.err, next.taken = nil, nil
		one(t, prefetch, a)
		require.Equal(t, c.want, next.taken[0].Count)
		one(t, prefetch, a)
		require.Equal(t, int64(50), next.taken[1].Count)
	}
}

func TestPrefetchPassesOn(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &fake{decision: limit.Decision{Granted: 1, First: limit.State{Remaining: 5000}}}
	prefetch := prefetchOver(next, 1, clock)
	a := ahead(t, 10_000, 10_000, 50)
	for range 150 {
		one(t, prefetch, a)
		clock.Advance(t, time.Millisecond)
	}
	require.Greater(t, next.taken[len(next.taken)-1].Count, int64(1), "hot")
	for _, request := range []limit.Request{
		{Buckets: []limit.Bucket{a}, Cost: 2, Count: 1},
		{Buckets: []limit.Bucket{a}, Cost: 1, Count: 2},
		{Buckets: []limit.Bucket{a}, Cost: 1},
		{Buckets: []limit.Bucket{a, bucketOf(t, "b", 1, 1)}, Cost: 1, Count: 1},
		requestFor(bucketOf(t, "a", 10_000, 10_000)),
	} {
		next.taken = nil
		_, err := prefetch.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, []limit.Request{request}, next.taken)
	}
}

// TestA14Prefetch is case A14.
func TestA14Prefetch(t *testing.T) {
	t.Parallel()
	for _, refill := range []float64{1, 1000} {
		t.Run(fmt.Sprintf("idle, R(…,%v)", refill), func(t *testing.T) {
			t.Parallel()
			for _, each := range []int{100, 1000} {
				c := newCluster(3)
				a := ahead(t, int64(100*max(1, refill/100)), refill, 10)
				c.warm(t, a, 350*time.Millisecond)
				c.clock.Advance(t, 200*time.Second)
				var passed int64
				for range each {
					for _, gateway := range c.gateways {
						passed += one(t, gateway, a).Granted
					}
				}
				require.Equal(t, min(a.Rule.Capacity, int64(3*each)), passed, "what was in hand is dropped")
			}
		})
	}
	t.Run("capacity lowered", func(t *testing.T) {
		t.Parallel()
		c := newCluster(3)
		c.warm(t, ahead(t, 1000, 1000, 10), 305*time.Millisecond)
		lowered := ahead(t, 5, 1000, 10)
		lowered.Rule.Refill, lowered.Rule.WindowMillis = 0.001, 5_000_000
		var passed int64
		for range 20 {
			for _, gateway := range c.gateways {
				passed += one(t, gateway, lowered).Granted
			}
		}
		require.Equal(t, int64(5), passed)
	})
	t.Run("n over what there is", func(t *testing.T) {
		t.Parallel()
		c := newCluster(3)
		a := ahead(t, 5, 1, 50)
		var passed int64
		for _, gateway := range c.gateways {
			passed += one(t, gateway, a).Granted
		}
		require.Equal(t, int64(3), passed)
		for range 10 {
			for _, gateway := range c.gateways {
				passed += one(t, gateway, a).Granted
			}
		}
		require.Equal(t, int64(5), passed)
	})
	t.Run("two are left", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		a := ahead(t, 1000, 1000, 50)
		c.warm(t, a, 300*time.Millisecond)
		exhaust(t, c.gateways[0], a)
		var asked []int64
		c.before = func(req limit.Request) {
			if asked == nil {
				left := take(t, c.Limiter, 1, 0, a).First.Remaining
				require.Equal(t, int64(1), take(t, c.Limiter, left-2, 1, a).Granted)
			}
			asked = append(asked, req.Count)
		}
		require.Equal(t, int64(2), takeN(t, c.gateways[0], 10, a))
		require.Equal(t, int64(50), asked[0])
	})
}

func TestPrefetchDrops(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*cluster, *limit.Bucket){
		"old":      func(c *cluster, _ *limit.Bucket) { c.clock.Advance(t, 100*time.Millisecond) },
		"capacity": func(_ *cluster, b *limit.Bucket) { b.Rule.Capacity-- },
		"number":   func(_ *cluster, b *limit.Bucket) { b.Rule.Prefetch-- },
		"reset": func(c *cluster, b *limit.Bucket) {
			require.NoError(t, c.gateways[0].Reset(context.Background(), b.Key))
		},
	} {
		c := newCluster(1)
		a := ahead(t, 5000, 5000, 50)
		c.warm(t, a, 205*time.Millisecond)
		for one(t, c.gateways[0], a).Source != limit.SourceLocal {
		}
		require.Equal(t, limit.SourcePrefetch, one(t, c.gateways[0], a).Source)
		c.clock.Advance(t, 99*time.Millisecond)
		require.Equal(t, limit.SourcePrefetch, one(t, c.gateways[0], a).Source)
		c.clock.Advance(t, -99*time.Millisecond)
		drop(c, &a)
		require.Equal(t, limit.SourceLocal, one(t, c.gateways[0], a).Source, name)
	}
	next := &fake{err: errDown}
	require.ErrorIs(t, prefetchOver(next, 1, new(limittest.Clock)).Reset(context.Background(), limit.Key{Tenant: "t1"}), errDown)
}
