package localbucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	limittest.Run(t, func(*testing.T) limittest.Fixture {
		clock := new(limittest.Clock)
		return limittest.Fixture{
			Limiter:    New(NewStore(), Options{Clock: clock.Now}),
			Advance:    clock.Advance,
			Source:     limit.SourceLocal,
			Algorithms: limittest.AllAlgorithms(),
		}
	})
}

// TestRealClock needs no time to pass: with the default clock the suite's cases
// that make time pass are left out.
func TestRealClock(t *testing.T) {
	t.Parallel()
	limittest.Run(t, func(*testing.T) limittest.Fixture {
		return limittest.Fixture{
			Limiter:    New(NewStore(), Options{}),
			Source:     limit.SourceLocal,
			Algorithms: limittest.AllAlgorithms(),
			Drift:      time.Second,
		}
	})
}

// tester is a Limiter on a clock that stands still.
type tester struct {
	*Limiter
	clock *limittest.Clock
}

func newTester() *tester {
	clock := new(limittest.Clock)
	return &tester{Limiter: New(NewStore(), Options{Clock: clock.Now}), clock: clock}
}

func (l *tester) take(t testing.TB, bucket limit.Bucket, count int64) limit.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), limit.Request{Buckets: []limit.Bucket{bucket}, Cost: 1, Count: count})
	require.NoError(t, err)
	return d
}

func bucketOf(t testing.TB, tenant string, capacity int64, refill float64) limit.Bucket {
	t.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.TokenBucket})
	require.NoError(t, err)
	return limit.Bucket{Key: limit.Key{Tenant: tenant, Route: "a"}, Rule: rule}
}

// TestA6ClockBack: a stamp ahead of the clock gives no credit. The clock of a process
// is monotonic, so the rest of the case is Redis'.
func TestA6ClockBack(t *testing.T) {
	t.Parallel()
	l, a := newTester(), bucketOf(t, "t1", 10, 1)
	l.take(t, a, 10)
	l.clock.Advance(t, -time.Second)
	d := l.take(t, a, 1)
	require.Zero(t, d.Granted)
	require.Equal(t, 2*time.Second, d.First.RetryAfter)
	require.Equal(t, 11*time.Second, d.First.ResetAfter)
	l.clock.Advance(t, 1500*time.Millisecond)
	require.Zero(t, l.take(t, a, 1).Granted)
	l.clock.Advance(t, 4500*time.Millisecond)
	require.Equal(t, int64(5), l.take(t, a, 10).Granted)
}

// TestA10TypeSwitch: each algorithm has its own state, and a rule that names none
// is a token bucket.
func TestA10TypeSwitch(t *testing.T) {
	t.Parallel()
	l, a := newTester(), bucketOf(t, "t1", 10, 0.001)
	for left := int64(9); left > 5; left-- {
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			a.Rule.Algorithm = algorithm
			require.Equal(t, left, l.take(t, a, 1).First.Remaining, algorithm)
		}
	}
	a.Rule.Algorithm = 0
	require.Equal(t, int64(5), l.take(t, a, 1).First.Remaining)
	require.Equal(t, 3, l.store.Len())
	require.NoError(t, l.Reset(context.Background(), a.Key))
	require.Zero(t, l.store.Len())
}

// TestA15LoweredRate: a refusal under a slower rule keeps the bucket for as long
// as that rule takes to fill it.
func TestA15LoweredRate(t *testing.T) {
	t.Parallel()
	l := newTester()
	l.store.Bound(1000)
	l.take(t, bucketOf(t, "t1", 100, 100), 100)
	slower := bucketOf(t, "t1", 100, 0.01)
	require.Zero(t, l.take(t, slower, 1).Granted)
	l.clock.Advance(t, 3*time.Second)
	for i := range 5000 {
		l.take(t, bucketOf(t, fmt.Sprint("other", i), 2, 0.001), 1)
	}
	require.Zero(t, l.take(t, slower, 1).Granted)
}

func TestK10Memory(t *testing.T) {
	for algorithm, others := range map[limit.Algorithm]int{
		limit.TokenBucket: 200_000, limit.SlidingWindowLog: 25_000, limit.SlidingWindowCounter: 25_000,
	} {
		t.Run(algorithm.String(), func(t *testing.T) { floods(t, algorithm, others) })
	}
}

func floods(t *testing.T, algorithm limit.Algorithm, others int) {
	const bound = 10_000
	l := newTester()
	l.store.Bound(bound)
	a := bucketOf(t, "A", 5, 0.001)
	a.Rule.Algorithm = algorithm
	require.Equal(t, int64(5), l.take(t, a, 5).Granted)
	other := a
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			other.Key.Tenant = fmt.Sprint("other", i)
			require.Equal(t, int64(1), l.take(t, other, 1).Granted)
			if i%100 == 0 {
				l.clock.Advance(t, time.Millisecond)
			}
		}
	}
	fill(0, 2*bound)
	before := heap()
	fill(2*bound, others)
	require.Less(t, heap(), before+1<<20, "the heap is flat")
	require.LessOrEqual(t, l.store.Len(), bound)
	require.Zero(t, l.take(t, a, 1).Granted)
	a.Key.Tenant = "B"
	require.Equal(t, int64(1), l.take(t, a, 1).Granted)
	runtime.KeepAlive(l)
}

