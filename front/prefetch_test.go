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

// exhaust takes what is in hand, when a call has just brought 50.
func exhaust(t *testing.T, p *front.Prefetch, a limit.Bucket) {
	t.Helper()
	for one(t, p, a).Source == limit.SourcePrefetch {
	}
	require.Equal(t, int64(49), takeN(t, p, 49, a))
}

// warmed is a Prefetch with nothing in hand whose next call takes 50, over a gate,
// in a bubble with a fake clock.
func warmed(t *testing.T, a limit.Bucket) (*front.Prefetch, *gate, *counted) {
	t.Helper()
	next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
	g := &gate{Limiter: next, open: make(chan error, 1000)}
	prefetch := &front.Prefetch{Next: g, Store: front.NewPrefetchStore()}
	for range 300 {
		g.open <- nil
	}
	for range 200 {
		require.Equal(t, int64(1), one(t, prefetch, a).Granted)
		time.Sleep(time.Millisecond) // in the bubble's time
	}
	exhaust(t, prefetch, a)
	for len(g.open) > 0 {
		<-g.open
	}
	require.NoError(t, prefetch.Next.Reset(t.Context(), a.Key))
	g.calls.Store(0)
	next.granted.Store(0)
	return prefetch, g, next
}

// spend takes what is in hand.
func spend(t *testing.T, p *front.Prefetch, a limit.Bucket) (n int) {
	t.Helper()
	request := requestFor(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		if d, err := p.Take(ctx, request); err != nil || d.Source != limit.SourcePrefetch {
			return n
		}
		n++
	}
}

func TestPrefetchIsJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		var c crowd
		c.add(t.Context(), prefetch, 60, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(11), g.calls.Load(), "one call for 50, of which none is for the other 10")
		for range 11 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, int64(60), c.granted)
		require.Equal(t, int64(60), next.granted.Load())
		require.Equal(t, map[limit.Source]int{limit.SourceLocal: 60}, c.sources)
		require.Equal(t, limit.SourceLocal, func() limit.Source { g.open <- nil; return one(t, prefetch, a).Source }())
	})
}

// TestPrefetchLeavers: the token of one who leaves stays in hand, also that of the
// one who made the call, and nobody waits longer than his deadline.
func TestPrefetchLeavers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		var caller, leavers, hurried, patient crowd
		request := requestFor(a)
		request.Deadline = time.Now().Add(20 * time.Millisecond)
		caller.add(ctx, prefetch, 1, request)
		synctest.Wait()
		leavers.add(ctx, prefetch, 5, requestFor(a))
		patient.add(t.Context(), prefetch, 5, requestFor(a))
		soon := requestFor(a)
		soon.Deadline = time.Now().Add(5 * time.Millisecond)
		hurried.add(t.Context(), prefetch, 5, soon)
		synctest.Wait()
		cancel()
		leavers.group.Wait()
		began := time.Now()
		hurried.group.Wait()
		require.Equal(t, 5*time.Millisecond, time.Since(began))
		g.open <- nil
		caller.group.Wait()
		patient.group.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		require.ErrorIs(t, errors.Join(caller.errs...), context.Canceled)
		require.ErrorIs(t, errors.Join(leavers.errs...), context.Canceled)
		require.ErrorIs(t, errors.Join(hurried.errs...), context.DeadlineExceeded)
		require.Equal(t, int64(5), patient.granted)
		require.Equal(t, int64(50), next.granted.Load())
		require.Equal(t, 45, spend(t, prefetch, a))
	})
}

// TestPrefetchBringsLess: those for whom there is no token ask for themselves, as
// do all after an error.
func TestPrefetchBringsLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		require.Equal(t, int64(4997), take(t, next.Limiter, 1, 4997, a).Granted)
		var c crowd
		c.add(t.Context(), prefetch, 10, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		synctest.Wait()
		require.Equal(t, int64(8), g.calls.Load())
		for range 7 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, int64(3), c.granted)
		require.Equal(t, int64(7), c.refused)
	})
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, _ := warmed(t, a)
		var c crowd
		c.add(t.Context(), prefetch, 10, requestFor(a))
		synctest.Wait()
		g.open <- errDown
		synctest.Wait()
		require.Equal(t, int64(10), g.calls.Load())
		for range 9 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, []error{errDown}, c.errs)
		require.Equal(t, int64(9), c.granted)
	})
}

// TestPrefetchIsLate: what a call brings after a reset, a change of the rule or
// 100 ms is for those who wait, and not kept.
func TestPrefetchIsLate(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*testing.T, *front.Prefetch, *gate, limit.Bucket){
		"reset": func(t *testing.T, p *front.Prefetch, _ *gate, a limit.Bucket) {
			require.NoError(t, p.Reset(t.Context(), a.Key))
		},
		"rule": func(t *testing.T, p *front.Prefetch, g *gate, a limit.Bucket) {
			a.Rule.Capacity--
			g.open <- nil
			var c crowd
			c.add(t.Context(), p, 1, requestFor(a))
			g.open <- nil
			c.group.Wait()
		},
		"time": func(*testing.T, *front.Prefetch, *gate, limit.Bucket) { time.Sleep(100 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := ahead(t, 5000, 5000, 50)
				prefetch, g, _ := warmed(t, a)
				var c crowd
				c.add(t.Context(), prefetch, 5, requestFor(a))
				synctest.Wait()
				meanwhile(t, prefetch, g, a)
				if name != "rule" { // there the gate has opened for the call too
					g.open <- nil
				}
				c.group.Wait()
				require.Equal(t, int64(5), c.granted)
				require.Zero(t, spend(t, prefetch, a))
			})
		})
	}
}

// TestPrefetchStartsAnew: what a call brings is not kept either where requests have
// come since the reset or the change of the rule that it was late for.
func TestPrefetchStartsAnew(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*front.Prefetch, limit.Bucket){
		"reset": func(p *front.Prefetch, a limit.Bucket) {
			require.NoError(t, p.Reset(context.Background(), a.Key))
			one(t, p, a)
		},
		"rule": func(p *front.Prefetch, a limit.Bucket) {
			changed := a
			changed.Rule.Capacity--
			one(t, p, changed)
			one(t, p, a)
		},
	} {
		c := newCluster(1)
		a := ahead(t, 5000, 5000, 50)
		c.warm(t, a, 200*time.Millisecond)
		exhaust(t, c.gateways[0], a)
		c.before = func(req limit.Request) {
			c.before = nil
			require.Equal(t, int64(50), req.Count)
			meanwhile(c.gateways[0], a)
		}
		require.Equal(t, int64(1), one(t, c.gateways[0], a).Granted)
		require.Equal(t, limit.SourceLocal, one(t, c.gateways[0], a).Source, name)
	}
}

// TestPrefetchAgainstOneByOne holds several instances to what their bucket gives,
// in any span of time, plus what they may have in hand; and to exactly what it
// gives in all.
func TestPrefetchAgainstOneByOne(t *testing.T) {
	t.Parallel()
	fromHand := 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 14))
		n := 2 + random.Int64N(20)
		capacity, refill := 1+random.Int64N(200), 20+random.Float64()*3000
		refill = min(refill, float64(capacity)*1000)
		w := watch{cluster: newCluster(1 + random.IntN(4)), bucket: ahead(t, capacity, refill, int32(n)), random: random}
		if random.IntN(4) == 0 {
			w.bucket.Rule.Prefetch = limit.PrefetchAuto
			n = max(1, int64(refill/10))
		}
		for range 1500 {
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
			prefetch := &front.Prefetch{Next: next, Store: stores[worker%2], Instances: 2, Clock: now}
			for range 2500 {
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
