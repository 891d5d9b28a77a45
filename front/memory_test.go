package front_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
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
		require.Equal(t, limit.SourceRemembered, d.Source)
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

// TestH6MemoryApart: of buckets that are asked apart, Next is asked once, about those
// that memory does not know to refuse.
func TestH6MemoryApart(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	next := &counted{Limiter: local(clock)}
	memory := memoryOver(next, clock)
	a, b, c := bucketOf(t, "a", 1, 0.5), bucketOf(t, "b", 2, 0.5), bucketOf(t, "c", 9, 0.5)
	ask := func(buckets ...limit.Bucket) limit.Decision {
		d, err := memory.Take(context.Background(), limit.Request{Buckets: buckets, Cost: 1, Count: 1, Apart: true})
		require.NoError(t, err)
		return d
	}
	redis, remembered := limit.SourceLocal, limit.SourceRemembered
	for i, want := range [][]limit.Grant{
		{{Granted: 1, Source: redis}, {Granted: 1, Source: redis}, {Granted: 1, Source: redis}},
		{{Source: remembered}, {Granted: 1, Source: redis}, {Granted: 1, Source: redis}},
		{{Source: remembered}, {Source: remembered}, {Granted: 1, Source: redis}},
	} {
		d := ask(a, b, c)
		for k := range want {
			require.Equal(t, want[k], d.Grant(k), "%d, bucket %d", i, k)
		}
		require.Equal(t, int64(8-i), d.At(2).Remaining)
		require.Equal(t, int64(1), next.taken(), i)
	}
	d := ask(a, b)
	require.Equal(t, remembered, d.Source)
	require.Equal(t, 2*time.Second, d.At(1).RetryAfter)
	require.Zero(t, next.taken(), "both are known to refuse")
	require.Zero(t, one(t, memory, b).Granted, "and so they are for others")
	require.Zero(t, next.taken())
	require.NoError(t, memory.Reset(context.Background(), a.Key))
	d = ask(a, b)
	require.Equal(t, int64(1), d.Grant(0).Granted)
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
	for range 3000 { // 3 s
		clock.Advance(t, time.Millisecond)
		passed += takeN(t, memory, 5, a)
	}
	require.Equal(t, int64(300), passed)
	require.LessOrEqual(t, next.taken(), int64(315))
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
		require.Equal(t, limit.SourceRemembered, take(t, memory, 5, 1, a).Source)
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
		require.Equal(t, limit.SourceRemembered, d.Source)
		require.Zero(t, next.taken())
	}
}

// TestMemoryOfTwoCosts: of a window the wait for more is not reckoned but asked for,
// and the refusal of less stays.
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
		asked := int64(1)
		if algorithm != limit.TokenBucket {
			asked = 5 // for the larger cost each time
		}
		require.LessOrEqual(t, next.taken(), asked)
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
		"mode":      {changed(func(r *limit.Rule) { r.Mode = limit.Shadow }), limit.SourceRemembered},
		"prefetch":  {changed(func(r *limit.Rule) { r.Prefetch = 7 }), limit.SourceRemembered},
		"unnamed":   {changed(func(r *limit.Rule) { r.Algorithm = 0 }), limit.SourceRemembered},
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
	require.Equal(t, limit.SourceRemembered, one(t, memory, a).Source)

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
	require.Equal(t, limit.SourceRemembered, one(t, memory, a).Source)
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
	require.Equal(t, limit.SourceRemembered, d.Source)
	require.Equal(t, limit.State{Remaining: 9, ResetAfter: 100 * time.Second}, d.At(0))
	require.Equal(t, limit.State{RetryAfter: 10 * time.Second, ResetAfter: 10 * time.Second}, d.At(1))
	require.Equal(t, int64(1), next.taken())

	require.Equal(t, int64(1), one(t, memory, third).Granted)
	next.taken()
	d = one(t, memory, narrow, third)
	require.Equal(t, limit.SourceRemembered, d.Source)
	require.Equal(t, 10*time.Second, d.At(0).RetryAfter)
	require.Equal(t, 20*time.Second, d.At(1).RetryAfter, "the longest is known")
	require.Zero(t, next.taken())

	unknown := bucketOf(t, "unknown", 5, 1)
	d = one(t, memory, narrow, unknown)
	require.Zero(t, d.Granted)
	require.Equal(t, int64(5), d.At(1).Remaining, "asked, because nothing is known of one")
	require.Equal(t, int64(1), next.taken())
	d = one(t, memory, unknown, narrow)
	require.Equal(t, limit.SourceRemembered, d.Source)
	require.Equal(t, int64(5), d.At(0).Remaining)
	require.Equal(t, int64(1), one(t, memory, wide).Granted, "what is not short is not refused")
}
