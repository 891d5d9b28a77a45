package redisbucket

import (
	"testing"
	"time"

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
	for _, key := range b.redis.Keys(t.Context(), "*").Val() {
		left := b.redis.PTTL(t.Context(), key).Val() - d
		if left <= 0 {
			require.NoError(t, b.redis.Del(t.Context(), key).Err())
			continue
		}
		require.NoError(t, b.redis.PExpire(t.Context(), key, left).Err())
		switch b.redis.Type(t.Context(), key).Val() {
		case "zset":
			b.advanceLog(t, key, d)
		case "hash":
			field := "ts"
			if b.redis.HExists(t.Context(), key, "start").Val() {
				field = "start"
			}
			b.age(t, key, field, d)
		}
	}
}

func (b *bench) advanceLog(t testing.TB, key string, d time.Duration) {
	t.Helper()
	members := b.redis.ZRangeWithScores(t.Context(), key, 0, -1).Val()
	for i := range members {
		members[i].Score -= float64(d.Microseconds())
	}
	require.NoError(t, b.redis.ZAdd(t.Context(), key, members...).Err())
}
