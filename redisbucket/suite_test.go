package redisbucket

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

// TestLimiter holds the Limiter to the suite that every Limiter passes.
func TestLimiter(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	limittest.Run(t, func(t *testing.T) limittest.Fixture {
		require.NoError(t, b.redis.FlushDB(t.Context()).Err())
		return limittest.Fixture{
			Limiter: b, Advance: b.advance, Source: limit.SourceRedis,
			Algorithms: limittest.AllAlgorithms(),
		}
	})
}

// advance makes d pass for every key: what is stored becomes older, and its TTL
// shorter.
func (b *bench) advance(t testing.TB, d time.Duration) {
	t.Helper()
	advance(t, b.redis, d)
}

func advance(t testing.TB, client *redis.Client, d time.Duration) {
	t.Helper()
	for _, key := range client.Keys(t.Context(), "*").Val() {
		left := client.PTTL(t.Context(), key).Val() - d
		if left <= 0 {
			require.NoError(t, client.Del(t.Context(), key).Err())
			continue
		}
		require.NoError(t, client.PExpire(t.Context(), key, left).Err())
		switch client.Type(t.Context(), key).Val() {
		case "zset":
			advanceLog(t, client, key, d)
		case "hash":
			field := "ts"
			if client.HExists(t.Context(), key, "start").Val() {
				field = "start"
			}
			age(t, client, key, field, d)
		}
	}
}

func advanceLog(t testing.TB, client *redis.Client, key string, d time.Duration) {
	t.Helper()
	members := client.ZRangeWithScores(t.Context(), key, 0, -1).Val()
	for i := range members {
		members[i].Score -= float64(d.Microseconds())
	}
	require.NoError(t, client.ZAdd(t.Context(), key, members...).Err())
}
