package redisbucket

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// BenchmarkTake measures decisions of one bucket against a local Redis.
func BenchmarkTake(b *testing.B) {
	l := started(b, Options{URLs: []string{servertest.Redis(b).URL()}})
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

// scriptRun is a way of asking a script, again and again.
type scriptRun struct {
	name    string
	rule    limit.Rule
	command []any
	entries int
	micros  []float64 // per entry, one of each round
}

// BenchmarkScript compares what our script costs Redis with the plain one, in µs
// per entry from INFO commandstats, on the same server; and what a second bucket
// of an entry costs, of one alone. An iteration is a round, in which each has its
// turn. Take at least five.
func BenchmarkScript(b *testing.B) {
	client := servertest.Redis(b).Client(b)
	plain := plainRun(b, client)
	runs := []*scriptRun{plain}
	granted, refused := rule(b, 1_000_000, 1_000_000), rule(b, 1, 0.001)
	for _, entries := range []int{1, 32} {
		runs = append(runs, ourRun(b, client, "granted", granted, entries, 1), ourRun(b, client, "refused", refused, entries, 1))
	}
	both := make(map[*scriptRun]*scriptRun)
	for _, alone := range runs[1:3] {
		both[alone] = ourRun(b, client, alone.name, alone.rule, 1, 2)
		runs = append(runs, both[alone])
	}
	for b.Loop() {
		for _, r := range runs {
			r.round(b, client)
		}
	}
	b.ReportMetric(median(plain.micros), "plain-µs")
	for _, r := range runs[1:5] {
		b.ReportMetric(medianRatio(r.micros, plain.micros), r.name+"-of-plain")
	}
	for alone, pair := range both {
		b.ReportMetric(medianRatio(pair.micros, alone.micros)-1, alone.name+"-second-of-one")
	}
	b.ReportMetric(0, "ns/op")
}

// medianRatio is the median of what one run took of another's time in the same round.
func medianRatio(of, base []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range ratios {
		ratios[i] = of[i] / base[i]
	}
	return median(ratios)
}

func plainRun(b *testing.B, client *redis.Client) *scriptRun {
	b.Helper()
	digest, err := client.ScriptLoad(b.Context(), plainScript).Result()
	require.NoError(b, err)
	return &scriptRun{name: "plain", command: []any{"evalsha", digest, 1, "plain", 1000, 1000}, entries: 1}
}

// ourRun asks for a number of tenants under a rule, each for some buckets.
func ourRun(b *testing.B, client *redis.Client, name string, r limit.Rule, entries, buckets int) *scriptRun {
	b.Helper()
	script := lua.Take()
	digest, err := client.ScriptLoad(b.Context(), script.Text).Result()
	require.NoError(b, err)
	requests := make([]*limit.Request, entries)
	for i := range requests {
		req := limit.Request{Cost: 1, Count: 1}
		for k := range buckets {
			key := limit.Key{Tenant: fmt.Sprint(name, entries, "-", buckets, "-", i), Route: strconv.Itoa(k)}
			req.Buckets = append(req.Buckets, limit.Bucket{Key: key, Rule: r})
		}
		requests[i] = &req
	}
	command := batchOf("", requests...).command("evalsha", digest)
	return &scriptRun{name: name + "-" + strconv.Itoa(entries), rule: r, command: command, entries: entries}
}

// round asks a few thousand times.
func (r *scriptRun) round(b *testing.B, client *redis.Client) {
	b.Helper()
	ask := func() {
		pipe := client.Pipeline()
		for range 1 + 200/r.entries {
			pipe.Do(b.Context(), r.command...)
		}
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
	}
	ask()
	require.NoError(b, client.ConfigResetStat(b.Context()).Err())
	for range 10 {
		ask()
	}
	r.micros = append(r.micros, microsPerCall(b, client)/float64(r.entries))
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
