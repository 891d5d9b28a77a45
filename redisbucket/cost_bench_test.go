package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// BenchmarkCost is what a decision costs where callers do something else between
// two of them, as a gateway does: calls of Redis, and the processor's time here
// and in Redis. An iteration is 300 decisions of each caller. What the callers'
// own work costs, without a decision, is taken off.
func BenchmarkCost(b *testing.B) {
	server := servertest.Redis(b)
	client := server.Client(b)
	l := started(b, Options{URLs: []string{server.URL()}})
	const each = 300
	work := func() {
		for end := time.Now().Add(100 * time.Microsecond); time.Now().Before(end); {
			continue
		}
	}
	for _, c := range []struct {
		callers int
		settles bool // each decision is settled, as where an answer gives back
	}{{1, false}, {16, false}, {64, false}, {64, true}, {256, false}} {
		callers, name := c.callers, fmt.Sprintf("%d callers", c.callers)
		if c.settles {
			name += " that settle"
		}
		b.Run(name, func(b *testing.B) {
			run := func(decide bool) (here, there time.Duration, calls, failed int) {
				hereBefore, thereBefore, callsBefore := cpuHere(b), cpuThere(b, client), scriptCalls(l)
				var wait sync.WaitGroup
				var mu sync.Mutex
				for i := range callers {
					wait.Go(func() {
						bucket := []limit.Bucket{{Key: limit.Key{Tenant: "t" + strconv.Itoa(i), Route: "a"}, Rule: rule(b, 1_000_000, 1_000_000)}}
						lost := 0
						for range each {
							work()
							if !decide {
								continue
							}
							req := limit.Request{Buckets: bucket, Cost: 1, Count: 1, Deadline: time.Now().Add(40 * time.Millisecond)}
							if c.settles {
								bucket[0].Settles = true
							}
							sent := time.Now()
							if _, err := l.Take(context.Background(), req); err != nil {
								lost++
							} else if c.settles {
								l.Settle(limit.Settlement{Bucket: bucket[0], Source: limit.SourceRedis, Taken: 1, Granted: sent})
							}
						}
						mu.Lock()
						defer mu.Unlock()
						failed += lost
					})
				}
				wait.Wait()
				return cpuHere(b) - hereBefore, cpuThere(b, client) - thereBefore, scriptCalls(l) - callsBefore, failed
			}
			var here, there, calls, lost []float64
			n := float64(callers * each)
			for b.Loop() {
				bare, _, _, _ := run(false)
				with, redis, asked, failed := run(true)
				here = append(here, float64((with-bare).Nanoseconds())/1000/n)
				there = append(there, float64(redis.Nanoseconds())/1000/n)
				calls = append(calls, float64(asked)/n)
				lost = append(lost, 100*float64(failed)/n)
			}
			b.ReportMetric(median(here), "µs-here")
			b.ReportMetric(median(there), "µs-redis")
			b.ReportMetric(median(calls), "calls")
			b.ReportMetric(median(lost), "%-lost")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func scriptCalls(l *Limiter) (n int) {
	for _, calls := range l.client.Status().Nodes[0].Traffic.Calls {
		n += int(calls)
	}
	return n
}

func cpuHere(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func cpuThere(b *testing.B, client *redis.Client) (sum time.Duration) {
	b.Helper()
	info, err := client.InfoMap(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		require.NoError(b, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
