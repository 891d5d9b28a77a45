package limittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// settlementCases are about what a unit cost in the end, costs of a bucket's own, and
// bans.
func settlementCases() []testCase {
	return []testCase{
		{name: "takes more in the end", not: limit.SlidingWindowLog, run: settlesMore},
		{name: "gives back in the end", run: settlesLess},
		{name: "gives back no more than it took", run: settlesToFull},
		{name: "settles into debt and cuts", not: limit.SlidingWindowLog, run: settlesIntoDebt},
		{name: "takes another cost of each bucket", run: costsOfTheirOwn},
		{name: "bans whoever is refused", bans: true, run: bansTheRefused},
		{name: "bans nobody for another bucket", run: bansNobodyElse},
		{name: "bans by what was settled", bans: true, run: bansBySettlements},
		{name: "a reset ends a ban", bans: true, run: resetEndsBan},
	}
}

// settle settles one unit that was granted now, and returns what became of it.
func (s *subject) settle(t testing.TB, bucket limit.Bucket, source limit.Source, taken, spent int64) limit.Settled {
	t.Helper()
	ended := make(chan limit.Settled, 1)
	bucket.Cost = max(1, bucket.Cost)
	s.Limiter.Settle(limit.Settlement{
		Bucket: bucket, Source: source, Taken: taken, Spent: spent, Granted: time.Now(),
		Ended: func(with limit.Settled) { ended <- with },
	})
	select {
	case with := <-ended:
		require.Empty(t, with.Lost)
		return with
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing became of the settlement")
		return limit.Settled{}
	}
}

// settling is a bucket whose requests are settled.
func (s *subject) settling(t testing.TB, capacity int64) limit.Bucket {
	t.Helper()
	b := s.bucket(t, "settles", capacity, 0.001)
	b.Settles = true
	return b
}

func settlesMore(t *testing.T, s *subject) {
	b := s.settling(t, 10)
	d := s.take(t, 2, 1, b)
	require.Equal(t, int64(8), d.First.Remaining)
	require.Zero(t, s.settle(t, b, d.Source, 2, 5).Cut)
	require.Equal(t, int64(5), s.look(t, b).Remaining)
}

func settlesLess(t *testing.T, s *subject) {
	b := s.settling(t, 10)
	s.take(t, 3, 1, b)
	d := s.take(t, 4, 1, b)
	require.Equal(t, int64(3), d.First.Remaining)
	require.Zero(t, s.settle(t, b, d.Source, 4, 1).Cut)
	require.Equal(t, int64(6), s.look(t, b).Remaining)
	s.settle(t, b, d.Source, 3, 0)
	require.Equal(t, int64(9), s.look(t, b).Remaining)
}

func settlesToFull(t *testing.T, s *subject) {
	b := s.settling(t, 5)
	d := s.take(t, 1, 1, b)
	s.settle(t, b, d.Source, 5, 0)
	require.Equal(t, int64(5), s.look(t, b).Remaining)
	s.drain(t, b)
	require.Zero(t, s.one(t, b).Granted)
}

func settlesIntoDebt(t *testing.T, s *subject) {
	b := s.settling(t, 10)
	d := s.take(t, 1, 1, b)
	require.Equal(t, int64(5), s.settle(t, b, d.Source, 1, 25).Cut, "a debt has room for the capacity")
	state := s.look(t, b)
	require.Zero(t, state.Remaining)
	require.Greater(t, state.ResetAfter, 10_000*time.Second, "a debt takes more than a window")
	refused := s.one(t, b)
	require.Zero(t, refused.Granted)
	require.Positive(t, refused.First.RetryAfter)
	s.settle(t, b, d.Source, 15, 0)
	require.Equal(t, int64(5), s.look(t, b).Remaining)
}

func costsOfTheirOwn(t *testing.T, s *subject) {
	requests, tokens := s.bucket(t, "requests", 3, 0.001), s.bucket(t, "tokens", 100, 0.001)
	tokens.Cost = 40
	for _, want := range []struct{ granted, requests, tokens int64 }{{1, 2, 60}, {1, 1, 20}, {0, 1, 20}} {
		d := s.take(t, 1, 1, requests, tokens)
		require.Equal(t, want.granted, d.Granted)
		require.Equal(t, want.requests, d.At(0).Remaining)
		require.Equal(t, want.tokens, d.At(1).Remaining)
	}
}

func bansTheRefused(t *testing.T, s *subject) {
	b := s.bucket(t, "bans", 1, 0.1)
	b.Ban = time.Hour
	d := s.one(t, b)
	require.Equal(t, int64(1), d.Granted)
	require.Zero(t, d.First.Banned)
	for range 3 {
		d = s.one(t, b)
		require.Zero(t, d.Granted)
		require.InDelta(t, time.Hour, d.First.Banned, float64(time.Minute))
		require.GreaterOrEqual(t, d.First.RetryAfter, d.First.Banned)
	}
	other := s.bucket(t, "another", 1, 0.1)
	require.Equal(t, int64(1), s.one(t, other).Granted, "of that route alone")
	require.Positive(t, s.look(t, b).Banned)
}

func bansNobodyElse(t *testing.T, s *subject) {
	b, empty := s.bucket(t, "bans", 5, 0.001), s.bucket(t, "empty", 1, 0.001)
	b.Ban = time.Hour
	require.Equal(t, int64(1), s.one(t, empty).Granted)
	require.Zero(t, s.one(t, b, empty).Granted)
	require.Zero(t, s.take(t, 6, 1, b).Granted, "more than the capacity")
	require.Equal(t, int64(5), s.look(t, b).Remaining)
	d := s.one(t, b)
	require.Equal(t, int64(1), d.Granted)
	require.Zero(t, d.First.Banned)
}

func bansBySettlements(t *testing.T, s *subject) {
	b := s.settling(t, 3)
	b.Ban = time.Hour
	var d limit.Decision
	for range 3 {
		d = s.one(t, b)
		require.Equal(t, int64(1), d.Granted)
	}
	refused := s.one(t, b)
	require.Zero(t, refused.Granted)
	require.Zero(t, refused.First.Banned, "requests under way ban nobody")
	require.LessOrEqual(t, refused.First.RetryAfter, time.Second)
	require.Zero(t, s.settle(t, b, d.Source, 1, 1).Banned)
	require.Zero(t, s.settle(t, b, d.Source, 1, 0).Banned)
	require.Zero(t, s.settle(t, b, d.Source, 1, 1).Banned)
	last := s.one(t, b)
	require.Equal(t, int64(1), last.Granted)
	require.InDelta(t, time.Hour, s.settle(t, b, d.Source, 1, 1).Banned, float64(time.Minute))
	refused = s.one(t, b)
	require.Zero(t, refused.Granted)
	require.Positive(t, refused.First.Banned)
	require.Zero(t, s.settle(t, b, d.Source, 0, 1).Banned, "it is banned already")
}

func resetEndsBan(t *testing.T, s *subject) {
	b := s.bucket(t, "bans", 1, 0.001)
	b.Ban = time.Hour
	s.one(t, b)
	require.Positive(t, s.one(t, b).First.Banned)
	require.NoError(t, s.Limiter.Reset(t.Context(), b.Key))
	d := s.one(t, b)
	require.Equal(t, int64(1), d.Granted)
	require.Zero(t, d.First.Banned)
}
