package front_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
	"github.com/caddygate/ratelimit/localbucket"
)

func TestMemoryRefuses(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	a := bucketOf(t, "a", 3, 2)

	require.Equal(t, int64(3), takeN(t, memory, 3, a))
	require.Equal(t, int64(3), next.taken())
	for range 5 {
		clock.Advance(t, 50*time.Millisecond)
		d := one(t, memory, a)
		require.Zero(t, d.Granted, "the grant that left too little has told")
		require.Equal(t, limit.SourceMemory, d.Source)
	}
	d := one(t, memory, a)
	require.Equal(t, limit.State{RetryAfter: 250 * time.Millisecond, ResetAfter: 1250 * time.Millisecond}, d.First)
	require.Zero(t, next.taken())
	clock.Advance(t, 249*time.Millisecond)
	require.Zero(t, one(t, memory, a).Granted)
	require.Zero(t, next.taken())
	clock.Advance(t, time.Millisecond)
	d = one(t, memory, a)
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, limit.SourceLocal, d.Source)
	require.Equal(t, int64(1), next.taken())
}

// TestMemoryIsAskedOnceForEachToken: a flood costs about one question for each
// token, and admits all that there are.
func TestMemoryIsAskedOnceForEachToken(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	a := bucketOf(t, "a", 100, 100)
	require.Equal(t, int64(100), takeN(t, memory, 200, a))
	next.taken()
	var passed int64
	for range 10_000 { // 10 s
		clock.Advance(t, time.Millisecond)
		passed += takeN(t, memory, 5, a)
	}
	require.Equal(t, int64(1000), passed)
	require.LessOrEqual(t, next.taken(), int64(1050))
}

// TestA18RememberedRefusal is case A18.
func TestA18RememberedRefusal(t *testing.T) {
	t.Parallel()
	t.Run("balance 0.9", func(t *testing.T) {
		t.Parallel()
		clock := new(limittest.Clock)
		memory := memoryOver(local(clock), clock)
		a := bucketOf(t, "a", 10, 1)
		require.Equal(t, int64(10), takeN(t, memory, 10, a))
		clock.Advance(t, 900*time.Millisecond)
		d := one(t, memory, a)
		require.Zero(t, d.Granted)
		require.Equal(t, 100*time.Millisecond, d.First.RetryAfter)
		clock.Advance(t, 100*time.Millisecond)
		require.Equal(t, int64(1), one(t, memory, a).Granted)
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		clock := new(limittest.Clock)
		memory := memoryOver(local(clock), clock)
		a := bucketOf(t, "a", 2, 0.4)
		a.Rule.Algorithm = limit.SlidingWindowLog
		require.Equal(t, int64(2), takeN(t, memory, 2, a))
		clock.Advance(t, 4900*time.Millisecond)
		require.Zero(t, one(t, memory, a).Granted)
		clock.Advance(t, 150*time.Millisecond)
		require.Equal(t, int64(2), takeN(t, memory, 2, a))
	})
	t.Run("cost", func(t *testing.T) {
		t.Parallel()
		clock := new(limittest.Clock)
		next := &counted{Limiter: local(clock)}
		memory := memoryOver(next, clock)
		a := bucketOf(t, "a", 10, 0.1)
		require.Equal(t, int64(1), take(t, memory, 7, 1, a).Granted)
		require.Zero(t, take(t, memory, 5, 1, a).Granted)
		next.taken()
		require.Equal(t, limit.SourceMemory, take(t, memory, 5, 1, a).Source)
		require.Zero(t, next.taken())
		d := one(t, memory, a)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, limit.SourceLocal, d.Source)
		require.Equal(t, int64(1), next.taken())
	})
}

// TestMemoryOfOtherCosts: what a refusal says of a cost above the remembered one.
func TestMemoryOfOtherCosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm limit.Algorithm
		cost      int64
		want      time.Duration
	}{
		{limit.TokenBucket, 1, 10 * time.Second},
		{limit.TokenBucket, 4, 40 * time.Second},
		{limit.TokenBucket, 10, 100 * time.Second},
		{limit.TokenBucket, 11, limit.Never},
		{limit.SlidingWindowLog, 1, 100 * time.Second},
		{limit.SlidingWindowCounter, 11, limit.Never},
	} {
		clock := new(limittest.Clock)
		next := &counted{Limiter: local(clock)}
		memory := memoryOver(next, clock)
		a := bucketOf(t, "a", 10, 0.1)
		a.Rule.Algorithm = c.algorithm
		require.Equal(t, int64(10), takeN(t, memory, 10, a))
		next.taken()
		d := take(t, memory, c.cost, 1, a)
		require.Equal(t, c.want, d.First.RetryAfter, c)
		require.Equal(t, limit.SourceMemory, d.Source)
		require.Zero(t, next.taken())
	}
}

