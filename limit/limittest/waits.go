package limittest

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// waitCases are about time: what a bucket says it takes, and what it then does.
func waitCases() []testCase {
	const bucket = limit.TokenBucket
	return []testCase{
		{name: "retry and reset are exact", only: bucket, ticks: true, run: waitsExactly},
		{name: "a refusal writes nothing", ticks: true, run: refusesForFree},
		{name: "polling loses no fraction (A1)", only: bucket, ticks: true, run: polls},
		{name: "one a day (A8)", ticks: true, run: onceADay},
		{name: "retry after of random rules (A9)", ticks: true, run: waitsAtRandom},
		{name: "retry after as time passes (A9)", ticks: true, run: countsDown},
	}
}

func waitsExactly(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 10, 0.01) // a token in 100 s
	d := s.take(t, 3, 3, a)
	s.requireWait(t, 900*time.Second, d.First.ResetAfter)
	s.requireWait(t, 200*time.Second, d.First.RetryAfter)

	d = s.take(t, 3, 1, a)
	require.Zero(t, d.Granted)
	s.requireWait(t, 900*time.Second, d.First.ResetAfter)
	s.requirePassesAfter(t, d.First.RetryAfter, 3, a)

	s.Advance(t, 2000*time.Second)
	require.Equal(t, limit.State{Remaining: 10}, s.look(t, a))
}

// requirePassesAfter checks that waiting a millisecond less than wait is too
// short for one unit of cost, and that waiting it is enough.
func (s *subject) requirePassesAfter(t *testing.T, wait time.Duration, cost int64, b limit.Bucket) {
	t.Helper()
	less := wait - time.Millisecond - s.drift()
	if told := s.asked; less >= 0 {
		s.Advance(t, less)
		granted := s.take(t, cost, 1, b).Granted
		if late := time.Since(told); granted == 1 && s.drift() > 0 && late > wait-less {
			return // the machine was too busy to ask in time
		}
		require.Zero(t, granted, "%v of %v passed", less, wait)
		wait -= less
	}
	s.Advance(t, wait)
	require.Equal(t, int64(1), s.take(t, cost, 1, b).Granted)
}

// refusesForFree asks nine times while it waits, for what it then has.
func refusesForFree(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 2, 0.01)
	s.drain(t, a)
	wait := s.one(t, a).First.RetryAfter.Truncate(10 * time.Second)
	for range 9 {
		s.Advance(t, wait/10)
		require.Zero(t, s.one(t, a).Granted)
	}
	s.requirePassesAfter(t, s.one(t, a).First.RetryAfter, 1, a)
}

func polls(t *testing.T, s *subject) {
	passed := s.poll(t, s.bucket(t, "a", 1, 0.1), 60, time.Second)
	require.LessOrEqual(t, passed, int64(7))
	require.GreaterOrEqual(t, passed, int64(6))
	if s.drift() == 0 {
		require.Equal(t, int64(6), passed)
		require.Equal(t, int64(10), s.poll(t, s.bucket(t, "b", 1, 1), 100, 100*time.Millisecond))
	}
}

// poll asks n times, with a pause after each, and returns how many passed.
func (s *subject) poll(t *testing.T, b limit.Bucket, n int, pause time.Duration) int64 {
	t.Helper()
	var passed int64
	for range n {
		passed += s.one(t, b).Granted
		s.Advance(t, pause)
	}
	return passed
}

func onceADay(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 1, 1.0/86400)
	require.Equal(t, int64(1), s.one(t, a).Granted)
	d := s.one(t, a)
	require.Zero(t, d.Granted)
	s.requireWait(t, s.wholeWait(a.Rule, 1), d.First.RetryAfter)
	s.requireWait(t, s.wholeWait(a.Rule, 1), d.First.ResetAfter)
	s.requirePassesAfter(t, d.First.RetryAfter, 1, a)
}

func countsDown(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 1, 1.0/60)
	s.drain(t, a)
	asked := 0
	for _, at := range []int{20, 31, 44, 59} {
		s.Advance(t, time.Duration(at-asked)*time.Second)
		asked = at
		d := s.one(t, a)
		require.Zero(t, d.Granted)
		s.requireWait(t, s.wholeWait(a.Rule, 1)-time.Duration(at)*time.Second, d.First.RetryAfter)
	}
}

func waitsAtRandom(t *testing.T, s *subject) {
	random := rand.New(rand.NewPCG(fixedSeed, fixedSeed))
	slowest, fastest := 0.01, 1000.0
	if s.drift() > 0 {
		slowest, fastest = 0.001, 0.1
	}
	rules := 500
	if s.algorithm == limit.SlidingWindowLog && s.drift() > 0 {
		rules = 50 // where time passes by rewriting every entry
	}
	for range rules {
		capacity := 1 + random.Int64N(1000)
		refill := slowest * math.Pow(fastest/slowest, random.Float64())
		cost := 1 + random.Int64N(min(capacity, 20))
		a := s.bucket(t, "a", capacity, refill)
		s.drain(t, a)

		whole := s.wholeWait(a.Rule, cost)
		offset := time.Duration(random.Float64() * float64(whole)).Truncate(time.Millisecond)
		s.Advance(t, offset)
		d := s.take(t, cost, 1, a)
		if d.Granted == 0 { // else the offset came within a drift of the wait
			require.InDelta(t, whole-offset, d.First.RetryAfter, float64(s.drift()+2*time.Millisecond))
			s.requirePassesAfter(t, d.First.RetryAfter, cost, a)
		}
		require.NoError(t, s.Limiter.Reset(context.Background(), a.Key))
	}
}

// wholeWait is how long a drained bucket takes until it has cost tokens again: a
// share of the window; all of it; or all of it and a share of the next.
func (s *subject) wholeWait(rule limit.Rule, cost int64) time.Duration {
	window := time.Duration(rule.WindowMillis) * time.Millisecond
	share := time.Duration(float64(cost) / float64(rule.Capacity) * float64(window))
	switch s.algorithm {
	case limit.SlidingWindowLog:
		return window
	case limit.SlidingWindowCounter:
		return window + share
	default:
		return time.Duration(float64(cost) / rule.Refill * float64(time.Second))
	}
}
