package localbucket

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
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

// TestSameAsTheScript runs random traces here and in the Redis script, whose clock
// is replaced by the trace's: every number of every answer must be the same, also
// where rules change and clocks are set back.
func TestSameAsTheScript(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := newTester()
		l.clock.Advance(t, 1_785_000_000*time.Second)
		keys := []string{fmt.Sprint("a", seed), fmt.Sprint("b", seed)}
		buckets := []limit.Bucket{randomBucket(t, random, "a"), randomBucket(t, random, "b")}
		for step := range 60 {
			if random.IntN(10) == 0 {
				buckets[0] = randomBucket(t, random, "a")
			}
			request := randomRequest(random, buckets)
			want := askScript(t, client, l.clock.Now(), keys[:len(request.Buckets)], request)
			got, err := l.Take(context.Background(), request)
			require.NoError(t, err)
			require.Equal(t, want, numbers(&got, len(request.Buckets)), "seed %d, step %d, %+v", seed, step, request)
			l.clock.Advance(t, randomPause(random, &buckets[0].Rule, got.First.RetryAfter))
		}
	}
}

// randomBucket has a window of 20 s or more, so that no key expires by the real
// clock in mid-trace.
func randomBucket(t *testing.T, random *rand.Rand, route string) limit.Bucket {
	t.Helper()
	capacity := int64(math.Pow(limit.MaxCapacity, random.Float64()))
	refill := float64(capacity) / (20 * math.Pow(1e6, random.Float64()))
	if random.IntN(2) == 0 { // fractions that come near whole tokens again
		refill = []float64{0.1, 0.3, 0.7, 1, 7, 1.0 / 3, 1.0 / 60}[random.IntN(7)]
		capacity = 140 + random.Int64N(100)
	}
	bucket := bucketOf(t, "t1", capacity, refill)
	bucket.Key.Route = route
	return bucket
}

func randomRequest(random *rand.Rand, buckets []limit.Bucket) limit.Request {
	buckets = buckets[:1+random.IntN(len(buckets))]
	capacity := buckets[0].Rule.Capacity
	return limit.Request{
		Buckets: buckets,
		Cost:    1 + int64(math.Pow(float64(capacity), random.Float64())*1.1-1),
		Count:   []int64{0, 1, 1, 1, 3, capacity}[random.IntN(6)],
	}
}

// randomPause is just the wait that was named or a millisecond less, the time of a
// few tokens or a window, or a clock that is set back.
func randomPause(random *rand.Rand, rule *limit.Rule, wait time.Duration) time.Duration {
	switch random.IntN(12) {
	case 0:
		return 0
	case 1:
		return -time.Duration(random.IntN(4000)) * time.Millisecond
	case 2:
		return time.Duration(random.Int64N(2*rule.WindowMillis)) * time.Millisecond
	case 3, 4, 5:
		return max(0, wait)
	case 6, 7:
		return max(0, wait-time.Millisecond)
	case 8:
		return 100 * time.Millisecond * time.Duration(random.IntN(100))
	default:
		return time.Duration(1+random.Int64N(1+int64(3000/rule.Refill))) * time.Millisecond
	}
}

// askScript asks the script at a time, and returns its integers.
func askScript(t *testing.T, client *redis.Client, now time.Time, keys []string, req limit.Request) []int64 {
	t.Helper()
	const clock = "call('TIME')"
	text := lua.Take().Text
	require.Equal(t, 1, strings.Count(text, clock))
	text = strings.Replace(text, clock, fmt.Sprintf("{%d, %d}", now.Unix(), now.Nanosecond()/1000), 1)
	arguments := []any{1, len(keys), req.Cost, req.Count}
	for _, bucket := range req.Buckets {
		rule := bucket.Rule
		refill := strconv.FormatFloat(rule.Refill, 'g', -1, 64)
		arguments = append(arguments, int(limit.TokenBucket), rule.Capacity, refill, rule.WindowMillis)
	}
	reply, err := client.Eval(context.Background(), text, keys, arguments...).Int64Slice()
	require.NoError(t, err)
	return reply
}

// numbers writes a decision as the script does.
func numbers(d *limit.Decision, buckets int) []int64 {
	all := []int64{d.Granted}
	for i := range buckets {
		state := d.At(i)
		retry := int64(-1)
		if state.RetryAfter != limit.Never {
			retry = state.RetryAfter.Milliseconds()
		}
		all = append(all, state.Remaining, retry, state.ResetAfter.Milliseconds())
	}
	return all
}
