package redisbucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// benchTenants are how many tenants callers ask for in turn.
const benchTenants = 1000

// oneByOneScript is a token bucket as a well-known proxy has it, written anew
// from its description: the whole hash is read, the caller tells the time, and
// every call writes and renews the expiry.
const oneByOneScript = `
local rate, burst, ttl, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held = redis.call('HGETALL', KEYS[1])
local tokens, last = burst, now
for i = 1, #held, 2 do
  if held[i] == 'tokens' then tokens = tonumber(held[i + 1]) end
  if held[i] == 'last' then last = tonumber(held[i + 1]) end
end
tokens = math.min(burst, tokens + math.max(0, now - last) * rate / 1000000) - 1
local wait = 0
if tokens < 0 then wait = -tokens * 1000000 / rate end
local ok = tokens >= 0
if not ok then tokens = tokens + 1 end
redis.call('HSET', KEYS[1], 'last', now, 'tokens', tokens)
redis.call('EXPIRE', KEYS[1], ttl)
return { tostring(ok), tostring(wait), tostring(tokens) }
`

// oneByOne is the client of that proxy: a pool, and a call for each decision.
func oneByOne(b *testing.B, addr string) func(tenant int) error {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	script := redis.NewScript(oneByOneScript)
	return func(tenant int) error {
		key := "rate:t" + strconv.Itoa(tenant)
		return script.Run(context.Background(), client, []string{key}, 1000, 1000, 2, time.Now().UnixMicro()).Err()
	}
}

// ours decides with a Limiter, with a timeout that is not what is measured.
func ours(b *testing.B, l *Limiter) func(tenant int) error {
	b.Helper()
	buckets := make([][]limit.Bucket, benchTenants)
	for i := range buckets {
		buckets[i] = []limit.Bucket{{Key: limit.Key{Tenant: "t" + strconv.Itoa(i), Route: "a"}, Rule: rule(b, 1000, 1000)}}
	}
	return func(tenant int) error {
		deadline := time.Now().Add(time.Second)
		_, err := l.Take(context.Background(), limit.Request{Buckets: buckets[tenant], Cost: 1, Count: 1, Deadline: deadline})
		return err
	}
}

// perSecond is how many decisions a number of callers gets in a second, each
// asking again when it has its answer.
func perSecond(b *testing.B, callers int, decide func(tenant int) error) float64 {
	b.Helper()
	var count, failed atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	until := began.Add(300 * time.Millisecond)
	for i := range callers {
		wait.Go(func() {
			for tenant := i; time.Now().Before(until); tenant += 7 {
				if decide(tenant%benchTenants) != nil {
					failed.Add(1)
				}
				count.Add(1)
			}
		})
	}
	wait.Wait()
	require.Zero(b, failed.Load())
	return float64(count.Load()) / time.Since(began).Seconds()
}

// BenchmarkClient compares decisions per second with those of one call for each,
// on the same Redis, in turns: an iteration is a turn of each. Take at least five.
func BenchmarkClient(b *testing.B) {
	server := servertest.Redis(b)
	l := started(b, Options{URLs: []string{server.URL()}})
	batching, single := ours(b, l), oneByOne(b, server.Addr)
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			perSecond(b, callers, batching)
			perSecond(b, callers, single)
			var rates, ratios []float64
			for b.Loop() {
				rate := perSecond(b, callers, batching)
				rates = append(rates, rate)
				ratios = append(ratios, rate/perSecond(b, callers, single))
			}
			b.ReportMetric(median(rates), "decisions/s")
			b.ReportMetric(median(ratios), "of-one-by-one")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLatency is what a decision takes at a fixed load, in µs, next to a PING
// that goes the way of most clients, which tells how quiet the machine is. An
// iteration is a second of each; what is told is the median second.
func BenchmarkLatency(b *testing.B) {
	server := servertest.Redis(b)
	client := server.Client(b)
	ping := func(int) error { return client.Ping(context.Background()).Err() }
	decide := ours(b, started(b, Options{URLs: []string{server.URL()}}))
	for _, perSecond := range []int{2500, 20_000} {
		b.Run(fmt.Sprintf("%d per second", perSecond), func(b *testing.B) {
			figures := map[string][]float64{}
			note := func(name string, took []time.Duration) {
				slices.Sort(took)
				for _, percent := range []int{50, 99} {
					at := took[(len(took)-1)*percent/100]
					name := fmt.Sprintf("%sp%d-µs", name, percent)
					figures[name] = append(figures[name], float64(at.Microseconds()))
				}
			}
			for b.Loop() {
				note("", offered(b, perSecond, decide))
				note("ping-", offered(b, perSecond, ping))
			}
			for name, values := range figures {
				b.ReportMetric(median(values), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// offered asks so often for a second, whatever the answers take, and returns
// what each took.
func offered(b *testing.B, perSecond int, decide func(tenant int) error) []time.Duration {
	b.Helper()
	const callers = 200
	took := make([][]time.Duration, callers)
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			pause := float64(callers) / float64(perSecond) * float64(time.Second)
			next := time.Now()
			for end := next.Add(time.Second); ; {
				next = next.Add(time.Duration(random.ExpFloat64() * pause))
				if next.After(end) {
					return
				}
				time.Sleep(time.Until(next))
				began := time.Now()
				_ = decide(random.IntN(benchTenants))
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wait.Wait()
	return slices.Concat(took...)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
