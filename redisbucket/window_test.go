package redisbucket

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestA2OneTimestamp(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowLog, 5, 0.05)
	require.Equal(t, 5, passed(t, b, r, 6))
	require.Equal(t, int64(5), b.redis.ZCard(t.Context(), tokenKey+":log").Val())
	require.NoError(t, b.Reset(t.Context(), theKey))
	req := ask(r)
	req.Cost = 3
	d, err := b.Take(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, int64(2), d.First.Remaining)
	require.Equal(t, int64(3), b.redis.ZCard(t.Context(), tokenKey+":log").Val())
}

func TestA3Counter(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowCounter, 100, 100.0/60)
	key := tokenKey + ":win"
	require.NoError(t, b.redis.HSet(t.Context(), key, "start", b.now(t)-6000, "cur", 10, "prev", 50).Err())
	d := take(t, b, r)
	require.Equal(t, int64(1), d.Granted)
	require.InDelta(t, 44, d.First.Remaining, 1)
	b.age(t, key, "start", 3*time.Minute)
	require.Equal(t, int64(99), take(t, b, r).First.Remaining)

	one := ruleOf(t, limit.SlidingWindowCounter, 1, 0.1)
	require.NoError(t, b.Reset(t.Context(), theKey))
	require.Equal(t, 1, passed(t, b, one, 1))
	b.age(t, key, "start", time.Second)
	refused := take(t, b, one)
	require.Zero(t, refused.Granted)
	require.InDelta(t, 19_000, refused.First.RetryAfter.Milliseconds(), 1000)
	b.age(t, key, "start", 19*time.Second)
	require.Equal(t, 1, passed(t, b, one, 1))
}

// TestLogClockBack finds members of a time that has not come.
func TestLogClockBack(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowLog, 3, 0.3)
	key := tokenKey + ":log"
	ahead := float64((b.now(t) + time.Hour.Milliseconds()) * 1000)
	for i := range 3 {
		require.NoError(t, b.redis.ZAdd(t.Context(), key, redis.Z{Score: ahead, Member: i}).Err())
	}
	d := take(t, b, r)
	require.Zero(t, d.Granted)
	require.LessOrEqual(t, d.First.RetryAfter, 10*time.Second)
	require.Equal(t, int64(3), b.redis.ZCard(t.Context(), key).Val())
	newest := b.redis.ZRevRangeWithScores(t.Context(), key, 0, 0).Val()
	require.Less(t, newest[0].Score, ahead, "moved to now")
}

// TestW1LogTrims: a grant forgets at most twice what it adds and 16 tokens more,
// however many have left the window, and a repair moves at most 100.
func TestW1LogTrims(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowLog, 1000, 10)
	key := tokenKey + ":log"
	fill := func(at int64, members int) {
		for i := range members {
			require.NoError(t, b.redis.ZAdd(t.Context(), key, redis.Z{Score: float64(at), Member: i}).Err())
		}
	}
	fill((b.now(t)-time.Hour.Milliseconds())*1000, 200)
	require.Equal(t, int64(999), take(t, b, r).First.Remaining, "what has left the window does not count")
	require.Equal(t, int64(200-18+1), b.redis.ZCard(t.Context(), key).Val())
	req := ask(r)
	req.Cost = 40
	d, err := b.Take(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, int64(1), d.Granted)
	require.Equal(t, int64(200-18-96+1+40), b.redis.ZCard(t.Context(), key).Val())

	require.NoError(t, b.Reset(t.Context(), theKey))
	ahead := (b.now(t) + time.Hour.Milliseconds()) * 1000
	fill(ahead, 250)
	for _, left := range []int64{150, 50, 0} {
		d := take(t, b, r)
		require.Equal(t, int64(1), d.Granted)
		require.LessOrEqual(t, d.First.ResetAfter, 100*time.Second, "what is left counts as now")
		require.Equal(t, left, b.redis.ZCount(t.Context(), key, strconv.FormatInt(ahead, 10), "+inf").Val())
	}
	require.Equal(t, int64(1000-253), take(t, b, r).First.Remaining+1)
}
