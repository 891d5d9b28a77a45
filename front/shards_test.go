package front_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
	"github.com/caddygate/ratelimit/localbucket"
)

// TestA13Shards is case A13, with and without a memory of refusals below.
func TestA13Shards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards   uint8
		capacity int64
	}{{4, 10}, {8, 3}, {8, 100}, {16, 1}, {16, 16}, {2, 3}, {1, 5}, {0, 5}} {
		clock := new(limittest.Clock)
		for _, next := range []limit.Limiter{local(clock), memoryOver(local(clock), clock)} {
			shards := &front.Shards{Next: next}
			a := sharded(t, c.capacity, 0.001, c.shards)
			for left := c.capacity; left > 0; left-- {
				d := one(t, shards, a)
				require.Equal(t, int64(1), d.Granted, c)
				require.Less(t, d.First.Remaining, left, "a lower bound")
			}
			for range 3 {
				d := one(t, shards, a)
				require.Zero(t, d.Granted, c)
				require.Zero(t, d.First.Remaining)
				require.LessOrEqual(t, d.First.RetryAfter, time.Duration(a.Rule.WindowMillis)*time.Millisecond)
			}
		}
	}
}

// TestPartsOfABucket: capacities, and what goes with them.
func TestPartsOfABucket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards     uint8
		capacity   int64
		capacities []int64
	}{
		{4, 10, []int64{3, 3, 2, 2}},
		{8, 3, []int64{1, 1, 1}},
		{3, 9, []int64{3, 3, 3}},
		{2, limit.MaxCapacity, []int64{1 << 30, 1<<30 - 1}},
	} {
		next := &fake{}
		shards := &front.Shards{Next: next, Random: func(int) int { return 0 }}
		a := sharded(t, c.capacity, float64(c.capacity)/7, c.shards)
		_, err := shards.Take(context.Background(), requestFor(a))
		require.NoError(t, err)
		var sum float64
		require.Len(t, next.taken, len(c.capacities))
		for i, request := range next.taken {
			part := request.Buckets[0]
			require.Equal(t, limit.Key{Tenant: "t1", Route: "a", Shard: uint8(i + 1)}, part.Key)
			require.Equal(t, c.capacities[i], part.Rule.Capacity)
			require.Equal(t, a.Rule.WindowMillis, part.Rule.WindowMillis, "the window stays")
			checked, err := limit.NewRule(part.Rule)
			require.NoError(t, err)
			require.Equal(t, part.Rule, checked)
			sum += part.Rule.Refill
		}
		require.InEpsilon(t, a.Rule.Refill, sum, 1e-12)
	}
}

func TestShardsBeginAnywhere(t *testing.T) {
	t.Parallel()
	seen := map[uint8]int{}
	shards := &front.Shards{Next: &counted{
		Limiter: local(new(limittest.Clock)),
		before:  func(req limit.Request) { seen[req.Buckets[0].Key.Shard]++ },
	}}
	a := sharded(t, 1_000_000, 1, 4)
	require.Equal(t, int64(400), takeN(t, shards, 400, a))
	require.Len(t, seen, 4)
	for shard, n := range seen {
		require.Greater(t, n, 50, shard)
	}
}

func TestShardsCountAndLook(t *testing.T) {
	t.Parallel()
	shards := &front.Shards{Next: local(new(limittest.Clock)), Random: func(int) int { return 1 }}
	a := sharded(t, 10, 0.01, 4)
	require.Equal(t, limit.State{Remaining: 10}, take(t, shards, 1, 0, a).First)
	d := take(t, shards, 1, 4, a)
	require.Equal(t, int64(4), d.Granted)
	require.Equal(t, int64(1), d.First.Remaining, "of the two that were asked")
	require.Zero(t, d.First.RetryAfter)
	require.Equal(t, 1000*time.Second, d.First.ResetAfter)
	require.Equal(t, int64(6), take(t, shards, 1, 0, a).First.Remaining)
	d = take(t, shards, 1, 100, a)
	require.Equal(t, int64(6), d.Granted)
	require.Equal(t, 333_334*time.Millisecond, d.First.RetryAfter, "the shortest of all: of a part with 3")
}

