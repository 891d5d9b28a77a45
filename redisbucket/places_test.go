package redisbucket

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/model"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// TestPlaces holds who may run at once over random traces to the model.
func TestPlaces(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	digest, err := client.ScriptLoad(t.Context(), timedScript(t)).Result()
	require.NoError(t, err)
	most := uint64(500)
	if servertest.Thorough(t, "10,000 traces of places instead of 500") {
		most = 10_000
	}
	for seed := range model.Traces(most) {
		replayPlaces(t, client, digest, seed)
	}
}

func replayPlaces(t *testing.T, client *redis.Client, digest string, seed uint64) {
	t.Helper()
	prefix := fmt.Sprintf("places-%d", seed)
	visits := model.Places(seed)
	decisions := script{client, digest}.ask(t, len(visits), func(i int, w *waiter) (micros int64) {
		v := &visits[i]
		if v.Leaves || v.Renewed != nil {
			s := limit.Settlement{Bucket: v.Bucket, Source: limit.SourceRedis, Renewed: v.Renewed}
			if v.Leaves {
				s.Taken = 1
			}
			w.askToSettle(prefix, &s)
		} else {
			w.ask(prefix, &limit.Request{Buckets: []limit.Bucket{v.Bucket}, Cost: 1, Count: 1})
		}
		return v.Micros
	})
	for i, d := range decisions {
		v := &visits[i]
		if v.Leaves || v.Renewed != nil {
			require.Zero(t, d.Granted)
			continue
		}
		v.Want.Source = limit.SourceRedis
		require.Equal(t, v.Want, d, "seed %d, step %d, %+v", seed, i, v.Bucket)
	}
}

// TestPlacesOfAWrongClock: a place that is held for longer than any is counts as one that
// was entered now, where it keeps somebody out.
func TestPlacesOfAWrongClock(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	rule, err := limit.NewPlaces(1)
	require.NoError(t, err)
	bucket := limit.Bucket{Key: limit.Key{Tenant: "t1", Route: "a"}, Rule: rule, Cost: 1, Place: limit.Place{Process: 1, Number: 1}}
	const key = "rl:{t1}:a:run"
	hour := time.Now().Add(time.Hour).UnixMilli()
	require.NoError(t, b.redis.ZAdd(t.Context(), key, redis.Z{Score: float64(hour), Member: "9:9"}).Err())
	d, err := b.Take(t.Context(), limit.Request{Buckets: []limit.Bucket{bucket}, Cost: 1, Count: 1})
	require.NoError(t, err)
	require.Zero(t, d.Granted)
	score, err := b.redis.ZScore(t.Context(), key, "9:9").Result()
	require.NoError(t, err)
	require.Less(t, time.Until(time.UnixMilli(int64(score))), 16*time.Second)
	require.Positive(t, b.redis.PTTL(t.Context(), key).Val())

	// Another type under the key is no place.
	require.NoError(t, b.redis.Set(t.Context(), key, "x", 0).Err())
	d, err = b.Take(t.Context(), limit.Request{Buckets: []limit.Bucket{bucket}, Cost: 1, Count: 1})
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Granted)
	require.EqualValues(t, 1, b.redis.ZCard(t.Context(), key).Val())
}
