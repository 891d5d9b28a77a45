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

// TestPrefetchAgainstOneByOne holds several instances to what their bucket gives,
// in any span of time, plus what they may have in hand; and to exactly what it
// gives in all.
func TestPrefetchAgainstOneByOne(t *testing.T) {
	t.Parallel()
	fromHand := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 14))
		n := 2 + random.Int64N(20)
		capacity, refill := 1+random.Int64N(200), 20+random.Float64()*3000
		refill = min(refill, float64(capacity)*1000)
		w := watch{cluster: newCluster(1 + random.IntN(4)), bucket: ahead(t, capacity, refill, int32(n)), random: random}
		if random.IntN(4) == 0 {
			w.bucket.Rule.Prefetch = limit.PrefetchAuto
			n = max(1, int64(refill/10))
		}
		for range 1000 {
			w.step(t)
		}
		w.check(t, seed, n)
		fromHand += w.ahead
	}
	require.Greater(t, fromHand, 1000, "tokens were taken ahead")
}

// watch is a trace of one bucket at several instances.
type watch struct {
	*cluster
	bucket limit.Bucket
	random *rand.Rand

	at       []time.Duration // of each moment
	admitted []int64         // up to each
	resets   []int           // moments at which the bucket was reset everywhere
	now      time.Duration
	ahead    int // how many were answered from hand
}

func (w *watch) step(t *testing.T) {
	if w.random.IntN(400) == 0 {
		for _, gateway := range w.gateways {
			require.NoError(t, gateway.Reset(context.Background(), w.bucket.Key))
		}
		w.resets = append(w.resets, len(w.at))
	}
	gateway := w.gateways[w.random.IntN(len(w.gateways))]
	d := one(t, gateway, w.bucket)
	passed := d.Granted
	if d.Source == limit.SourcePrefetch {
		w.ahead++
	}
	if n := len(w.admitted); n > 0 {
		passed += w.admitted[n-1]
	}
	w.at, w.admitted = append(w.at, w.now), append(w.admitted, passed)
	if w.random.IntN(2) == 0 {
		pause := time.Duration(w.random.IntN(3)) * time.Millisecond
		if w.random.IntN(100) == 0 {
			pause *= 70
		}
		w.clock.Advance(t, pause)
		w.now += pause
	}
}

func (w *watch) check(t *testing.T, seed uint64, n int64) {
	held := int64(len(w.gateways)) * n
	begin := 0
	for _, end := range append(w.resets, len(w.at)) {
		for from := begin; from < end; from++ {
			before := int64(0)
			if from > 0 {
				before = w.admitted[from-1]
			}
			for to := from; to < end; to++ {
				span := (w.at[to] - w.at[from]).Seconds()
				most := w.bucket.Rule.Capacity + int64(w.bucket.Rule.Refill*span+1e-6)
				if from > begin { // else it was full, and nothing in hand
					most += held
				}
				if got := w.admitted[to] - before; got > most {
					t.Fatalf("seed %d: %d passed in %v s, at most %d may", seed, got, span, most)
				}
			}
		}
		begin = end
	}
	require.LessOrEqual(t, w.admitted[len(w.admitted)-1], w.granted.Load())
}

// TestPrefetchOfOneHotKey has 20 instances, a ms from their bucket, that share 20,000
// requests a second: a call decides for about 50, and nearly all pass.
func TestPrefetchOfOneHotKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const instances, each = 20, 300
		next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
		next.before = func(limit.Request) { time.Sleep(500 * time.Microsecond) } // in the bubble's time
		next.after = func(limit.Request, limit.State) { time.Sleep(500 * time.Microsecond) }
		a := ahead(t, 25_000, 25_000, 50)
		var all crowd
		var group sync.WaitGroup
		for i := range instances {
			prefetch := &front.Prefetch{Next: next, Store: front.NewPrefetchStore(), Instances: front.Fixed(instances)}
			random := rand.New(rand.NewPCG(uint64(i), 20))
			group.Go(func() {
				for at := range 200 + each {
					if at == 200 && i == 0 { // by now all are warm
						next.taken()
					}
					all.add(t.Context(), prefetch, 1, requestFor(a))
					time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Millisecond)))
				}
			})
		}
		group.Wait()
		all.group.Wait()
		calls := next.taken()
		t.Logf("%.1f decisions a call", instances*each/float64(calls))
		require.Equal(t, int64(instances*(200+each)), all.granted)
		require.Less(t, calls, int64(instances*each/35))
	})
}