// TestMemoryOfTwoCosts: of a window the wait for more is not reckoned but asked
// for, once for two costs that come by turns.
func TestMemoryOfTwoCosts(t *testing.T) {
	t.Parallel()
	for _, algorithm := range limittest.AllAlgorithms() {
		clock := new(limittest.Clock)
		plain := local(clock)
		next := &counted{Limiter: plain}
		memory := memoryOver(next, clock)
		a := bucketOf(t, "a", 10, 0.1)
		a.Rule.Algorithm = algorithm
		for range 10 {
			require.Equal(t, int64(1), one(t, memory, a).Granted)
			clock.Advance(t, 100*time.Millisecond)
		}
		next.taken()
		for range 5 {
			for _, cost := range []int64{1, 4} {
				d := take(t, memory, cost, 1, a)
				require.Zero(t, d.Granted)
				require.Equal(t, take(t, plain, cost, 1, a).First, d.First, "%v, cost %d", algorithm, cost)
			}
			clock.Advance(t, 100*time.Millisecond)
		}
		require.LessOrEqual(t, next.taken(), int64(1))
	}
}

func TestMemoryOfTheImpossible(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	a := bucketOf(t, "a", 10, 0.1)
	for range 5 {
		d := take(t, memory, 11, 1, a)
		require.Zero(t, d.Granted)
		require.Equal(t, limit.State{Remaining: 10, RetryAfter: limit.Never}, d.First)
	}
	require.Equal(t, int64(1), next.taken())
	clock.Advance(t, time.Second)
	require.Equal(t, limit.Never, take(t, memory, 11, 1, a).First.RetryAfter)
	require.Equal(t, int64(1), next.taken())
	require.Equal(t, int64(10), takeN(t, memory, 10, a))
}

// TestMemoryLastsASecond: what changes elsewhere is seen within a second.
func TestMemoryLastsASecond(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	buckets := local(clock)
	memory := memoryOver(buckets, clock)
	a := bucketOf(t, "a", 1, 0.001)
	require.Equal(t, int64(1), takeN(t, memory, 5, a))
	require.NoError(t, buckets.Reset(context.Background(), a.Key))
	clock.Advance(t, 999*time.Millisecond)
	d := one(t, memory, a)
	require.Zero(t, d.Granted)
	require.Equal(t, 999*time.Second+time.Millisecond, d.First.RetryAfter, "told is the whole wait")
	clock.Advance(t, time.Millisecond)
	require.Equal(t, int64(1), one(t, memory, a).Granted)
}

func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	changed := func(change func(*limit.Rule)) func(testing.TB, limit.Limiter, *limit.Bucket) {
		return func(_ testing.TB, _ limit.Limiter, b *limit.Bucket) { change(&b.Rule) }
	}
	for name, c := range map[string]struct {
		do     func(testing.TB, limit.Limiter, *limit.Bucket)
		source limit.Source
	}{
		"reset": {func(t testing.TB, l limit.Limiter, b *limit.Bucket) {
			require.NoError(t, l.Reset(context.Background(), b.Key))
		}, limit.SourceLocal},
		"capacity":  {changed(func(r *limit.Rule) { r.Capacity++ }), limit.SourceLocal},
		"refill":    {changed(func(r *limit.Rule) { r.Refill *= 2 }), limit.SourceLocal},
		"algorithm": {changed(func(r *limit.Rule) { r.Algorithm = limit.SlidingWindowLog }), limit.SourceLocal},
		"mode":      {changed(func(r *limit.Rule) { r.Mode = limit.Shadow }), limit.SourceMemory},
		"prefetch":  {changed(func(r *limit.Rule) { r.Prefetch = 7 }), limit.SourceMemory},
		"unnamed":   {changed(func(r *limit.Rule) { r.Algorithm = 0 }), limit.SourceMemory},
		"shard": {func(_ testing.TB, _ limit.Limiter, b *limit.Bucket) {
			b.Key.Shard = 1
		}, limit.SourceLocal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := new(limittest.Clock)
			memory := memoryOver(local(clock), clock)
			a := bucketOf(t, "a", 3, 0.001)
			require.Equal(t, int64(3), takeN(t, memory, 4, a))
			c.do(t, memory, &a)
			require.Equal(t, c.source, one(t, memory, a).Source)
		})
	}
}