func TestShardsRefuseTheUnsupported(t *testing.T) {
	t.Parallel()
	shards := &front.Shards{Next: &fake{}}
	a, b := sharded(t, 10, 1, 4), bucketOf(t, "b", 10, 1)
	log := a
	log.Rule.Algorithm = limit.SlidingWindowLog
	for text, request := range map[string]limit.Request{
		"splitting a bucket into shards: a request costs 2, not 1":         {Buckets: []limit.Bucket{a}, Cost: 2, Count: 1},
		"splitting a bucket into shards: it is one of 2 in a request":      requestFor(b, a),
		"splitting a bucket into shards: its algorithm is sliding_window_": requestFor(log),
	} {
		_, err := shards.Take(context.Background(), request)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, text)
	}
}

func TestShardsPassOn(t *testing.T) {
	t.Parallel()
	next := &fake{}
	shards := &front.Shards{Next: next}
	part, small := sharded(t, 10, 1, 4), sharded(t, 1, 1, 16)
	part.Key.Shard = 2
	for _, request := range []limit.Request{
		{Buckets: []limit.Bucket{bucketOf(t, "a", 10, 1), bucketOf(t, "b", 10, 1)}, Cost: 3, Count: 2},
		{Buckets: []limit.Bucket{part}, Cost: 2, Count: 1},
		{Buckets: []limit.Bucket{small}, Cost: 2, Count: 1},
	} {
		next.taken = nil
		_, err := shards.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, []limit.Request{request}, next.taken)
	}
}

func TestShardsReset(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	shards := &front.Shards{Next: memoryOver(local(clock), clock)}
	a := sharded(t, 10, 0.001, 4)
	whole := bucketOf(t, "a", 2, 0.001)
	for range 2 {
		require.Equal(t, int64(10), takeN(t, shards, 11, a))
		require.Equal(t, int64(2), takeN(t, shards, 3, whole))
		require.NoError(t, shards.Reset(context.Background(), a.Key))
	}
	require.Equal(t, int64(10), takeN(t, shards, 11, a))
	part := a.Key
	part.Shard = 2
	require.NoError(t, shards.Reset(context.Background(), part))
	require.Equal(t, int64(3), takeN(t, shards, 10, a), "one part alone")

	next := &fake{err: errDown}
	require.ErrorIs(t, (&front.Shards{Next: next}).Reset(context.Background(), a.Key), errDown)
	require.Len(t, next.resets, 1+limit.MaxShards, "the others are reset all the same")
}

// TestShardsSource: a grant has the source of the part that gave, a refusal that of
// whoever was asked, and that is memory only where no part's bucket was.
func TestShardsSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		granted []int64
		sources []limit.Source
		want    limit.Source
	}{
		"granted":        {[]int64{0, 1}, []limit.Source{limit.SourceRedis, limit.SourceMemory}, limit.SourceMemory},
		"memory, redis":  {[]int64{0, 0}, []limit.Source{limit.SourceMemory, limit.SourceRedis}, limit.SourceRedis},
		"redis, memory":  {[]int64{0, 0}, []limit.Source{limit.SourceRedis, limit.SourceMemory}, limit.SourceRedis},
		"memory, memory": {[]int64{0, 0}, []limit.Source{limit.SourceMemory, limit.SourceMemory}, limit.SourceMemory},
	} {
		next := &fake{}
		asked := 0
		next.onTake = func() {
			next.decision = limit.Decision{Granted: c.granted[asked], Source: c.sources[asked]}
			asked++
		}
		d, err := (&front.Shards{Next: next}).Take(context.Background(), requestFor(sharded(t, 10, 1, 2)))
		require.NoError(t, err)
		require.Equal(t, c.want, d.Source, name)
		require.Equal(t, len(c.sources), asked)
	}
}

// TestShardsFail: an error is one where no part has answered, or the client has
// left. Where one part does not answer, the others are asked (W8).
func TestShardsFail(t *testing.T) {
	t.Parallel()
	a := sharded(t, 4, 0.001, 2)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		bad     int // parts that fail at first
		good    int // and then answer
		granted int64
		count   int64
		leaves  bool
		err     error
	}{
		{good: 0, count: 1, err: errDown},
		{bad: 1, good: 1, granted: 1, count: 1},
		{good: 1, granted: 2, count: 3},
		{good: 1, granted: 0, count: 1},
		{good: 1, granted: 2, count: 3, leaves: true},
		{good: 1, granted: 0, count: 1, leaves: true, err: errDown},
	} {
		granted := limit.Decision{Granted: c.granted, First: limit.State{RetryAfter: time.Second}}
		next := &fake{}
		next.onTake = func() {
			next.decision, next.err = granted, nil
			if at := len(next.taken); at <= c.bad || at > c.bad+c.good {
				next.decision, next.err = limit.Decision{}, errDown
			}
		}
		if c.leaves {
			cancel()
		}
		request := requestFor(a)
		request.Count = c.count
		d, err := (&front.Shards{Next: next}).Take(ctx, request)
		require.ErrorIs(t, err, c.err, c)
		require.Len(t, next.taken, 2)
		if err == nil {
			require.Equal(t, c.granted, d.Granted)
			require.Equal(t, time.Second, d.First.RetryAfter)
		}
	}
}

