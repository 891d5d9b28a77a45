package limittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// boundCases are the rules at the edge of what limit.NewRule allows (A16).
func boundCases() []testCase {
	const bucket = limit.TokenBucket
	return []testCase{
		{name: "largest capacity (A16)", only: bucket, run: largestCapacity},
		{name: "largest capacity (A16)", not: bucket, run: largestWindowCapacity},
		{name: "window of 1 ms (A16)", ticks: true, run: shortestWindow},
		{name: "window of 10 years (A16)", ticks: true, run: longestWindow},
	}
}

func largestCapacity(t *testing.T, s *subject) {
	a := s.bucket(t, "a", limit.MaxCapacity, 10)
	d := s.one(t, a)
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, int64(limit.MaxCapacity-1), d.First.Remaining)
	s.requireWait(t, 100*time.Millisecond, d.First.ResetAfter)

	d = s.take(t, limit.MaxCapacity-1, 1, a)
	require.Equal(t, int64(1), d.Granted)
	require.LessOrEqual(t, d.First.Remaining, int64(s.drift().Seconds()*10)+1)
	require.Positive(t, d.First.RetryAfter)
	require.Zero(t, s.take(t, limit.MaxCapacity, 1, a).Granted)
}

func shortestWindow(t *testing.T, s *subject) {
	for _, capacity := range []int64{1, s.largest()} {
		a := s.bucket(t, "a", capacity, float64(capacity)*1000)
		s.drain(t, a)
		s.Advance(t, s.wholeWait(a.Rule, capacity))
		require.Equal(t, limit.State{Remaining: capacity}, s.look(t, a))
		s.drain(t, a)
		s.Advance(t, time.Minute)
	}
}

func longestWindow(t *testing.T, s *subject) {
	for route, capacity := range map[string]int64{"a": 1, "b": s.largest()} {
		a := s.bucket(t, route, capacity, float64(capacity)/limit.MaxWindow.Seconds())
		s.drain(t, a)
		whole := s.wholeWait(a.Rule, capacity)
		s.requireWait(t, whole, s.look(t, a).ResetAfter)
		s.Advance(t, whole-time.Hour)
		require.Positive(t, s.look(t, a).ResetAfter)
		require.Less(t, s.look(t, a).Remaining, capacity)
		s.Advance(t, time.Hour+time.Second)
		require.Equal(t, limit.State{Remaining: capacity}, s.look(t, a))
	}
}

// largest is the largest capacity to test with where every token is taken: a log
// in Redis keeps an entry for each, and takes its time to write many.
func (s *subject) largest() int64 {
	switch {
	case s.algorithm != limit.SlidingWindowLog:
		return limit.MaxCapacity
	case s.drift() > 0:
		return 1000
	default:
		return limit.MaxLogCapacity
	}
}

func largestWindowCapacity(t *testing.T, s *subject) {
	capacity := int64(limit.MaxCapacity)
	if s.algorithm == limit.SlidingWindowLog {
		capacity = limit.MaxLogCapacity
	}
	a := s.bucket(t, "a", capacity, 10)
	d := s.one(t, a)
	require.Equal(t, capacity-1, d.First.Remaining)
	most := min(capacity, s.largest()) - 1
	d = s.take(t, most, 1, a)
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, capacity-1-most, d.First.Remaining)
	d = s.take(t, capacity, 1, a)
	require.Zero(t, d.Granted)
	require.Positive(t, d.First.RetryAfter)
}
