package limittest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// mixedCases are about several algorithms at once.
func mixedCases() []testCase {
	return []testCase{
		{name: "all or nothing over algorithms (A4)", run: mixedAllOrNothing},
		{name: "the least over algorithms", run: mixedLeast},
		{name: "apart over algorithms (H6)", run: mixedApart},
		{name: "a changed algorithm starts anew (A10)", run: switches},
		{name: "reset forgets every algorithm", run: resetsAll},
	}
}

func (s *subject) under(t testing.TB, algorithm limit.Algorithm, route string, capacity int64) limit.Bucket {
	t.Helper()
	other := *s
	other.algorithm = algorithm
	return other.bucket(t, route, capacity, slow)
}

// mixedAllOrNothing has the narrow bucket under each algorithm in turn.
func mixedAllOrNothing(t *testing.T, s *subject) {
	for narrow := range s.Algorithms {
		var buckets []limit.Bucket
		for i, algorithm := range s.Algorithms {
			capacity := int64(100)
			if i == narrow {
				capacity = 1
			}
			buckets = append(buckets, s.under(t, algorithm, string(rune('a'+3*narrow+i)), capacity))
		}
		require.Equal(t, int64(1), s.one(t, buckets...).Granted)
		for range 49 {
			d := s.one(t, buckets...)
			require.Zero(t, d.Granted)
			require.Positive(t, d.At(narrow).RetryAfter)
		}
		for i, bucket := range buckets {
			require.Equal(t, bucket.Rule.Capacity-1, s.look(t, bucket).Remaining, i)
		}
	}
}

func mixedLeast(t *testing.T, s *subject) {
	var buckets []limit.Bucket
	for i, algorithm := range append(s.Algorithms, s.Algorithms...) {
		buckets = append(buckets, s.under(t, algorithm, string(rune('a'+i)), int64(7+i)))
	}
	d := s.take(t, 2, 9, buckets...)
	require.Equal(t, int64(3), d.Granted)
	for i := range buckets {
		require.Equal(t, int64(1+i), d.At(i).Remaining)
	}
	d = s.take(t, 8, 1, buckets...)
	require.Zero(t, d.Granted)
	require.Equal(t, limit.Never, d.At(0).RetryAfter)
	require.Positive(t, d.At(1).RetryAfter)
}

func mixedApart(t *testing.T, s *subject) {
	var buckets []limit.Bucket
	for i, algorithm := range append(s.Algorithms, s.Algorithms...) {
		buckets = append(buckets, s.under(t, algorithm, string(rune('a'+i)), int64(1+i)))
	}
	d := s.apart(t, 2, 9, buckets...)
	for i, granted := range grants(d) {
		require.Equal(t, int64((1+i)/2), granted, i)
		require.Equal(t, int64((1+i)%2), d.At(i).Remaining, i)
	}
}

func switches(t *testing.T, s *subject) {
	for left := int64(9); left >= 7; left-- {
		for _, algorithm := range s.Algorithms {
			d := s.one(t, s.under(t, algorithm, "a", 10))
			require.Equal(t, int64(1), d.Granted)
			require.Equal(t, left, d.First.Remaining, algorithm)
		}
	}
}

func resetsAll(t *testing.T, s *subject) {
	for _, algorithm := range s.Algorithms {
		s.drain(t, s.under(t, algorithm, "a", 3))
	}
	require.NoError(t, s.Limiter.Reset(context.Background(), s.under(t, 0, "a", 3).Key))
	for _, algorithm := range s.Algorithms {
		require.Equal(t, limit.State{Remaining: 3}, s.look(t, s.under(t, algorithm, "a", 3)), algorithm)
	}
}
