package limittest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// apartCases are about buckets that are asked in one request, each by itself.
func apartCases() []testCase {
	return []testCase{
		{name: "each bucket gives what it can apart (H6)", run: givesApart},
		{name: "a refusal takes nothing from others apart (H6)", run: refusesApart},
		{name: "a look apart changes nothing", run: looksApart},
		{name: "one bucket apart is one alone", run: oneApart},
	}
}

// apart asks the buckets by themselves and checks what holds for every decision.
func (s *subject) apart(t testing.TB, cost, count int64, buckets ...limit.Bucket) limit.Decision {
	t.Helper()
	request := limit.Request{Buckets: buckets, Cost: cost, Count: count, Apart: true}
	d, err := s.Limiter.Take(context.Background(), request)
	require.NoError(t, err)
	s.check(t, request, d)
	least := count
	for i := range buckets {
		grant := d.Grant(i)
		require.GreaterOrEqual(t, grant.Granted, int64(0))
		require.LessOrEqual(t, grant.Granted, count)
		if s.Source != limit.SourceNone {
			require.Equal(t, s.Source, grant.Source)
		}
		least = min(least, grant.Granted)
	}
	require.Equal(t, least, d.Granted)
	return d
}

func grants(d limit.Decision) []int64 {
	all := make([]int64, 1+len(d.Rest))
	for i := range all {
		all[i] = d.Grant(i).Granted
	}
	return all
}

func givesApart(t *testing.T, s *subject) {
	a, b, c := s.bucket(t, "a", 10, slow), s.bucket(t, "b", 7, slow), s.bucket(t, "c", 1, slow)
	d := s.apart(t, 2, 4, a, b, c)
	require.Equal(t, []int64{4, 3, 0}, grants(d))
	for i, left := range []int64{2, 1, 1} {
		require.Equal(t, left, d.At(i).Remaining, i)
	}
	require.Zero(t, d.At(0).RetryAfter)
	require.Positive(t, d.At(1).RetryAfter)
	require.Equal(t, limit.Never, d.At(2).RetryAfter)
	empty := s.bucket(t, "empty", 2, slow)
	s.drain(t, empty)
	require.Equal(t, []int64{1, 0, 1}, grants(s.apart(t, 1, 1, c, empty, a)))
}

func refusesApart(t *testing.T, s *subject) {
	wide, narrow := s.bucket(t, "wide", 100, slow), s.bucket(t, "narrow", 1, slow)
	require.Equal(t, []int64{1, 1}, grants(s.apart(t, 1, 1, narrow, wide)))
	for n := int64(1); n < 10; n++ {
		d := s.apart(t, 1, 1, narrow, wide)
		require.Equal(t, []int64{0, 1}, grants(d))
		require.Equal(t, 99-n, d.At(1).Remaining)
		require.Zero(t, d.At(0).Remaining)
		require.Positive(t, d.At(0).RetryAfter)
		require.Positive(t, d.At(0).ResetAfter)
	}
	require.Equal(t, int64(90), s.look(t, wide).Remaining)
}

func looksApart(t *testing.T, s *subject) {
	a, b := s.bucket(t, "a", 3, slow), s.bucket(t, "b", 5, slow)
	s.drain(t, a)
	for range 3 {
		d := s.apart(t, 1, 0, a, b)
		require.Zero(t, d.At(0).Remaining)
		require.Equal(t, int64(5), d.At(1).Remaining)
	}
	require.Equal(t, int64(1), s.one(t, b).Granted)
	require.Equal(t, int64(4), s.look(t, b).Remaining)
}

func oneApart(t *testing.T, s *subject) {
	a := s.bucket(t, "a", 3, slow)
	d := s.apart(t, 2, 5, a)
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, int64(1), d.First.Remaining)
	require.Equal(t, int64(1), s.look(t, a).Remaining)
}
