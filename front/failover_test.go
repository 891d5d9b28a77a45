package front_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
	"github.com/caddygate/ratelimit/localbucket"
)

var errDown = errors.New("primary down")

// fake is a Limiter that answers what it is told to, and remembers what it got.
type fake struct {
	decision limit.Decision
	err      error
	onTake   func()

	mu     sync.Mutex
	taken  []limit.Request
	resets []limit.Key
}

func (f *fake) Take(_ context.Context, req limit.Request) (limit.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	req.Buckets = slices.Clone(req.Buckets)
	f.taken = append(f.taken, req)
	if f.onTake != nil {
		f.onTake()
	}
	return f.decision, f.err
}

func (f *fake) Settle(s limit.Settlement) { s.End(limit.Settled{}) }
func (f *fake) Reset(_ context.Context, key limit.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets = append(f.resets, key)
	return f.err
}

// down is a Limiter that always fails, without allocating.
type down struct{}

func (down) Take(context.Context, limit.Request) (limit.Decision, error) {
	return limit.Decision{}, errDown
}

func (down) Settle(s limit.Settlement)              { s.End(limit.Settled{Lost: "down"}) }
func (down) Reset(context.Context, limit.Key) error { return nil }

// asRedis is a Limiter whose decisions pass for those of Redis.
type asRedis struct{ limit.Limiter }

func (a asRedis) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	d, err := a.Limiter.Take(ctx, req)
	d.Source = limit.SourceRedis
	for i := range d.Each {
		d.Each[i].Source = limit.SourceRedis
	}
	return d, err
}

func (a asRedis) Settle(s limit.Settlement) {
	s.Source = limit.SourceLocal
	a.Limiter.Settle(s)
}

func local(clock *limittest.Clock) *localbucket.Limiter {
	return localbucket.New(localbucket.NewStore(), localbucket.Options{Clock: clock.Now})
}

func bucketOf(t testing.TB, route string, capacity int64, refill float64) limit.Bucket {
	t.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.TokenBucket})
	require.NoError(t, err)
	return limit.Bucket{Key: limit.Key{Tenant: "t1", Route: route}, Rule: rule}
}

func requestFor(buckets ...limit.Bucket) limit.Request {
	return limit.Request{Buckets: buckets, Cost: 1, Count: 1}
}

func TestFailoverWithWorkingPrimary(t *testing.T) {
	t.Parallel()
	limittest.Run(t, func(*testing.T) limittest.Fixture {
		clock := new(limittest.Clock)
		return limittest.Fixture{
			Limiter:    &front.Failover{Primary: asRedis{local(clock)}, Local: &fake{}},
			Advance:    clock.Advance,
			Source:     limit.SourceRedis,
			Drift:      time.Nanosecond,
			Algorithms: limittest.AllAlgorithms(),
		}
	})
}

func TestFailoverWithFailingPrimary(t *testing.T) {
	t.Parallel()
	limittest.Run(t, func(*testing.T) limittest.Fixture {
		clock := new(limittest.Clock)
		return limittest.Fixture{
			Limiter:    &front.Failover{Primary: down{}, Local: local(clock)},
			BansNobody: true,
			Advance:    clock.Advance,
			Source:     limit.SourceLocal,
			Algorithms: limittest.AllAlgorithms(),
		}
	})
}

// TestH6FailoverApart: of buckets that are asked apart, each gives its own share at a
// cost of its own.
func TestH6FailoverApart(t *testing.T) {
	t.Parallel()
	f := &front.Failover{Primary: down{}, Local: local(new(limittest.Clock)), Instances: front.Fixed(5)}
	req := limit.Request{Buckets: []limit.Bucket{bucketOf(t, "a", 10, 0.001), bucketOf(t, "b", 100, 0.001), bucketOf(t, "c", 5, 0.001)}, Cost: 8, Count: 1, Apart: true}
	for i, want := range [][]int64{{1, 1, 0}, {0, 1, 0}, {0, 0, 0}} {
		d, err := f.Take(context.Background(), req)
		require.NoError(t, err)
		for k, granted := range want {
			require.Equal(t, limit.Grant{Granted: granted, Source: limit.SourceLocal}, d.Grant(k), "%d, bucket %d", i, k)
		}
		require.Equal(t, []int64{12, 4, 4}[i], d.At(1).Remaining, i)
	}
	f.Fallback = front.FallbackDeny
	d, err := f.Take(context.Background(), req)
	require.NoError(t, err)
	require.Equal(t, limit.Grant{}, d.Grant(2))
	require.Equal(t, time.Second, d.At(2).RetryAfter)
}