func TestMemoryForgetsAlsoWhereResetFails(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &fake{decision: limit.Decision{First: limit.State{RetryAfter: time.Minute}}}
	memory := memoryOver(next, clock)
	a := bucketOf(t, "a", 3, 0.001)
	one(t, memory, a)
	one(t, memory, a)
	require.Len(t, next.taken, 1)
	next.err = errDown
	require.ErrorIs(t, memory.Reset(context.Background(), a.Key), errDown)
	next.err = nil
	one(t, memory, a)
	require.Len(t, next.taken, 2)
}

// TestMemoryIsNotToldLate: an answer to a question from before a reset, or that
// took as long as it holds, is not remembered.
func TestMemoryIsNotToldLate(t *testing.T) {
	t.Parallel()
	a := bucketOf(t, "a", 3, 0.001)
	for name, before := range map[string]func(*front.Memory, *limittest.Clock){
		"reset": func(m *front.Memory, c *limittest.Clock) {
			c.Advance(t, time.Millisecond)
			require.NoError(t, m.Reset(context.Background(), a.Key))
			c.Advance(t, time.Millisecond)
		},
		"late": func(_ *front.Memory, c *limittest.Clock) { c.Advance(t, time.Second) },
	} {
		clock := new(limittest.Clock)
		next := &counted{Limiter: local(clock)}
		memory := memoryOver(next, clock)
		next.after = func(_ limit.Request, s limit.State) {
			if s.RetryAfter > 0 {
				next.after = nil
				before(memory, clock)
			}
		}
		require.Equal(t, int64(3), takeN(t, memory, 3, a))
		next.taken()
		d := one(t, memory, a)
		require.Equal(t, limit.SourceLocal, d.Source, name)
		require.Equal(t, int64(1), next.taken())
	}
}

// TestMemoryIsNotToldBefore: the answer to an older question does not displace
// that to a newer one, whatever rule that was about.
func TestMemoryIsNotToldBefore(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	old, a := bucketOf(t, "a", 1, 0.001), bucketOf(t, "a", 1, 0.002)
	next.after = func(limit.Request, limit.State) {
		next.after = nil
		clock.Advance(t, time.Millisecond)
		require.Zero(t, one(t, memory, a).Granted)
	}
	require.Equal(t, int64(1), one(t, memory, old).Granted)
	require.Equal(t, limit.SourceMemory, one(t, memory, a).Source)

	// Also where that says that there is enough, after a reset.
	next.after = func(limit.Request, limit.State) {
		next.after = nil
		clock.Advance(t, time.Millisecond)
		require.NoError(t, memory.Reset(context.Background(), a.Key))
		for range 2 {
			clock.Advance(t, time.Millisecond)
			require.Equal(t, int64(1), take(t, memory, 1, 0, a).First.Remaining)
		}
	}
	clock.Advance(t, time.Second)
	require.Zero(t, one(t, memory, a).Granted)
	require.Equal(t, int64(1), one(t, memory, a).Granted)
}

// TestMemoryCountsFromTheReply: clients are told a wait that is never too short.
func TestMemoryCountsFromTheReply(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	next.after = func(limit.Request, limit.State) { clock.Advance(t, 100*time.Millisecond) }
	a := bucketOf(t, "a", 1, 1)
	require.Equal(t, int64(1), one(t, memory, a).Granted)
	clock.Advance(t, 50*time.Millisecond)
	require.Equal(t, limit.State{RetryAfter: 950 * time.Millisecond, ResetAfter: 950 * time.Millisecond}, one(t, memory, a).First)
	clock.Advance(t, 849*time.Millisecond)
	require.Equal(t, limit.SourceMemory, one(t, memory, a).Source)
	clock.Advance(t, time.Millisecond)
	require.Equal(t, int64(1), one(t, memory, a).Granted, "but is asked for as soon as there may be any")
}