// TestPrefetchUnderRace has many at once, some of which leave, with late answers,
// other rules and resets: none is admitted that the bucket did not give.
func TestPrefetchUnderRace(t *testing.T) {
	t.Parallel()
	next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
	next.before = func(req limit.Request) {
		for range 50 * req.Count {
			runtime.Gosched()
		}
	}
	stores := []*front.PrefetchStore{front.NewPrefetchStore(), front.NewPrefetchStore()}
	stores[1].Bound(2)
	var shift, granted, ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 14))
			prefetch := &front.Prefetch{Next: next, Store: stores[worker%2], Instances: front.Fixed(2), Clock: now}
			for range 1500 {
				a := bucketOf(t, fmt.Sprint(random.IntN(1+worker/4)), 1_000_000, 1_000_000)
				a.Rule.Prefetch = 40
				if random.IntN(700) == 0 {
					a.Rule.Capacity--
				}
				ctx, cancel := context.WithCancel(context.Background())
				request := requestFor(a)
				request.Deadline = now().Add(time.Minute)
				switch random.IntN(30) {
				case 0:
					cancel()
				case 1:
					request.Deadline = now()
				case 2:
					request.Deadline = time.Time{}
				}
				d, err := prefetch.Take(ctx, request)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				granted.Add(d.Granted)
				if d.Source == limit.SourcePrefetch {
					ahead.Add(1)
				}
				if random.IntN(10) == 0 {
					shift.Add(int64(time.Duration(random.IntN(3)) * time.Millisecond))
				}
				if random.IntN(1000) == 0 {
					_ = prefetch.Reset(context.Background(), a.Key)
				}
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, granted.Load(), next.granted.Load())
	require.Positive(t, ahead.Load())
}

func TestPrefetchStore(t *testing.T) {
	t.Parallel()
	c := newCluster(1)
	store := c.gateways[0].Store
	ask := func() {
		for i := range 300 {
			a := ahead(t, 10, 1, 50)
			a.Key.Route = fmt.Sprint(i)
			one(t, c.gateways[0], a)
		}
	}
	ask()
	require.Equal(t, 300, store.Len())
	release := store.Bound(100)
	require.LessOrEqual(t, store.Len(), 100)
	ask()
	require.LessOrEqual(t, store.Len(), 100)
	release()
	require.NoError(t, store.Destruct())
	ask()
}

func TestPrefetchAllocatesNothing(t *testing.T) {
	clock := new(limittest.Clock)
	prefetch := prefetchOver(local(clock), 1, clock)
	hot, off := requestFor(ahead(t, 1_000_000, 1_000_000, 10_000)), requestFor(bucketOf(t, "b", 100_000, 1))
	for range 30_000 {
		one(t, prefetch, hot.Buckets[0])
		clock.Advance(t, 10*time.Microsecond)
	}
	for name, request := range map[string]limit.Request{
		"off": off, "cold": requestFor(ahead(t, 10, 1, 50)), "hot": hot,
	} {
		if name == "cold" {
			request.Buckets[0].Key.Route = "cold"
		}
		require.Zero(t, testing.AllocsPerRun(500, func() { _, _ = prefetch.Take(context.Background(), request) }), name)
	}
}

func BenchmarkPrefetch(b *testing.B) {
	for name, n := range map[string]int32{"off": limit.PrefetchOff, "auto": limit.PrefetchAuto, "50": 50} {
		b.Run(name, func(b *testing.B) {
			next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
			prefetch := &front.Prefetch{Next: next, Store: front.NewPrefetchStore()}
			request := requestFor(ahead(b, limit.MaxCapacity, 1e9, n))
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = prefetch.Take(context.Background(), request)
				}
			})
			b.ReportMetric(float64(b.N)/float64(next.calls.Load()), "decisions/call")
		})
	}
}
