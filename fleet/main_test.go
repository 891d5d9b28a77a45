package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client prints of each connection that is cut
	goleak.VerifyTestMain(m)
}

// started is a client of a Redis that has connected.
func started(t testing.TB, urls ...string) *redisbucket.Client {
	t.Helper()
	client, err := redisbucket.NewClient(redisbucket.Options{URLs: urls, Breaker: redisbucket.Breaker{Open: 100 * time.Millisecond}})
	require.NoError(t, err)
	stop := client.Start(nil)
	t.Cleanup(func() {
		stop()
		require.NoError(t, client.Destruct())
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client.Warm(ctx)
	return client
}

// take asks for one unit of a bucket in Redis.
func take(t testing.TB, l limit.Limiter) {
	t.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: 1000, Refill: 0.001, Algorithm: limit.TokenBucket})
	require.NoError(t, err)
	d, err := l.Take(t.Context(), limit.Request{
		Buckets: []limit.Bucket{{Key: limit.Key{Tenant: "t1", Route: "a"}, Rule: rule}}, Cost: 1, Count: 1,
		Deadline: time.Now().Add(250 * time.Millisecond),
	})
	require.NoError(t, err)
	require.Equal(t, limit.SourceRedis, d.Source)
}