func TestMemoryOfSeveralBuckets(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	wide, narrow, third := bucketOf(t, "wide", 10, 0.01), bucketOf(t, "narrow", 1, 0.1), bucketOf(t, "third", 1, 0.05)

	require.Equal(t, int64(1), one(t, memory, wide, narrow).Granted)
	d := one(t, memory, wide, narrow)
	require.Equal(t, limit.SourceMemory, d.Source)
	require.Equal(t, limit.State{Remaining: 9, ResetAfter: 100 * time.Second}, d.At(0))
	require.Equal(t, limit.State{RetryAfter: 10 * time.Second, ResetAfter: 10 * time.Second}, d.At(1))
	require.Equal(t, int64(1), next.taken())

	require.Equal(t, int64(1), one(t, memory, third).Granted)
	next.taken()
	d = one(t, memory, narrow, third)
	require.Equal(t, limit.SourceMemory, d.Source)
	require.Equal(t, 10*time.Second, d.At(0).RetryAfter)
	require.Equal(t, 20*time.Second, d.At(1).RetryAfter, "the longest is known")
	require.Zero(t, next.taken())

	unknown := bucketOf(t, "unknown", 5, 1)
	d = one(t, memory, narrow, unknown)
	require.Zero(t, d.Granted)
	require.Equal(t, int64(5), d.At(1).Remaining, "asked, because nothing is known of one")
	require.Equal(t, int64(1), next.taken())
	d = one(t, memory, unknown, narrow)
	require.Equal(t, limit.SourceMemory, d.Source)
	require.Equal(t, int64(5), d.At(0).Remaining)
	require.Equal(t, int64(1), one(t, memory, wide).Granted, "what is not short is not refused")
}

// gate is a Limiter that answers when it is told to.
type gate struct {
	limit.Limiter
	calls atomic.Int64
	open  chan error // what each call ends with, after Limiter has decided
}

func (g *gate) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	g.calls.Add(1)
	d, err := g.Limiter.Take(ctx, req)
	select {
	case failed := <-g.open:
		if failed != nil {
			return limit.Decision{}, failed
		}
		return d, err
	case <-ctx.Done():
		return limit.Decision{}, ctx.Err()
	}
}

// crowd is requests that are under way.
type crowd struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	granted int64
	refused int64
	sources map[limit.Source]int
	errs    []error
}

// add sends n requests.
func (c *crowd) add(ctx context.Context, l limit.Limiter, n int, req limit.Request) {
	for range n {
		c.group.Go(func() {
			d, err := l.Take(ctx, req)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case err != nil:
				c.errs = append(c.errs, err)
				return
			case d.Granted == 0:
				c.refused++
			}
			c.granted += d.Granted
			if c.sources == nil {
				c.sources = map[limit.Source]int{}
			}
			c.sources[d.Source]++
		})
	}
}

// drained is a Memory over a gate, both on one bucket whose refusal has just run
// out, in a bubble with a fake clock.
func drained(t *testing.T, a limit.Bucket) (*front.Memory, *gate) {
	t.Helper()
	g := &gate{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{}), open: make(chan error, 100)}
	memory := &front.Memory{Next: g, Store: front.NewMemoryStore()}
	for range a.Rule.Capacity {
		g.open <- nil
		require.Equal(t, int64(1), one(t, memory, a).Granted)
	}
	require.Equal(t, limit.SourceMemory, one(t, memory, a).Source)
	time.Sleep(one(t, memory, a).First.RetryAfter) // in the bubble's time
	g.calls.Store(0)
	return memory, g
}

func TestMemorySingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 10)
		memory, g := drained(t, a)
		var c crowd
		c.add(t.Context(), memory, 50, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load(), "one asks, the others wait")
		time.Sleep(time.Millisecond)
		g.open <- nil
		c.group.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		require.Equal(t, int64(1), c.granted)
		require.Equal(t, map[limit.Source]int{limit.SourceLocal: 1, limit.SourceMemory: 49}, c.sources)
	})
}