func TestDecisionPassesThrough(t *testing.T) {
	t.Parallel()
	want := limit.Decision{Granted: 1, Source: limit.SourceRedis, First: limit.State{Remaining: 7, ResetAfter: time.Second}}
	primary, fallback := &fake{decision: want}, &fake{}
	f := &front.Failover{Primary: primary, Local: fallback, OnError: func(error) { t.Error("told of an error") }}
	got, err := f.Take(context.Background(), requestFor(bucketOf(t, "a", 10, 1)))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Empty(t, fallback.taken)
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		timeout time.Duration
		already time.Time
		want    time.Time
	}{
		"default":     {0, time.Time{}, now.Add(5 * time.Millisecond)},
		"configured":  {time.Second, time.Time{}, now.Add(time.Second)},
		"already set": {time.Second, now.Add(time.Minute), now.Add(time.Minute)},
	} {
		primary := &fake{}
		f := &front.Failover{Primary: primary, Timeout: c.timeout, Clock: func() time.Time { return now }}
		request := requestFor(bucketOf(t, "a", 10, 1))
		request.Deadline = c.already
		_, err := f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, c.want, primary.taken[0].Deadline, name)
	}
}

func TestClientLeft(t *testing.T) {
	t.Parallel()
	for _, fallback := range []front.Fallback{front.FallbackLocal, front.FallbackAllow, front.FallbackDeny} {
		ctx, cancel := context.WithCancel(context.Background())
		localFake := &fake{}
		f := &front.Failover{
			Primary: &fake{err: errDown, onTake: cancel}, Local: localFake, Fallback: fallback,
			OnError: func(error) { t.Error("a client that left is no failure") },
		}
		_, err := f.Take(ctx, requestFor(bucketOf(t, "a", 10, 1)))
		require.ErrorIs(t, err, context.Canceled, fallback)
		require.Empty(t, localFake.taken, "nothing is charged locally")
	}
}

func TestFallbacks(t *testing.T) {
	t.Parallel()
	granted := limit.Decision{Granted: 2, Source: limit.SourceLocal}
	for name, c := range map[string]struct {
		fallback front.Fallback
		denyFor  time.Duration
		want     limit.Decision
	}{
		"local":        {front.FallbackLocal, 0, granted},
		"allow":        {front.FallbackAllow, 0, limit.Decision{Granted: 2}},
		"deny":         {front.FallbackDeny, time.Minute, limit.Decision{First: limit.State{RetryAfter: time.Minute}}},
		"deny default": {front.FallbackDeny, 0, limit.Decision{First: limit.State{RetryAfter: time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []error
			f := &front.Failover{
				Primary: &fake{err: errDown}, Local: &fake{decision: granted}, Fallback: c.fallback,
				DenyFor: c.denyFor, OnError: func(err error) { told = append(told, err) },
			}
			request := requestFor(bucketOf(t, "a", 10, 1))
			request.Count = 2
			got, err := f.Take(context.Background(), request)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, []error{errDown}, told)

			request.Buckets = append(request.Buckets, bucketOf(t, "b", 10, 1), bucketOf(t, "c", 10, 1))
			got, err = f.Take(context.Background(), request)
			require.NoError(t, err)
			if c.want.Source == limit.SourceNone {
				require.Equal(t, got.First, got.At(2), "there is a state for each bucket")
			}
		})
	}
}

