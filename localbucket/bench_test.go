package localbucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

const benchKeys = 100_000

// benchBuckets returns one bucket for each of n tenants, all of them in use, in
// another order than they came into the store: what is measured is the way to a
// random bucket, for a request that is in the cache already.
func benchBuckets(b *testing.B, l *Limiter, n int) []limit.Bucket {
	b.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: 100_000_000, Refill: 1, Algorithm: limit.TokenBucket})
	require.NoError(b, err)
	buckets := make([]limit.Bucket, n)
	for i := range buckets {
		buckets[i] = limit.Bucket{Key: limit.Key{Tenant: fmt.Sprintf("tenant-%08d", i), Route: "create-order"}, Rule: rule}
	}
	for _, i := range rand.Perm(n) {
		_, err := l.Take(context.Background(), limit.Request{Buckets: buckets[i : i+1], Cost: 1, Count: 1})
		require.NoError(b, err)
	}
	return buckets
}

// BenchmarkTake has 64 goroutines on up to 100,000 buckets.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1, 1000, benchKeys} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			l := New(NewStore(), Options{})
			buckets := benchBuckets(b, l, n)
			var workers atomic.Int64
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				at := int(workers.Add(1)) * 7919 % n
				for pb.Next() {
					if at++; at >= n {
						at = 0
					}
					_, _ = l.Take(context.Background(), limit.Request{Buckets: buckets[at : at+1], Cost: 1, Count: 1})
				}
			})
		})
	}
}

// BenchmarkAlgorithms has one bucket in use under each algorithm, granted from and
// refused.
func BenchmarkAlgorithms(b *testing.B) {
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		for name, refill := range map[string]float64{"granted": 1e7, "refused": 0.001} {
			b.Run(algorithm.String()+"/"+name, func(b *testing.B) {
				l := New(NewStore(), Options{})
				bucket := bucketOf(b, "t1", 10_000, refill)
				bucket.Rule.Algorithm = algorithm
				request := limit.Request{Buckets: []limit.Bucket{bucket}, Cost: 1, Count: 1}
				for range bucket.Rule.Capacity {
					_, _ = l.Take(context.Background(), request)
				}
				b.ReportAllocs()
				for b.Loop() {
					_, _ = l.Take(context.Background(), request)
				}
			})
		}
	}
}

// BenchmarkTakeOfTwo asks two buckets at once.
func BenchmarkTakeOfTwo(b *testing.B) {
	l := New(NewStore(), Options{})
	buckets := benchBuckets(b, l, benchKeys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % (benchKeys - 1)
		_, _ = l.Take(context.Background(), limit.Request{Buckets: buckets[at : at+2], Cost: 1, Count: 1})
	}
}

// BenchmarkFlood meets a new key with every call, in a full store.
func BenchmarkFlood(b *testing.B) {
	l := New(NewStore(), Options{})
	l.store.Bound(benchKeys)
	bucket := benchBuckets(b, l, benchKeys)[:1]
	names := make([]byte, 8)
	b.ReportAllocs()
	for i := uint64(1); b.Loop(); i++ {
		for at := range names {
			names[at] = byte('a' + i>>(4*at)&15)
		}
		bucket[0].Key.Tenant = string(names)
		_, _ = l.Take(context.Background(), limit.Request{Buckets: bucket, Cost: 1, Count: 1})
	}
}