// TestMemoryWaitsOnce: an answer that comes later than it holds is one for those
// who came while it held; the others ask for themselves.
func TestMemoryWaitsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 100)
		memory, g := drained(t, a)
		var early, late crowd
		early.add(t.Context(), memory, 5, requestFor(a))
		synctest.Wait()
		time.Sleep(11 * time.Millisecond)
		late.add(t.Context(), memory, 5, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		synctest.Wait()
		require.Equal(t, int64(6), g.calls.Load())
		for range 5 {
			g.open <- nil
		}
		early.group.Wait()
		late.group.Wait()
		require.Equal(t, int64(1), early.granted)
		require.Equal(t, int64(1), late.granted)
	})
}

func TestMemoryWaitsWithinItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 10)
		memory, g := drained(t, a)
		var first, others, left crowd
		first.add(t.Context(), memory, 1, requestFor(a))
		synctest.Wait()
		began := time.Now()
		hurried := requestFor(a)
		hurried.Deadline = began.Add(5 * time.Millisecond)
		others.add(t.Context(), memory, 3, hurried)
		ctx, cancel := context.WithCancel(t.Context())
		left.add(ctx, memory, 3, requestFor(a))
		synctest.Wait()
		cancel()
		left.group.Wait()
		require.Zero(t, time.Since(began))
		others.group.Wait()
		require.Equal(t, 5*time.Millisecond, time.Since(began))
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		first.group.Wait()
		for _, err := range others.errs {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for _, err := range left.errs {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Len(t, others.errs, 3)
		require.Len(t, left.errs, 3)
	})
}

// TestMemoryHandsOver: where the one who asks fails, or leaves, another asks; one
// at a time.
func TestMemoryHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 2)
		memory, g := drained(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		var leaver, others crowd
		leaver.add(ctx, memory, 1, requestFor(a))
		synctest.Wait()
		others.add(t.Context(), memory, 10, requestFor(a))
		synctest.Wait()
		cancel()
		leaver.group.Wait()
		require.Len(t, leaver.errs, 1)
		for asked := int64(2); asked <= 4; asked++ {
			synctest.Wait()
			require.Equal(t, asked, g.calls.Load())
			g.open <- errDown
		}
		synctest.Wait()
		g.open <- nil // it finds the bucket empty: the leaver's token is lost
		others.group.Wait()
		require.Equal(t, int64(5), g.calls.Load())
		require.Len(t, others.errs, 3)
		require.Equal(t, int64(7), others.refused)

		time.Sleep(500 * time.Millisecond)
		var alone crowd
		alone.add(t.Context(), memory, 1, requestFor(a))
		g.open <- errDown
		alone.group.Wait()
		alone.add(t.Context(), memory, 1, requestFor(a))
		g.open <- nil
		alone.group.Wait()
		require.Len(t, alone.errs, 1, "with nobody there the next one asks")
	})
}

// TestMemoryAgainstOneByOne holds Memory to the answers without it, over random
// requests while time stands still and between, with resets and other rules.
func TestMemoryAgainstOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 18))
		clock := new(limittest.Clock)
		plain, memory := local(clock), memoryOver(local(clock), clock)
		rules := []limit.Bucket{bucketOf(t, "a", 5, 3), bucketOf(t, "b", 1+random.Int64N(20), 7), bucketOf(t, "a", 8, 1)}
		for i := range rules {
			rules[i].Rule.Algorithm = limit.Algorithm(random.IntN(4))
		}
		for range 200 {
			bucket := rules[random.IntN(len(rules))]
			buckets := []limit.Bucket{bucket}
			if other := rules[1]; bucket.Key != other.Key && random.IntN(4) == 0 {
				buckets = append(buckets, other)
			}
			cost, count := 1+random.Int64N(1+random.Int64N(6)), random.Int64N(4)
			if random.IntN(50) == 0 {
				require.NoError(t, plain.Reset(context.Background(), bucket.Key))
				require.NoError(t, memory.Reset(context.Background(), bucket.Key))
			}
			want, got := take(t, plain, cost, count, buckets...), take(t, memory, cost, count, buckets...)
			require.Equal(t, want.Granted, got.Granted, "seed %d", seed)
			if count > 0 && want.Granted == 0 && len(buckets) == 1 && want.First.RetryAfter > 0 {
				require.GreaterOrEqual(t, got.First.RetryAfter, want.First.RetryAfter)
				if bucket.Rule.Algorithm <= limit.TokenBucket {
					require.LessOrEqual(t, got.First.RetryAfter, want.First.RetryAfter+time.Millisecond)
				}
			}
			if random.IntN(3) > 0 {
				clock.Advance(t, time.Duration(random.IntN(400))*time.Millisecond)
			}
		}
	}
}

