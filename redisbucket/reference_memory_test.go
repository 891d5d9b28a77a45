package redisbucket

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// BenchmarkMemory measures what a guest takes in Redis, from used_memory of INFO
// before and after. Run it with the number of guests, as in -benchtime 100000x.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		algorithm limit.Algorithm
		requests  int // of one guest
	}{
		{limit.TokenBucket, 1},
		{limit.SlidingWindowCounter, 1},
		{limit.SlidingWindowLog, 1},
		{limit.SlidingWindowLog, 10},
		{limit.SlidingWindowLog, 100},
		{limit.SlidingWindowLog, 1000},
	} {
		b.Run(fmt.Sprintf("%s/requests=%d", c.algorithm, c.requests), func(b *testing.B) {
			server := servertest.Redis(b)
			before := usedMemory(b, server.Client(b))
			meetGuests(b, server.Client(b), ruleOf(b, c.algorithm, 1000, 1000.0/3600), c.requests)
			after := usedMemory(b, server.Client(b))
			b.ReportMetric(float64(before), "B-before")
			b.ReportMetric(float64(after), "B-after")
			b.ReportMetric(float64(after-before)/float64(b.N), "B/guest")
		})
	}
}

// meetGuests asks the script for b.N guests, each of whose requests comes at an
// instant of its own.
func meetGuests(b *testing.B, client *redis.Client, r limit.Rule, requests int) {
	b.Helper()
	digest, err := client.ScriptLoad(b.Context(), lua.Take().Text).Result()
	require.NoError(b, err)
	pipe := client.Pipeline()
	send := func() {
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
	}
	for guest := range b.N {
		key := limit.Key{Tenant: fmt.Sprintf("~ip-%x", sha256.Sum256([]byte(strconv.Itoa(guest)))), Route: "create-order"}
		for range requests {
			batch := batchOf(DefaultPrefix, &limit.Request{Buckets: []limit.Bucket{{Key: key, Rule: r}}, Cost: 1, Count: 1})
			pipe.Do(b.Context(), batch.command("evalsha", digest)...)
			if pipe.Len() == 1000 {
				send()
			}
		}
	}
	send()
	require.Equal(b, int64(b.N), client.DBSize(b.Context()).Val())
	require.NoError(b, client.Close())
}

func usedMemory(b *testing.B, client *redis.Client) int64 {
	b.Helper()
	text, err := client.Info(b.Context(), "memory").Result()
	require.NoError(b, err)
	_, rest, found := strings.Cut(text, "used_memory:")
	require.True(b, found)
	number, _, _ := strings.Cut(rest, "\r")
	return mustInt(b, number)
}