func TestLocalFailsToo(t *testing.T) {
	t.Parallel()
	errLocal := errors.New("no local buckets")
	f := &front.Failover{Primary: &fake{err: errDown}, Local: &fake{err: errLocal}}
	_, err := f.Take(context.Background(), requestFor(bucketOf(t, "a", 10, 1)))
	require.ErrorIs(t, err, errLocal)
	require.ErrorContains(t, err, "falling back to the local buckets: ")
}

// TestF4Shares divides a limit among instances, and changes their number while
// the fallback is in use: the old balance is cut to the new share.
func TestF4Shares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ capacity, instances, want int64 }{
		{10, 3, 3}, {2, 3, 1}, {10, 1, 10}, {10, 0, 10}, {1000, 7, 142}, {1, 100_000, 1},
	} {
		f := &front.Failover{Primary: down{}, Local: local(new(limittest.Clock)), Instances: front.Fixed(c.instances)}
		request := requestFor(bucketOf(t, "a", c.capacity, 0.001))
		request.Count = c.capacity
		d, err := f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, c.want, d.Granted, c)
		require.Equal(t, limit.SourceLocal, d.Source)
	}

	clock := new(limittest.Clock)
	buckets := local(clock)
	three := &front.Failover{Primary: down{}, Local: buckets, Instances: front.Fixed(3)}
	six := &front.Failover{Primary: down{}, Local: buckets, Instances: front.Fixed(6)}
	request := requestFor(bucketOf(t, "a", 10, 0.001))
	d, err := three.Take(context.Background(), request)
	require.NoError(t, err)
	require.Equal(t, int64(2), d.First.Remaining)
	for _, want := range []int64{1, 0} {
		d, err = six.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, want, d.Granted, "2 left are cut to 1")
		require.Zero(t, d.First.Remaining)
	}
}

// TestF4SharesOfANumberThatChanges asks for the number at each decision: more
// instances cut what is left here, fewer give more of what refills.
func TestF4SharesOfANumberThatChanges(t *testing.T) {
	t.Parallel()
	instances := int64(3)
	clock := new(limittest.Clock)
	f := &front.Failover{Primary: down{}, Local: local(clock), Instances: func() int64 { return instances }}
	request := requestFor(bucketOf(t, "a", 10, 1))
	for _, step := range []struct{ instances, granted, remaining int64 }{
		{3, 1, 2}, {6, 1, 0}, {6, 0, 0}, {1, 0, 0},
	} {
		instances = step.instances
		d, err := f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, []int64{step.granted, step.remaining}, []int64{d.Granted, d.First.Remaining}, step)
	}
	clock.Advance(t, time.Minute)
	d, err := f.Take(context.Background(), request)
	require.NoError(t, err)
	require.Equal(t, int64(9), d.First.Remaining, "alone, it gives the whole")
}

func TestShareOfTheCost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cost       int64
		capacities []int64
		want       int64
	}{
		"within the share":          {3, []int64{10}, 3},
		"over the share":            {5, []int64{10}, 3},
		"all of it":                 {10, []int64{10}, 3},
		"over the capacity":         {11, []int64{10}, 11},
		"least of several":          {9, []int64{30, 10, 20}, 3},
		"over one of the several":   {10, []int64{10, 9}, 10},
		"as much as one share has":  {10, []int64{30}, 10},
		"a share that is too small": {2, []int64{2}, 1},
	} {
		fallback := &fake{}
		f := &front.Failover{Primary: down{}, Local: fallback, Instances: front.Fixed(3)}
		request := limit.Request{Cost: c.cost, Count: 1}
		for i, capacity := range c.capacities {
			request.Buckets = append(request.Buckets, bucketOf(t, fmt.Sprint(i), capacity, 1))
		}
		before := slices.Clone(request.Buckets)
		_, err := f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, before, request.Buckets, "the caller's buckets are not touched")
		got := fallback.taken[0]
		require.Equal(t, c.want, got.Cost, name)
		for i, bucket := range got.Buckets {
			require.Equal(t, before[i].Rule.Share(3), bucket.Rule)
			require.Equal(t, before[i].Key, bucket.Key)
		}
	}
}

