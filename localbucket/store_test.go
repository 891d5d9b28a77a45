package localbucket

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func (l *tester) fill(t testing.TB, n int) {
	t.Helper()
	a := bucketOf(t, "", 10, 0.001)
	for i := range n {
		a.Key.Tenant = fmt.Sprint("t", i)
		l.take(t, a, 1)
	}
}

// bound finds the bound in force by filling the store.
func (l *tester) bound(t testing.TB, among ...int) int {
	t.Helper()
	l.fill(t, 2*among[len(among)-1])
	for _, most := range among {
		if l.store.Len() <= most {
			return most
		}
	}
	return DefaultBound
}

func TestBoundStack(t *testing.T) {
	t.Parallel()
	l := newTester()
	among := []int{10, 100, 1000}
	require.Equal(t, DefaultBound, l.bound(t, among...))

	releaseOld := l.store.Bound(100)
	require.LessOrEqual(t, l.store.Len(), 100, "what is too much goes at once")
	releaseFailed := l.store.Bound(10)
	require.Equal(t, 10, l.bound(t, among...))
	releaseFailed()
	require.Equal(t, 100, l.bound(t, among...), "a failed reload brings the old bound back")

	releaseNew := l.store.Bound(1000)
	releaseOld()
	releaseOld()
	releaseFailed()
	require.Equal(t, 1000, l.bound(t, among...), "the old config's release changes nothing")
	releaseNew()
	require.Equal(t, DefaultBound, l.bound(t, among...))
	l.store.Bound(10)
	l.store.Bound(0)
	require.Equal(t, DefaultBound, l.bound(t, among...), "0 is the default")
}

func TestBoundForgetsNoLimit(t *testing.T) {
	t.Parallel()
	l, a := newTester(), bucketOf(t, "A", 5, 0.001)
	l.take(t, a, 5)
	for _, most := range []int{100, 1_000_000, 5000, 20_000, 1} {
		defer l.store.Bound(most)()
		require.Zero(t, l.take(t, a, 1).Granted, most)
	}
}

// TestBoundCountsEntriesOfLogs: what logs have room for is within the bound, the
// one that is full again soonest goes first, and a log over the bound stands alone.
func TestBoundCountsEntriesOfLogs(t *testing.T) {
	t.Parallel()
	l := newTester()
	defer l.store.Bound(1000)()
	places := func(tenant string, n int) {
		a := bucketOf(t, tenant, 5000, 0.001)
		a.Rule.Algorithm = limit.SlidingWindowLog
		for range n {
			l.clock.Advance(t, time.Microsecond)
			l.take(t, a, 1)
		}
	}
	for i := range 100 {
		places(fmt.Sprint(i), 4)
	}
	require.Equal(t, 100, l.store.Len())
	places("large", 512)
	require.InDelta(t, 100, l.store.Len(), 20)
	places("larger", 900) // has room for 1024, and the bound is 1000
	require.Equal(t, 1, l.store.Len())
	places("small", 1)
	require.Equal(t, 1, l.store.Len())
	l.store.Bound(100)
	l.store.Bound(100_000)
	for i := range 100 {
		places(fmt.Sprint(i), 5)
	}
	require.Equal(t, 101, l.store.Len())
	l.store.Bound(500)
	require.LessOrEqual(t, l.store.Len(), 500/8)
	require.NotZero(t, l.store.Len())
}

func TestLateTake(t *testing.T) {
	t.Parallel()
	l := newTester()
	require.NoError(t, l.store.Destruct())
	require.Equal(t, int64(1), l.take(t, bucketOf(t, "A", 5, 0.001), 1).Granted)
}

func TestBoundsRace(t *testing.T) {
	t.Parallel()
	l := newTester()
	var group sync.WaitGroup
	for worker := range 3 {
		group.Go(func() {
			for i := range 50 {
				release := l.store.Bound(100 * (1 + (i+worker)%300))
				l.fill(t, 10)
				release()
			}
		})
	}
	group.Wait()
	require.Zero(t, l.store.bounds.Len())
}