// TestMemoryUnderRace has many at once, some of which leave, while buckets are
// reset: none is admitted that the bucket did not give.
func TestMemoryUnderRace(t *testing.T) {
	t.Parallel()
	next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
	memory := &front.Memory{Next: next, Store: front.NewMemoryStore()}
	release := memory.Store.Bound(3)
	defer release()
	var granted atomic.Int64
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 3))
			for range 3000 {
				a, b := bucketOf(t, fmt.Sprint(random.IntN(5)), 5, 2000), bucketOf(t, fmt.Sprint(5+random.IntN(2)), 3, 1000)
				ctx, cancel := context.WithCancel(context.Background())
				if random.IntN(20) == 0 {
					cancel()
				}
				request := requestFor([]limit.Bucket{a, b}[:1+random.IntN(2)]...)
				request.Deadline = time.Now().Add(time.Duration(random.IntN(3)) * time.Second)
				d, err := memory.Take(ctx, request)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				granted.Add(d.Granted)
				if random.IntN(100) == 0 {
					_ = memory.Reset(context.Background(), a.Key)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, next.granted.Load(), granted.Load())
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	memory := memoryOver(local(clock), clock)
	refuse := func(n int) {
		for i := range n {
			takeN(t, memory, 2, bucketOf(t, fmt.Sprint(i), 1, 0.001))
		}
	}
	refuse(300)
	require.Equal(t, 300, memory.Store.Len())
	release := memory.Store.Bound(100)
	require.LessOrEqual(t, memory.Store.Len(), 100)
	refuse(300)
	require.LessOrEqual(t, memory.Store.Len(), 100)
	release()
	require.NoError(t, memory.Store.Destruct())
	require.NotZero(t, memory.Store.Len())
	other := &front.Memory{Next: down{}, Store: memory.Store, Clock: clock.Now}
	takeN(t, memory, 2, bucketOf(t, "a", 1, 0.001))
	require.Equal(t, limit.SourceMemory, one(t, other, bucketOf(t, "a", 1, 0.001)).Source, "another config's layer knows what this one learned")
}

// TestMemoryIsGivenBack: a bucket that has enough again is forgotten after a while.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	memory := memoryOver(local(clock), clock)
	a := bucketOf(t, "a", 2, 2)
	require.Equal(t, int64(2), takeN(t, memory, 3, a))
	require.Equal(t, 1, memory.Store.Len())
	clock.Advance(t, time.Second)
	one(t, memory, a)
	require.Equal(t, 1, memory.Store.Len())
	clock.Advance(t, 2*time.Second)
	one(t, memory, a)
	require.Zero(t, memory.Store.Len())
}

func TestMemoryAllocatesNothing(t *testing.T) {
	memory := &front.Memory{Next: localbucket.New(localbucket.NewStore(), localbucket.Options{}), Store: front.NewMemoryStore()}
	granted, refused := requestFor(bucketOf(t, "a", 100_000, 1)), requestFor(bucketOf(t, "b", 1, 0.001))
	_, _ = memory.Take(context.Background(), refused)
	for name, request := range map[string]limit.Request{"granted": granted, "refused": refused} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = memory.Take(context.Background(), request) }), name)
	}
}

func BenchmarkMemory(b *testing.B) {
	for name, capacity := range map[string]int64{"granted": limit.MaxCapacity, "refused": 1} {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				memory := &front.Memory{Next: localbucket.New(localbucket.NewStore(), localbucket.Options{}), Store: front.NewMemoryStore()}
				requests := make([]limit.Request, keys)
				for i := range requests {
					requests[i] = requestFor(bucketOf(b, fmt.Sprint(i), capacity, float64(capacity)/1e6))
					_, _ = memory.Take(context.Background(), requests[i])
				}
				var workers atomic.Int64
				b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := int(workers.Add(1)) * 7919; pb.Next(); i++ {
						_, _ = memory.Take(context.Background(), requests[i%keys])
					}
				})
			})
		}
	}
}
