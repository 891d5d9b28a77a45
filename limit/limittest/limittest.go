// Package limittest holds the one behaviour suite that every limit.Limiter
// passes: whatever stands behind the interface, a bucket grants, refuses, waits
// and forgets in the same way.
package limittest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// Fixture is one Limiter under test, with nothing in its buckets.
type Fixture struct {
	// Limiter is what is tested.
	Limiter limit.Limiter

	// Advance makes d (whole milliseconds) pass for every bucket of the fixture.
	// Nil means that it cannot: the cases that need time to pass are left out.
	Advance func(t testing.TB, d time.Duration)

	// Source is what every decision must say; SourceNone allows any.
	Source limit.Source

	// Algorithms are those that the Limiter knows. Default: the token bucket.
	Algorithms []limit.Algorithm

	// BansNobody tells that the Limiter begins no bans: the cases about them are left
	// out.
	BansNobody bool

	// Drift is the most that time passes by itself between two calls. Default:
	// nothing for SourceLocal, whose clock is a fake, and half a second else.
	Drift time.Duration
}

// drift returns the fixture's Drift with its default.
func (f *Fixture) drift() time.Duration {
	if f.Drift == 0 && f.Source != limit.SourceLocal {
		return 500 * time.Millisecond
	}
	return f.Drift
}

// fixedSeed makes the random cases the same in every run.
const fixedSeed = 9

// testCase is one behaviour. Those that read exact waits hold for one algorithm.
type testCase struct {
	name  string
	only  limit.Algorithm // 0: every algorithm
	not   limit.Algorithm // 0: none is left out
	ticks bool            // needs Advance
	bans  bool            // needs bans
	run   func(t *testing.T, f *subject)
}

// AllAlgorithms is every algorithm, for Fixture.Algorithms.
func AllAlgorithms() []limit.Algorithm {
	return []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowLog, limit.SlidingWindowCounter}
}

// Run tests what makeFixture makes, anew for each case, in one subtest for each
// algorithm and case, and in one for each case that mixes several.
func Run(t *testing.T, makeFixture func(t *testing.T) Fixture) {
	algorithms := makeFixture(t).Algorithms
	if len(algorithms) == 0 {
		algorithms = []limit.Algorithm{limit.TokenBucket}
	}
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			runCases(t, allCases(), algorithm, makeFixture)
		})
	}
	if len(algorithms) > 1 {
		t.Run("mixed", func(t *testing.T) { runCases(t, mixedCases(), algorithms[0], makeFixture) })
	}
}

func runCases(t *testing.T, cases []testCase, algorithm limit.Algorithm, makeFixture func(t *testing.T) Fixture) {
	for _, c := range cases {
		if c.only != 0 && c.only != algorithm || c.not == algorithm {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			f := makeFixture(t)
			if c.bans && f.BansNobody {
				t.Skip("this fixture bans nobody")
			}
			if c.ticks && f.Advance == nil {
				t.Skip("this fixture cannot make time pass")
			}
			c.run(t, &subject{Fixture: f, algorithm: algorithm})
		})
	}
}

func allCases() []testCase {
	var all []testCase
	all = append(all, grantCases()...)
	all = append(all, bucketCases()...)
	all = append(all, apartCases()...)
	all = append(all, waitCases()...)
	all = append(all, windowCases()...)
	all = append(all, nameCases()...)
	all = append(all, settlementCases()...)
	all = append(all, placeCases()...)
	return append(all, boundCases()...)
}

// subject is a fixture under one algorithm, with the calls that cases make.
type subject struct {
	Fixture
	algorithm limit.Algorithm
	drained   time.Time // when drain was last called
	asked     time.Time // when take was
}

// drift is the fixture's or, on a machine that is busier than that allows for, the
// time that has passed since a bucket was drained.
func (s *subject) drift() time.Duration {
	drift := s.Fixture.drift()
	if drift > 0 && !s.drained.IsZero() {
		drift = max(drift, time.Since(s.drained))
	}
	return drift
}

// bucket returns the whole bucket of one route under capacity and refill.
func (s *subject) bucket(t testing.TB, route string, capacity int64, refill float64) limit.Bucket {
	t.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: s.algorithm})
	require.NoError(t, err)
	return limit.Bucket{Key: limit.Key{Tenant: "t1", Route: route}, Rule: rule}
}

// take asks for count units of cost and checks what holds for every decision.
func (s *subject) take(t testing.TB, cost, count int64, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	request := limit.Request{Buckets: buckets, Cost: cost, Count: count}
	s.asked = time.Now()
	d, err := s.Limiter.Take(context.Background(), request)
	require.NoError(t, err)
	s.check(t, request, d)
	return d
}

// check holds a decision to the bounds of the interface.
func (s *subject) check(t testing.TB, request limit.Request, d limit.Decision) {
	t.Helper()
	require.GreaterOrEqual(t, d.Granted, int64(0))
	require.LessOrEqual(t, d.Granted, request.Count)
	if s.Source != limit.SourceNone {
		require.Equal(t, s.Source, d.Source)
	}
	require.Len(t, d.Rest, len(request.Buckets)-1)
	for i, bucket := range request.Buckets {
		state := d.At(i)
		require.GreaterOrEqual(t, state.Remaining, int64(0))
		require.LessOrEqual(t, state.Remaining, bucket.Rule.Capacity, "more is left than the capacity")
		require.GreaterOrEqual(t, state.ResetAfter, time.Duration(0))
		if state.RetryAfter != limit.Never {
			require.GreaterOrEqual(t, state.RetryAfter, time.Duration(0))
		}
	}
}

// one takes a single unit of cost 1.
func (s *subject) one(t testing.TB, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	return s.take(t, 1, 1, buckets...)
}

// drain takes all that a full bucket holds.
func (s *subject) drain(t testing.TB, bucket limit.Bucket) {
	t.Helper()
	s.drained = time.Now()
	require.Equal(t, bucket.Rule.Capacity, s.take(t, 1, bucket.Rule.Capacity, bucket).Granted)
}

// look asks a bucket without taking anything.
func (s *subject) look(t testing.TB, bucket limit.Bucket) limit.State {
	t.Helper()
	d := s.take(t, 1, 0, bucket)
	require.Zero(t, d.Granted)
	return d.First
}

// requireWait checks a wait that began as want and has been running down since.
func (s *subject) requireWait(t testing.TB, want, got time.Duration) {
	t.Helper()
	require.LessOrEqual(t, got, want)
	require.GreaterOrEqual(t, got, want-s.drift())
}
