package limittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// placeCases are about how many requests run at once.
func placeCases() []testCase {
	return []testCase{
		{name: "lets as many run as there are places", only: limit.TokenBucket, run: placesHeld},
		{name: "gives a place back by its name", only: limit.TokenBucket, run: placesByName},
		{name: "takes a place and a token or neither", run: placesAndTokens},
		{name: "a look takes no place", only: limit.TokenBucket, run: placesLookedAt},
		{name: "renewed places are held above the limit", only: limit.TokenBucket, run: placesRenewed},
		{name: "fewer places let those run who do", only: limit.TokenBucket, run: placesLowered},
	}
}

// places is the bucket of n places on a route, of which the request asks for one.
func places(t testing.TB, n, number int64) limit.Bucket {
	t.Helper()
	rule, err := limit.NewPlaces(n)
	require.NoError(t, err)
	return limit.Bucket{
		Key: limit.Key{Tenant: "t1", Route: "runs"}, Rule: rule, Cost: 1, Place: limit.Place{Process: 77, Number: number},
	}
}

// leave gives a place back.
func (s *subject) leave(t testing.TB, b limit.Bucket, source limit.Source) {
	t.Helper()
	require.Zero(t, s.settle(t, b, source, 1, 0))
}

func placesHeld(t *testing.T, s *subject) {
	for number := range int64(3) {
		d := s.one(t, places(t, 3, number+1))
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, 2-number, d.First.Remaining)
		require.Equal(t, number == 2, d.First.RetryAfter > 0)
	}
	for range 2 {
		d := s.one(t, places(t, 3, 4))
		require.Zero(t, d.Granted)
		require.Equal(t, limit.State{RetryAfter: time.Second, ResetAfter: time.Second}, d.First)
	}
}

func placesByName(t *testing.T, s *subject) {
	d := s.one(t, places(t, 2, 1))
	s.one(t, places(t, 2, 2))
	s.leave(t, places(t, 2, 3), d.Source) // which nobody holds
	require.Zero(t, s.one(t, places(t, 2, 3)).Granted)
	for range 2 { // the second time nobody holds it
		s.leave(t, places(t, 2, 1), d.Source)
	}
	require.Equal(t, int64(1), s.one(t, places(t, 2, 3)).Granted)
	require.Zero(t, s.one(t, places(t, 2, 4)).Granted)
}

func placesAndTokens(t *testing.T, s *subject) {
	b := s.bucket(t, "runs", 3, 0.001)
	d := s.one(t, b, places(t, 2, 1))
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, int64(2), d.At(0).Remaining)
	require.Equal(t, int64(1), d.At(1).Remaining)
	require.Equal(t, int64(1), s.one(t, places(t, 2, 2), b).Granted)
	refused := s.one(t, b, places(t, 2, 3))
	require.Zero(t, refused.Granted)
	require.Zero(t, refused.At(0).RetryAfter, "the token is there")
	require.Equal(t, time.Second, refused.At(1).RetryAfter)
	require.Equal(t, int64(1), s.look(t, b).Remaining, "and stays there")
	s.leave(t, places(t, 2, 1), d.Source)
	require.Zero(t, s.take(t, 2, 1, b, places(t, 2, 3)).Granted)
	require.Equal(t, int64(1), s.look(t, places(t, 2, 4)).Remaining, "who is refused holds no place")
}

func placesLookedAt(t *testing.T, s *subject) {
	require.Equal(t, int64(1), s.look(t, places(t, 1, 1)).Remaining)
	require.Equal(t, int64(1), s.one(t, places(t, 1, 1)).Granted)
	require.Equal(t, time.Second, s.look(t, places(t, 1, 2)).RetryAfter)
}

func placesRenewed(t *testing.T, s *subject) {
	d := s.one(t, places(t, 2, 1))
	b := places(t, 2, 1)
	ended := make(chan limit.Settled, 1)
	s.Limiter.Settle(limit.Settlement{
		Bucket: b, Source: d.Source, Granted: time.Now(), Renewed: []int64{1, 5, 6, 7},
		Ended: func(with limit.Settled) { ended <- with },
	})
	require.Zero(t, <-ended)
	for i, number := range []int64{1, 5, 6, 7} {
		state := s.look(t, places(t, 4, 9))
		require.Equal(t, int64(i), state.Remaining)
		s.leave(t, places(t, 4, number), d.Source)
	}
	require.Equal(t, limit.State{Remaining: 4}, s.look(t, places(t, 4, 9)))
}

func placesLowered(t *testing.T, s *subject) {
	var d limit.Decision
	for number := range int64(4) {
		d = s.one(t, places(t, 4, number+1))
		require.Equal(t, int64(1), d.Granted)
	}
	require.Zero(t, s.one(t, places(t, 2, 9)).Granted)
	s.leave(t, places(t, 2, 1), d.Source)
	s.leave(t, places(t, 2, 2), d.Source)
	require.Zero(t, s.one(t, places(t, 2, 9)).Granted)
	s.leave(t, places(t, 2, 3), d.Source)
	require.Equal(t, int64(1), s.one(t, places(t, 2, 9)).Granted)
}
