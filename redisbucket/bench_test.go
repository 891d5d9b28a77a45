package redisbucket

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// BenchmarkTake measures decisions of one bucket against a local Redis.
func BenchmarkTake(b *testing.B) {
	l := started(b, Options{URL: servertest.Redis(b).URL()})
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		req := ask(ruleOf(b, algorithm, 1000, 1000))
		b.Run(algorithm.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Take(b.Context(), withTime(req)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		req := ask(rule(b, 1000, 1000))
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := l.Take(b.Context(), withTime(req)); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// plainScript is the token bucket as it is often written: no repair, no entries,
// a TTL written each time.
const plainScript = `
local held = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local capacity, refill = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens = math.min(capacity, (tonumber(held[1]) or capacity) + (now - (tonumber(held[2]) or now)) * refill / 1000)
local granted = tokens >= 1 and 1 or 0
tokens = tokens - granted
redis.call('HSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('PEXPIRE', KEYS[1], 2000)
return {granted, math.floor(tokens)}
`

// BenchmarkScript compares what our script costs Redis with the plain one, in
// µs per call from INFO commandstats, in the same run and on the same server.
func BenchmarkScript(b *testing.B) {
	server := servertest.Redis(b)
	client := server.Client(b)
	ours := redis.NewScript(onlyText(b))
	plain := redis.NewScript(plainScript)
	for name, run := range map[string]func() error{
		"plain": func() error {
			return plain.Run(b.Context(), client, []string{"plain"}, 1000, 1000).Err()
		},
		"granted": func() error {
			return ours.Run(b.Context(), client, []string{"granted"}, 1, 1, 1, 1, 1, 1_000_000, 1_000_000, 1000).Err()
		},
		"refused": func() error {
			return ours.Run(b.Context(), client, []string{"refused"}, 1, 1, 1, 1, 1, 1, 0.001, 1_000_000).Err()
		},
	} {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, run())
			require.NoError(b, client.ConfigResetStat(b.Context()).Err())
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(microsPerCall(b, client), "redis-µs/call")
		})
	}
}

func onlyText(b *testing.B) string {
	b.Helper()
	node, err := NewNode(Options{URL: "redis://127.0.0.1"})
	require.NoError(b, err)
	return node.script.Text
}

// withTime gives a request a new deadline.
func withTime(req limit.Request) limit.Request {
	req.Deadline = time.Now().Add(patience)
	return req
}

func microsPerCall(b *testing.B, client *redis.Client) float64 {
	b.Helper()
	text, err := client.Info(b.Context(), "commandstats").Result()
	require.NoError(b, err)
	_, rest, found := strings.Cut(text, "cmdstat_evalsha:")
	require.True(b, found)
	_, rest, _ = strings.Cut(rest, "usec_per_call=")
	number, _, _ := strings.Cut(rest, ",")
	micros, err := strconv.ParseFloat(number, 64)
	require.NoError(b, err)
	return micros
}
