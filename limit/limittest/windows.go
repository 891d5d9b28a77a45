package limittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// windowCases are what each sliding window promises of its own.
func windowCases() []testCase {
	const log, counter = limit.SlidingWindowLog, limit.SlidingWindowCounter
	return []testCase{
		{name: "many at one instant (A2)", only: log, run: oneInstant},
		{name: "the oldest makes room first", only: log, ticks: true, run: expiresInOrder},
		{name: "never more in any window", only: log, ticks: true, run: anyWindow},
		{name: "polling (A1)", only: log, ticks: true, run: pollsLog},
		{name: "a changed window counts anew", only: log, ticks: true, run: recounts},
		{name: "two windows weighed (A3)", only: counter, ticks: true, run: weighs},
		{name: "one in a window (A3)", only: counter, ticks: true, run: oneInTwo},
		{name: "never twice the capacity", only: counter, ticks: true, run: neverTwice},
		{name: "a changed window keeps its start", only: counter, ticks: true, run: keepsStart},
		{name: "capacity lowered and raised (A11)", not: limit.TokenBucket, run: changesWindowCapacity},
	}
}

func oneInstant(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 5, 0.05)
	for left := int64(4); left >= 0; left-- {
		d := s.one(t, a)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, left, d.First.Remaining)
	}
	require.Zero(t, s.one(t, a).Granted)

	b := s.bucket(t, "b", 5, 0.05)
	require.Equal(t, int64(2), s.take(t, 3, 1, b).First.Remaining, "one call that takes 3 counts 3")
	require.Equal(t, int64(2), s.take(t, 1, 3, b).Granted)
}

func expiresInOrder(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 6, 0.006) // a window of 1000 s
	for _, n := range []int64{1, 2, 3} {
		require.Equal(t, n, s.take(t, 1, n, a).Granted)
		s.Advance(t, 100*time.Second)
	}
	d := s.one(t, a)
	require.Zero(t, d.Granted)
	s.requireWait(t, 700*time.Second, d.First.RetryAfter)
	s.requireWait(t, 900*time.Second, d.First.ResetAfter)
	s.requireWait(t, 800*time.Second, s.take(t, 2, 1, a).First.RetryAfter)
	s.requireWait(t, 900*time.Second, s.take(t, 4, 1, a).First.RetryAfter)
	s.requirePassesAfter(t, d.First.RetryAfter, 1, a)
	s.Advance(t, 100*time.Second+s.drift()) // which may have passed between the first two
	require.Equal(t, int64(2), s.take(t, 1, 6, a).Granted, "those taken at one time come back at one time")
}

// anyWindow asks all the time, and counts what passed in every window there is. Two
// calls are in one where it is certain, from before the first to after the last.
func anyWindow(t *testing.T, s *subject) {
	const capacity, window, pause = 7, 100 * time.Second, 3 * time.Second
	a := s.bucket(t, "a", capacity, capacity/window.Seconds())
	type call struct {
		from, to time.Duration
		granted  int64
	}
	var calls []call
	began, advanced := time.Now(), time.Duration(0)
	now := func() time.Duration {
		if s.drift() == 0 {
			return advanced
		}
		return advanced + time.Since(began)
	}
	for range 200 {
		c := call{from: now()}
		c.granted = s.one(t, a).Granted
		c.to = now()
		calls = append(calls, c)
		s.Advance(t, pause)
		advanced += pause
	}
	for end, last := range calls {
		var sum int64
		for at := end; at >= 0 && last.to-calls[at].from < window; at-- {
			sum += calls[at].granted
		}
		require.LessOrEqual(t, sum, int64(capacity), "in the window up to call %d", end)
	}
}

func pollsLog(t *testing.T, s *subject) {
	passed := s.poll(t, s.bucket(t, "a", 1, 0.1), 60, time.Second)
	require.LessOrEqual(t, passed, int64(7))
	require.GreaterOrEqual(t, passed, int64(6))
}

func recounts(t *testing.T, s *subject) {
	long := s.bucket(t, "a", 10, 0.01) // 1000 s
	require.Equal(t, int64(6), s.take(t, 1, 6, long).Granted)
	s.Advance(t, 500*time.Second)
	require.Equal(t, int64(3), s.take(t, 1, 3, long).Granted)
	short := s.bucket(t, "a", 10, 0.025) // 400 s
	require.Equal(t, int64(7), s.look(t, short).Remaining)
	require.Equal(t, int64(1), s.look(t, long).Remaining)
}

func weighs(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 100, 100.0/60)
	require.Equal(t, int64(50), s.take(t, 1, 50, a).Granted)
	s.Advance(t, time.Minute)
	require.Equal(t, int64(10), s.take(t, 1, 10, a).Granted)
	s.Advance(t, 6*time.Second)
	d := s.one(t, a)
	require.Equal(t, int64(1), d.Granted)
	require.InDelta(t, 44, d.First.Remaining, s.drift().Seconds()*2)
	s.Advance(t, 4*time.Minute) // until three windows were idle
	require.Equal(t, int64(99), s.one(t, a).First.Remaining)
}

func oneInTwo(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 1, 0.1)
	require.Equal(t, int64(1), s.one(t, a).Granted)
	s.Advance(t, time.Second)
	d := s.one(t, a)
	require.Zero(t, d.Granted)
	s.requireWait(t, 19*time.Second, d.First.RetryAfter)
	s.Advance(t, 19*time.Second)
	require.Equal(t, int64(1), s.one(t, a).Granted)
}

// neverTwice takes all that there is in every second.
func neverTwice(t *testing.T, s *subject) {
	const capacity, window = 100, 10 // seconds
	a := s.bucket(t, "a", capacity, float64(capacity)/window)
	var passed []int64
	for range 100 {
		d := s.take(t, 1, capacity, a)
		require.LessOrEqual(t, d.Granted, int64(capacity), "never as one burst")
		passed = append(passed, d.Granted)
		s.Advance(t, time.Second)
	}
	for end := range passed {
		var sum int64
		for at := max(0, end-window+1); at <= end; at++ {
			sum += passed[at]
		}
		require.Less(t, sum, int64(2*capacity), "in the window up to second %d", end)
	}
}

func keepsStart(t *testing.T, s *subject) {
	require.Equal(t, int64(8), s.take(t, 1, 8, s.bucket(t, "a", 10, 0.01)).Granted) // 1000 s
	s.Advance(t, 300*time.Second)
	shorter := s.bucket(t, "a", 10, 0.05) // 200 s: half of the second window has passed
	require.Equal(t, int64(6), s.look(t, shorter).Remaining)
	s.Advance(t, 100*time.Second)
	require.Equal(t, limit.State{Remaining: 10}, s.look(t, shorter))
}

// changesWindowCapacity: a sliding window counts what was taken, whatever the
// capacity was then.
func changesWindowCapacity(t *testing.T, s *subject) {
	require.Equal(t, int64(99), s.one(t, s.bucket(t, "a", 100, slow)).First.Remaining)
	lowered := s.bucket(t, "a", 10, slow)
	for left := int64(8); left >= 0; left-- {
		require.Equal(t, left, s.one(t, lowered).First.Remaining)
	}
	require.Zero(t, s.one(t, lowered).Granted)
	lowest := s.one(t, s.bucket(t, "a", 3, slow))
	require.Zero(t, lowest.Granted)
	require.Zero(t, lowest.First.Remaining)
	require.Positive(t, lowest.First.RetryAfter)
	require.Equal(t, int64(39), s.one(t, s.bucket(t, "a", 50, slow)).First.Remaining)
}
