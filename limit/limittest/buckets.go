package limittest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// bucketCases are about which bucket is charged, and what a changed rule means.
func bucketCases() []testCase {
	return []testCase{
		{name: "all or nothing over several buckets (A4)", run: allOrNothing},
		{name: "several buckets grant what the least one can", run: leastOfAll},
		{name: "keys and shards are independent", run: independent},
		{name: "capacity lowered and raised (A11)", only: limit.TokenBucket, run: changesCapacity},
		{name: "reset", run: resets},
	}
}

func allOrNothing(t *testing.T, s *subject) {
	wide, narrow := s.bucket(t, "wide", 100, slow), s.bucket(t, "narrow", 1, slow)
	require.Equal(t, int64(1), s.one(t, wide, narrow).Granted)
	for range 49 {
		d := s.one(t, wide, narrow)
		require.Zero(t, d.Granted)
		require.Equal(t, int64(99), d.At(0).Remaining)
		require.Zero(t, d.At(0).RetryAfter, "the wide bucket could give")
		require.Zero(t, d.At(1).Remaining)
		require.Positive(t, d.At(1).RetryAfter)
	}
	require.Equal(t, int64(99), s.look(t, wide).Remaining)
}

func leastOfAll(t *testing.T, s *subject) {
	a, b, c := s.bucket(t, "a", 10, slow), s.bucket(t, "b", 7, slow), s.bucket(t, "c", 20, slow)
	d := s.take(t, 2, 9, a, b, c)
	require.Equal(t, int64(3), d.Granted)
	require.Equal(t, int64(4), d.At(0).Remaining)
	require.Equal(t, int64(1), d.At(1).Remaining)
	require.Equal(t, int64(14), d.At(2).Remaining)

	require.Zero(t, s.take(t, 1, 0, a, b, c).Granted)
	tooMuch := s.take(t, 8, 1, c, b)
	require.Zero(t, tooMuch.Granted)
	require.Zero(t, tooMuch.At(0).RetryAfter)
	require.Equal(t, limit.Never, tooMuch.At(1).RetryAfter)
}

func independent(t *testing.T, s *subject) {
	whole := s.bucket(t, "a", 1, slow)
	others := []limit.Bucket{whole, whole, whole, whole}
	others[0].Key.Tenant = "t2"
	others[1].Key.Route = "b"
	others[2].Key.Shard = 1
	others[3].Key.Shard = 2
	require.Equal(t, int64(1), s.one(t, whole).Granted)
	for _, other := range others {
		require.Equal(t, int64(1), s.one(t, other).Granted, other.Key)
	}
	for _, bucket := range append(others, whole) {
		require.Zero(t, s.one(t, bucket).Granted, bucket.Key)
	}
}

func changesCapacity(t *testing.T, s *subject) {
	require.Equal(t, int64(99), s.one(t, s.bucket(t, "a", 100, slow)).First.Remaining)
	lowered := s.bucket(t, "a", 10, slow)
	for left := int64(9); left >= 0; left-- {
		d := s.one(t, lowered)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, left, d.First.Remaining)
	}
	for range 2 {
		require.Zero(t, s.one(t, lowered).Granted)
	}
	require.Zero(t, s.one(t, s.bucket(t, "a", 50, slow)).Granted, "a raised capacity gives no tokens")
}

func resets(t *testing.T, s *subject) {
	a, b := s.bucket(t, "a", 3, slow), s.bucket(t, "b", 3, slow)
	require.NoError(t, s.Limiter.Reset(context.Background(), a.Key), "nothing is there yet")
	s.drain(t, a)
	s.drain(t, b)
	require.NoError(t, s.Limiter.Reset(context.Background(), a.Key))
	require.Equal(t, limit.State{Remaining: 3}, s.look(t, a))
	require.Equal(t, int64(3), s.take(t, 1, 9, a).Granted)
	require.Zero(t, s.one(t, b).Granted, "only the bucket that was named is reset")
}