// TestCostOfAShare: what costs more than the share passes when the share is full.
func TestCostOfAShare(t *testing.T) {
	t.Parallel()
	clock := new(limittest.Clock)
	f := &front.Failover{Primary: down{}, Local: local(clock), Instances: front.Fixed(3)}
	request := limit.Request{Buckets: []limit.Bucket{bucketOf(t, "a", 10, 1)}, Cost: 5, Count: 1}
	for range 2 {
		d, err := f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, int64(1), d.Granted)
		d, err = f.Take(context.Background(), request)
		require.NoError(t, err)
		require.Zero(t, d.Granted)
		require.Equal(t, 9*time.Second, d.First.RetryAfter)
		clock.Advance(t, d.First.RetryAfter)
	}
}

func TestResetsBoth(t *testing.T) {
	t.Parallel()
	errLocal := errors.New("no local buckets")
	key := limit.Key{Tenant: "t1", Route: "a"}
	for name, c := range map[string]struct{ primary, local, want error }{
		"both":          {nil, nil, nil},
		"primary fails": {errDown, nil, errDown},
		"local fails":   {nil, errLocal, errLocal},
		"both fail":     {errDown, errLocal, errDown},
	} {
		primary, fallback := &fake{err: c.primary}, &fake{err: c.local}
		f := &front.Failover{Primary: primary, Local: fallback}
		require.ErrorIs(t, f.Reset(context.Background(), key), c.want, name)
		require.Equal(t, []limit.Key{key}, primary.resets)
		require.Equal(t, []limit.Key{key}, fallback.resets)
	}
}

// TestLocalRequests are decided by the share, whatever the primary could say and
// the fallback is.
func TestLocalRequests(t *testing.T) {
	t.Parallel()
	for _, fallback := range []front.Fallback{front.FallbackLocal, front.FallbackAllow, front.FallbackDeny} {
		primary := &fake{decision: limit.Decision{Granted: 1, Source: limit.SourceRedis}}
		f := &front.Failover{Primary: primary, Local: local(new(limittest.Clock)), Fallback: fallback, Instances: front.Fixed(2)}
		request := requestFor(bucketOf(t, "a", 10, 1))
		request.Local = true
		foreseen, err := f.Foresee(context.Background(), request)
		require.NoError(t, err)
		for taken := range int64(6) {
			got, err := f.Take(context.Background(), request)
			require.NoError(t, err)
			require.Equal(t, limit.SourceLocal, got.Source)
			require.Equal(t, taken < 5, got.Granted > 0, "%s: %d", fallback, taken)
			if taken == 0 {
				require.Equal(t, foreseen.First.Remaining, got.First.Remaining)
			}
		}
		left, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = f.Take(left, request)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, primary.taken)
	}
}

func TestFallbackWords(t *testing.T) {
	t.Parallel()
	for _, f := range []front.Fallback{front.FallbackLocal, front.FallbackAllow, front.FallbackDeny} {
		parsed, err := front.ParseFallback(f.String())
		require.NoError(t, err)
		require.Equal(t, f, parsed)
	}
	_, err := front.ParseFallback("closed")
	require.EqualError(t, err, `unknown fallback "closed": allowed are local, allow, deny`)
}

func TestAllocatesNothing(t *testing.T) {
	request := requestFor(bucketOf(t, "a", 1000, 1))
	for name, primary := range map[string]limit.Limiter{"primary": local(new(limittest.Clock)), "fallback": down{}} {
		f := &front.Failover{Primary: primary, Local: local(new(limittest.Clock)), Instances: front.Fixed(3)}
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = f.Take(context.Background(), request) }), name)
	}
}

func BenchmarkFailover(b *testing.B) {
	for name, primary := range map[string]limit.Limiter{
		"primary":  localbucket.New(localbucket.NewStore(), localbucket.Options{}),
		"fallback": down{},
	} {
		b.Run(name, func(b *testing.B) {
			f := &front.Failover{
				Primary: primary, Instances: front.Fixed(3),
				Local: localbucket.New(localbucket.NewStore(), localbucket.Options{}),
			}
			request := requestFor(bucketOf(b, "a", 1000, 1))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = f.Take(context.Background(), request)
			}
		})
	}
}
