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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
	"github.com/caddygate/ratelimit/localbucket"
)

// TestMemoryAgainstOneByOne holds Memory to the answers without it, over random
// requests while time stands still and between, with resets and other rules.
func TestMemoryAgainstOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
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
			if want.Granted != got.Granted {
				t.Fatalf("seed %d: %d passed of %d", seed, got.Granted, want.Granted)
			}
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
			for range 1000 {
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
	require.Equal(t, limit.SourceRemembered, one(t, other, bucketOf(t, "a", 1, 0.001)).Source, "another config's layer knows what this one learned")
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