// TestIdleBucketBytes holds a bucket to 250 bytes, names and overhead included.
func TestIdleBucketBytes(t *testing.T) {
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		t.Run(algorithm.String(), func(t *testing.T) { idles(t, algorithm) })
	}
}

func idles(t *testing.T, algorithm limit.Algorithm) {
	const buckets = 100_000
	l := newTester()
	a := bucketOf(t, "", 100, 0.001)
	a.Rule.Algorithm = algorithm
	before := heap()
	for i := range buckets {
		a.Key.Tenant = fmt.Sprintf("0123456789abcdef0123456789abcdef-%d", i)
		l.take(t, a, 1)
	}
	each := float64(int64(heap())-int64(before)) / buckets
	require.Equal(t, buckets, l.store.Len())
	require.Less(t, each, 250.0)
	t.Logf("%.0f bytes a bucket", each)
	runtime.KeepAlive(l)
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestAllocatesNothing(t *testing.T) {
	l := newTester()
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		for _, capacity := range []int64{2, 90_000} { // refused, and granted
			buckets := []limit.Bucket{bucketOf(t, fmt.Sprint(capacity), capacity, 0.001)}
			buckets[0].Rule.Algorithm = algorithm
			for _, count := range []int64{1, 0} {
				allocations := testing.AllocsPerRun(100, func() {
					_, _ = l.Take(context.Background(), limit.Request{Buckets: buckets, Cost: 1, Count: count})
					l.clock.Advance(t, time.Microsecond)
				})
				require.Zero(t, allocations, "%s of %d", algorithm, capacity) // a log grows seldom
			}
		}
	}
}

func TestKeepsNothingOfARequest(t *testing.T) {
	t.Parallel()
	l := newTester()
	buckets := []limit.Bucket{bucketOf(t, "t1", 2, 0.001), bucketOf(t, "t2", 2, 0.001)}
	wanted := append([]limit.Bucket(nil), buckets...)
	_, err := l.Take(context.Background(), limit.Request{Buckets: buckets, Cost: 1, Count: 1})
	require.NoError(t, err)
	require.Equal(t, wanted, buckets)
}

func TestNamesAreNotGlued(t *testing.T) {
	t.Parallel()
	l := newTester()
	for _, names := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}} {
		bucket := bucketOf(t, names[0], 1, 0.001)
		bucket.Key.Route = names[1]
		require.Equal(t, int64(1), l.take(t, bucket, 1).Granted)
	}
}

// TestK1Collisions: 10,000 random pairs are 10,000 buckets, under each algorithm.
func TestK1Collisions(t *testing.T) {
	t.Parallel()
	parts := []string{":", "|", "/", "%3A", " ", "\t", "}", "{", "{x}", "a", "b", "", "~guest", "\x00", "é"}
	random := rand.New(rand.NewPCG(1, 1))
	name := func() string {
		var text strings.Builder
		for range random.IntN(6) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		return limit.EscapeName(text.String())
	}
	keys := map[limit.Key]bool{}
	for len(keys) < 10_000 {
		keys[limit.Key{Tenant: name(), Route: name()}] = true
	}
	l, a := newTester(), bucketOf(t, "t1", 1, 0.001)
	for key := range keys {
		a.Key = key
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			a.Rule.Algorithm = algorithm
			require.Equal(t, int64(1), l.take(t, a, 1).Granted, "%q", key)
		}
	}
	require.Equal(t, 30_000, l.store.Len())
}

func TestRefusesMalformedRequests(t *testing.T) {
	t.Parallel()
	l, a := newTester(), bucketOf(t, "t1", 2, 0.001)
	changed := func(algorithm limit.Algorithm, capacity, window int64) []limit.Bucket {
		b := a
		b.Rule.Algorithm, b.Rule.Capacity, b.Rule.WindowMillis = algorithm, capacity, window
		return []limit.Bucket{a, b}
	}
	for name, request := range map[string]limit.Request{
		"algorithm":      {Buckets: changed(4, 1, 1), Cost: 1, Count: 1},
		"no window":      {Buckets: changed(limit.SlidingWindowCounter, 1, 0), Cost: 1, Count: 1},
		"long window":    {Buckets: changed(limit.SlidingWindowLog, 1, 1e15), Cost: 1, Count: 1},
		"no capacity":    {Buckets: changed(limit.SlidingWindowLog, 0, 1), Cost: 1, Count: 1},
		"large capacity": {Buckets: changed(limit.SlidingWindowCounter, 1<<31, 1), Cost: 1, Count: 1},
		"no bucket":      {Cost: 1, Count: 1},
		"no cost":        {Buckets: []limit.Bucket{a}, Count: 1},
		"negative cost":  {Buckets: []limit.Bucket{a}, Cost: -1, Count: 1},
		"negative count": {Buckets: []limit.Bucket{a}, Cost: 1, Count: -1},
	} {
		_, err := l.Take(context.Background(), request)
		require.ErrorContains(t, err, "deciding in memory: ", name)
	}
}
