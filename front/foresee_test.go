package front_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

func foresee(t testing.TB, l limit.Limiter, cost int64, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	d, err := limit.Foresee(context.Background(), l, limit.Request{Buckets: buckets, Cost: cost, Count: 1})
	require.NoError(t, err)
	return d
}

// TestForeseeIsWhatTakeDoes asks every chain what it would do before it does it,
// over random requests and times: nothing may be changed by asking.
func TestForeseeIsWhatTakeDoes(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(*limittest.Clock) limit.Limiter{
		"local":    func(c *limittest.Clock) limit.Limiter { return local(c) },
		"memory":   func(c *limittest.Clock) limit.Limiter { return memoryOver(local(c), c) },
		"prefetch": func(c *limittest.Clock) limit.Limiter { return prefetchOver(memoryOver(local(c), c), 1, c) },
		"all":      func(c *limittest.Clock) limit.Limiter { return whole(local(c), c) },
		"fallback": func(c *limittest.Clock) limit.Limiter {
			return &front.Failover{Primary: down{}, Local: local(c), Instances: front.Fixed(3), Clock: c.Now}
		},
		"deny": func(c *limittest.Clock) limit.Limiter {
			return &front.Failover{Primary: down{}, Local: local(c), Fallback: front.FallbackDeny, Clock: c.Now}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(7, 11))
			clock := new(limittest.Clock)
			chain, sources := build(clock), map[limit.Source]int{}
			buckets := []limit.Bucket{ahead(t, 300, 100, 20), ahead(t, 9, 3, 50), bucketOf(t, "c", 4, 2), bucketOf(t, "d", 2, 0.5)}
			for i := range buckets {
				buckets[i].Rule.Algorithm = limit.Algorithm(1 + i%3)
				buckets[i].Key.Route = string(rune('a' + i))
			}
			for range 1500 {
				asked, cost := buckets[:1], int64(1)
				switch random.IntN(3) {
				case 0:
					at := random.IntN(len(buckets))
					asked = buckets[at : at+1]
				case 1:
					asked, cost = buckets[random.IntN(3):], 1+random.Int64N(3)
				}
				before := foresee(t, chain, cost, asked...)
				again := foresee(t, chain, cost, asked...)
				require.Equal(t, before, again, "asking changes nothing")
				d := take(t, chain, cost, 1, asked...)
				sources[d.Source]++
				require.Equal(t, []any{before.Granted, before.Source}, []any{d.Granted, d.Source})
				for i := range asked {
					require.Equal(t, before.At(i).Remaining, d.At(i).Remaining)
					if d.Granted == 0 {
						require.Equal(t, before.At(i).RetryAfter, d.At(i).RetryAfter)
					}
				}
				clock.Advance(t, time.Duration(random.IntN(30))*time.Millisecond)
			}
			t.Log(sources)
		})
	}
}

func TestForeseeShards(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	a := sharded(t, 10, 0.001, 4)
	shards := &front.Shards{Next: memoryOver(local(clock), clock), Random: func(int) int { return 0 }}
	for left := int64(10); left > 0; left-- {
		before := foresee(t, shards, 1, a)
		require.Equal(t, int64(1), before.Granted)
		d := one(t, shards, a)
		require.Equal(t, before.First.Remaining, d.First.Remaining)
	}
	require.Equal(t, limit.SourceRemembered, foresee(t, shards, 1, a).Source, "every part is known to be empty")
	require.Zero(t, one(t, shards, a).Granted)
}

func TestForeseenCannotBeReset(t *testing.T) {
	t.Parallel()
	f := &front.Failover{Primary: down{}, Local: down{}, Fallback: front.FallbackAllow}
	require.Equal(t, limit.Decision{Granted: 1}, foresee(t, f, 1, bucketOf(t, "a", 1, 1)))
}

func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	var clock limittest.Clock
	memory := &front.Memory{Next: local(&clock), Store: front.NewMemoryStore()}
	a := bucketOf(t, "a", 1, 0.001)
	require.Zero(t, memory.Store.Refusal(a))
	require.Equal(t, int64(1), takeN(t, memory, 2, a))
	known := memory.Store.Refusal(a)
	require.Equal(t, int64(1), known.Cost)
	require.Positive(t, known.For)
	require.LessOrEqual(t, known.For, time.Second)
	other := a
	other.Rule.Capacity, other.Rule.WindowMillis = 2, 2*a.Rule.WindowMillis
	require.Zero(t, memory.Store.Refusal(other), "under another rule nothing is known")
	require.NoError(t, memory.Reset(context.Background(), a.Key))
	require.Zero(t, memory.Store.Refusal(a))

	require.Zero(t, front.NewPrefetchStore().InHand(a))
	require.Equal(t, []limit.Bucket{a}, front.Parts(a))
	split := front.Parts(sharded(t, 10, 1, 4))
	require.Len(t, split, 4)
	capacities := make([]int64, 0, len(split))
	for _, part := range split {
		capacities = append(capacities, part.Rule.Capacity)
	}
	require.Equal(t, []int64{3, 3, 2, 2}, capacities)
}
