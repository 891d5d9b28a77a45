package localbucket

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
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
	require.Empty(t, l.store.bounds)
}