// TestShardsInTime: where the deadline leaves no time to ask all parts, those that
// were asked decide.
func TestShardsInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		each time.Duration
		want int64
	}{{0, 16}, {200 * time.Microsecond, 16}, {500 * time.Microsecond, 9}, {time.Millisecond, 4}, {6 * time.Millisecond, 1}} {
		clock := new(limittest.Clock)
		next := &counted{Limiter: local(clock), after: func(limit.Request, limit.State) { clock.Advance(t, c.each) }}
		shards := &front.Shards{Next: next, Clock: clock.Now}
		a := sharded(t, 16, 1e-6, 16)
		require.Equal(t, int64(16), takeN(t, shards, 16, a), "without a deadline")
		next.taken()
		request := requestFor(a)
		request.Deadline = clock.Now().Add(5*time.Millisecond + time.Microsecond)
		d, err := shards.Take(context.Background(), request)
		require.NoError(t, err)
		require.Zero(t, d.Granted)
		require.Positive(t, d.First.RetryAfter)
		require.Equal(t, c.want, next.taken(), c)
	}
}

// TestShardsAgainstOneByOne: split buckets admit as many as whole ones while time
// stands still, and never more as it passes.
func TestShardsAgainstOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 13))
		clock := new(limittest.Clock)
		plain, shards := local(clock), &front.Shards{Next: memoryOver(local(clock), clock), Random: random.IntN}
		a := sharded(t, 1+random.Int64N(60), 0.1+random.Float64()*20, uint8(1+random.IntN(16)))
		n := int(2 * a.Rule.Capacity)
		require.Equal(t, takeN(t, plain, n, a), takeN(t, shards, n, a), "seed %d", seed)
		var there, admitted int64
		for range 100 {
			clock.Advance(t, time.Duration(random.IntN(300))*time.Millisecond)
			there += take(t, plain, 1, a.Rule.Capacity, a).Granted
			admitted += takeN(t, shards, random.IntN(8), a)
			if admitted > there {
				t.Fatalf("seed %d: %d passed, there were %d", seed, admitted, there)
			}
		}
	}
}

func TestShardsUnderRace(t *testing.T) {
	t.Parallel()
	shards := &front.Shards{Next: &front.Memory{
		Next:  localbucket.New(localbucket.NewStore(), localbucket.Options{}),
		Store: front.NewMemoryStore(),
	}}
	a := sharded(t, 1000, 0.001, 16)
	var granted atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { granted.Add(takeN(t, shards, 300, a)) })
	}
	group.Wait()
	require.Equal(t, int64(1000), granted.Load())
}

func TestShardsAllocateNothing(t *testing.T) {
	shards := &front.Shards{Next: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
	split, empty := requestFor(sharded(t, 100_000, 1, 8)), requestFor(sharded(t, 8, 1e-6, 8))
	empty.Buckets[0].Key.Route = "empty"
	for range 1000 { // until every part has its bucket
		_, _ = shards.Take(context.Background(), split)
		_, _ = shards.Take(context.Background(), empty)
	}
	for name, request := range map[string]limit.Request{
		"whole": requestFor(bucketOf(t, "b", 100_000, 1)), "split": split, "empty": empty,
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = shards.Take(context.Background(), request) }), name)
	}
}

func BenchmarkShards(b *testing.B) {
	for name, bucket := range map[string]limit.Bucket{
		"whole": bucketOf(b, "a", limit.MaxCapacity, 1e6),
		"split": sharded(b, limit.MaxCapacity, 1e6, 16),
		"empty": sharded(b, 16, 1e-6, 16),
	} {
		b.Run(name, func(b *testing.B) {
			shards := &front.Shards{Next: &front.Memory{
				Next:  localbucket.New(localbucket.NewStore(), localbucket.Options{}),
				Store: front.NewMemoryStore(),
			}}
			request := requestFor(bucket)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = shards.Take(context.Background(), request)
				}
			})
		})
	}
}
