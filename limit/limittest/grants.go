package limittest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// slow is a refill so slow that a test ends before the first token is back.
const slow = 0.001

// grantCases are about how many units one bucket gives.
func grantCases() []testCase {
	return []testCase{
		{name: "grants down to nothing", run: grantsDown},
		{name: "count grants the largest number", run: grantsLargest},
		{name: "count 0 changes nothing", run: looksOnly},
		{name: "cost above 1", run: costsMore},
		{name: "cost over capacity", run: costsTooMuch},
		{name: "concurrent takes", run: takesAtOnce},
	}
}

func grantsDown(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 5, slow)
	for left := int64(4); left >= 0; left-- {
		d := s.one(t, a)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, left, d.First.Remaining)
		require.Positive(t, d.First.ResetAfter)
		require.Equal(t, left == 0, d.First.RetryAfter > 0, "a wait where nothing is left, none else")
	}
	for range 3 {
		d := s.one(t, a)
		require.Zero(t, d.Granted)
		require.Zero(t, d.First.Remaining)
		require.Positive(t, d.First.RetryAfter)
	}
}

func grantsLargest(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 10, slow)
	d := s.take(t, 1, 4, a)
	require.Equal(t, int64(4), d.Granted)
	require.Equal(t, int64(6), d.First.Remaining)
	d = s.take(t, 4, 5, a)
	require.Equal(t, int64(1), d.Granted, "6 tokens hold one unit of 4")
	require.Equal(t, int64(2), d.First.Remaining)
	require.Positive(t, d.First.RetryAfter, "2 tokens hold no more unit of 4")
	require.Equal(t, int64(2), s.take(t, 1, 1000, a).Granted)
}

func looksOnly(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 3, slow)
	for range 3 {
		state := s.look(t, a)
		require.Equal(t, limit.State{Remaining: 3}, state)
	}
	s.one(t, a)
	for range 3 {
		require.Equal(t, int64(2), s.look(t, a).Remaining)
	}
	require.Equal(t, int64(2), s.take(t, 1, 2, a).Granted)
	for range 3 {
		state := s.look(t, a)
		require.Zero(t, state.Remaining)
		require.Positive(t, state.RetryAfter)
	}
}

func costsMore(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 10, slow)
	for _, left := range []int64{7, 4, 1} {
		d := s.take(t, 3, 1, a)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, left, d.First.Remaining)
	}
	d := s.take(t, 3, 1, a)
	require.Zero(t, d.Granted)
	require.Equal(t, int64(1), d.First.Remaining, "a refusal takes nothing")
	require.Equal(t, int64(1), s.one(t, a).Granted)
}

func costsTooMuch(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 5, slow)
	for _, count := range []int64{0, 1, 7} {
		d := s.take(t, 6, count, a)
		require.Zero(t, d.Granted)
		require.Equal(t, limit.Never, d.First.RetryAfter)
		require.Equal(t, int64(5), d.First.Remaining)
	}
	require.Equal(t, int64(1), s.take(t, 5, 1, a).Granted)
}

// takesAtOnce also asks two buckets in either order, which must not lock up.
func takesAtOnce(t *testing.T, s *subject) {
	const workers, calls, capacity = 8, 40, 100
	a, b := s.bucket(t, "a", capacity, slow), s.bucket(t, "b", 10*capacity, slow)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var granted atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		buckets := []limit.Bucket{a, b}
		if worker%2 == 1 {
			buckets = []limit.Bucket{b, a}
		}
		group.Go(func() {
			for range calls {
				d, err := s.Limiter.Take(ctx, limit.Request{Buckets: buckets, Cost: 1, Count: 1})
				if err != nil {
					t.Errorf("taking: %v", err)
					return
				}
				granted.Add(d.Granted)
			}
		})
	}
	group.Wait()
	require.Equal(t, int64(capacity), granted.Load())
	require.Equal(t, int64(9*capacity), s.look(t, b).Remaining)
}
