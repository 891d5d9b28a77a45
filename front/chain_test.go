package front_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a Limiter that counts what comes by, and may hold it up.
type counted struct {
	limit.Limiter
	calls, granted atomic.Int64
	before         func(limit.Request)              // called before each Take
	after          func(limit.Request, limit.State) // called after each Take
}

func (c *counted) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	c.calls.Add(1)
	if c.before != nil {
		c.before(req)
	}
	d, err := c.Limiter.Take(ctx, req)
	c.granted.Add(d.Granted)
	if c.after != nil {
		c.after(req, d.First)
	}
	return d, err
}

// taken returns how many calls were made since it was last asked.
func (c *counted) taken() int64 { return c.calls.Swap(0) }

// asking is a Limiter whose requests all have rules that ask for a layer.
type asking struct {
	limit.Limiter
	prefetch int32
	shards   uint8
}

func (a asking) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	req.Buckets = slices.Clone(req.Buckets)
	for i := range req.Buckets {
		req.Buckets[i].Rule.Prefetch, req.Buckets[i].Rule.Shards = a.prefetch, a.shards
	}
	return a.Limiter.Take(ctx, req)
}

// unsourced is a Limiter that says it decides locally, whoever does: so that a
// suite with a fake clock knows that no time passes by itself.
type unsourced struct{ limit.Limiter }

func (u unsourced) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	d, err := u.Limiter.Take(ctx, req)
	d.Source = limit.SourceLocal
	for i := range d.Each {
		d.Each[i].Source = limit.SourceLocal
	}
	return d, err
}

// ofRedis is a Limiter that is told of settlements as of what Redis granted.
type ofRedis struct{ limit.Limiter }

func (o ofRedis) Settle(s limit.Settlement) {
	s.Source = limit.SourceRedis
	o.Limiter.Settle(s)
}

func memoryOver(next limit.Limiter, clock *limittest.Clock) *front.Memory {
	return &front.Memory{Next: next, Store: front.NewMemoryStore(), Clock: clock.Now}
}

func prefetchOver(next limit.Limiter, instances int64, clock *limittest.Clock) *front.Prefetch {
	return &front.Prefetch{Next: next, Store: front.NewPrefetchStore(), Instances: front.Fixed(instances), Clock: clock.Now}
}

// TestSuite holds each layer, and the chains of them, to what every Limiter does.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(*limittest.Clock) limit.Limiter{
		"memory":   func(c *limittest.Clock) limit.Limiter { return memoryOver(local(c), c) },
		"shards":   func(c *limittest.Clock) limit.Limiter { return &front.Shards{Next: memoryOver(local(c), c)} },
		"prefetch": func(c *limittest.Clock) limit.Limiter { return prefetchOver(local(c), 3, c) },
		"prefetch asked for": func(c *limittest.Clock) limit.Limiter {
			return asking{Limiter: prefetchOver(memoryOver(local(c), c), 3, c), prefetch: 10}
		},
		"prefetch auto": func(c *limittest.Clock) limit.Limiter {
			return asking{Limiter: prefetchOver(memoryOver(local(c), c), 1, c), prefetch: limit.PrefetchAuto}
		},
		"all": func(c *limittest.Clock) limit.Limiter { return ofRedis{whole(asRedis{local(c)}, c)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limittest.Run(t, func(*testing.T) limittest.Fixture {
				clock := new(limittest.Clock)
				return limittest.Fixture{
					Limiter: unsourced{build(clock)}, Advance: clock.Advance,
					Source: limit.SourceLocal, Algorithms: limittest.AllAlgorithms(),
				}
			})
		})
	}
}

// whole is the chain as the gateway builds it.
func whole(next limit.Limiter, clock *limittest.Clock) limit.Limiter {
	return &front.Failover{
		Primary: prefetchOver(&front.Shards{Next: memoryOver(next, clock)}, 3, clock),
		Local:   down{}, Clock: clock.Now, Timeout: time.Minute,
	}
}

// one takes a unit of cost 1.
func one(t testing.TB, l limit.Limiter, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	return take(t, l, 1, 1, buckets...)
}

func take(t testing.TB, l limit.Limiter, cost, count int64, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), limit.Request{Buckets: buckets, Cost: cost, Count: count})
	if err != nil || len(d.Rest) != len(buckets)-1 {
		t.Fatalf("%+v, %v", d, err)
	}
	for i, bucket := range buckets {
		state := d.At(i)
		if state.Remaining < 0 || state.Remaining > bucket.Rule.Capacity || state.ResetAfter < 0 {
			t.Fatalf("out of bounds: %+v", state)
		}
	}
	if count > 0 && d.Granted == 0 && len(buckets) == 1 && (d.First.Remaining >= cost || d.First.RetryAfter == 0) {
		t.Fatalf("a refusal leaves less than the cost, %d (H3): %+v", cost, d.First)
	}
	return d
}

// takeN takes a unit n times and returns how many passed.
func takeN(t testing.TB, l limit.Limiter, n int, bucket limit.Bucket) (passed int64) {
	t.Helper()
	for range n {
		passed += one(t, l, bucket).Granted
	}
	return passed
}

func sharded(t testing.TB, capacity int64, refill float64, shards uint8) limit.Bucket {
	t.Helper()
	bucket := bucketOf(t, "a", capacity, refill)
	bucket.Rule.Shards = shards
	return bucket
}

func ahead(t testing.TB, capacity int64, refill float64, n int32) limit.Bucket {
	t.Helper()
	bucket := bucketOf(t, "a", capacity, refill)
	bucket.Rule.Prefetch = n
	return bucket
}

// TestChainUnderRace has a crowd on two instances with everything on: it is given
// all that the bucket holds, and no more.
func TestChainUnderRace(t *testing.T) {
	t.Parallel()
	const capacity = 20_000
	clock := new(limittest.Clock)
	buckets := local(clock)
	gateways := []limit.Limiter{whole(buckets, clock), whole(buckets, clock)}
	a := ahead(t, capacity, capacity, 100)
	a.Rule.Shards = 4
	var granted atomic.Int64
	var sources [limit.Sources]atomic.Int64
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 6000 {
				d, err := gateways[worker%2].Take(context.Background(), requestFor(a))
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(d.Granted)
				sources[d.Source].Add(1)
				if i%50 == 0 && worker == 0 {
					clock.Advance(t, time.Millisecond)
				}
			}
		})
	}
	group.Wait()
	passed := time.Duration(clock.Now().UnixNano())
	require.LessOrEqual(t, granted.Load(), capacity+int64(passed.Seconds()*capacity))
	require.GreaterOrEqual(t, granted.Load(), int64(capacity-2*100), "but for what was in hand and dropped")
	require.Positive(t, sources[limit.SourceRemembered].Load())
}
