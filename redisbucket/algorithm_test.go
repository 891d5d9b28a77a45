package redisbucket

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

const tokenKey = "rl:{t1}:a"

// write stores a token bucket that held tokens at a time ahead of Redis' clock.
func (b *bench) write(t testing.TB, tokens any, ahead time.Duration) {
	t.Helper()
	require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", tokens, "ts", b.now(t)+ahead.Milliseconds()).Err())
}

// TestA1Polling polls faster than the bucket refills: fractions must add up.
func TestA1Polling(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate   float64
		step   time.Duration
		checks int
		least  int
	}{
		"each 100 ms for 9.95 s at 1/s": {1, 100 * time.Millisecond, 100, 9},
		"each second for 60 s at 0.1/s": {0.1, time.Second, 60, 6},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onRedis(t)
			r := rule(t, 1, test.rate)
			granted, began := 0, time.Now()
			for range test.checks {
				granted += passed(t, b, r, 1)
				b.age(t, tokenKey, "ts", test.step)
			}
			// What the test takes by itself refills, too: 10 and 6 where that is little.
			span := time.Duration(test.checks-1)*test.step + time.Since(began)
			require.GreaterOrEqual(t, granted, test.least)
			require.LessOrEqual(t, granted, 1+int(test.rate*span.Seconds()))
		})
	}
}

// TestA4DeniedCostsNothing asks for two buckets at once, of which one is small.
func TestA4DeniedCostsNothing(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	wide := limit.Bucket{Key: limit.Key{Tenant: "t1", Route: "wide"}, Rule: rule(t, 100, 0.001)}
	narrow := limit.Bucket{Key: limit.Key{Tenant: "t1", Route: "narrow"}, Rule: rule(t, 1, 0.001)}
	granted := int64(0)
	for range 50 {
		req := limit.Request{Buckets: []limit.Bucket{wide, narrow}, Cost: 1, Count: 1, Deadline: time.Now().Add(patience)}
		d, err := b.Take(t.Context(), req)
		require.NoError(t, err)
		granted += d.Granted
		require.Equal(t, int64(99), d.At(0).Remaining)
		require.Zero(t, d.At(1).Remaining)
	}
	require.Equal(t, int64(1), granted)
	look := limit.Request{Buckets: []limit.Bucket{wide}, Cost: 1, Deadline: time.Now().Add(patience)}
	d, err := b.Take(t.Context(), look)
	require.NoError(t, err)
	require.Equal(t, int64(99), d.First.Remaining)
}

func TestA5TTL(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	slow := rule(t, 1, 0.1)
	take(t, b, slow)
	b.age(t, tokenKey, "ts", 1500*time.Millisecond)
	d := take(t, b, slow)
	require.Zero(t, d.Granted)
	require.Equal(t, int64(9), int64(math.Ceil(d.First.RetryAfter.Seconds())))
	require.NoError(t, b.Reset(t.Context(), theKey))
	require.Equal(t, 100, passed(t, b, rule(t, 100, 0.001), 101))
	require.GreaterOrEqual(t, b.redis.PTTL(t.Context(), tokenKey).Val().Milliseconds(), int64(99_990_000))

	require.NoError(t, b.redis.Persist(t.Context(), tokenKey).Err())
	require.Zero(t, take(t, b, rule(t, 100, 0.001)).Granted)
	require.Positive(t, b.redis.PTTL(t.Context(), tokenKey).Val(), "a refusal gives a key without TTL one")
}

// TestA6ClockBack rewrites the stamp to what a clock that was set back finds.
func TestA6ClockBack(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := rule(t, 10, 1)
	tests := []struct {
		name  string
		ahead time.Duration
		asked int
		pass  int
		wait  time.Duration // of the last answer, rounded up to seconds
	}{
		{"one second back", time.Second, 1, 0, 2 * time.Second},
		{"half a second forward", -500 * time.Millisecond, 1, 0, time.Second},
		{"five seconds forward", -5 * time.Second, 10, 5, time.Second},
		{"ten seconds back", 10 * time.Second, 1, 0, time.Second},
		{"one hour back", time.Hour, 1, 0, time.Second},
	}
	for _, test := range tests {
		b.write(t, 0, test.ahead)
		require.Equal(t, test.pass, passed(t, b, r, test.asked), test.name)
		wait := take(t, b, r).First.RetryAfter
		require.Equal(t, int(test.wait.Seconds()), int(math.Ceil(wait.Seconds())), test.name)
	}
	b.write(t, 0, 10*time.Second)
	before := b.now(t)
	take(t, b, r)
	stamp, err := b.redis.HGet(t.Context(), tokenKey, "ts").Int64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, stamp, before, "a refusal repairs a stamp far ahead")
	require.LessOrEqual(t, stamp, b.now(t))
	b.age(t, tokenKey, "ts", 3*time.Second)
	require.Equal(t, 3, passed(t, b, r, 10))
	b.write(t, 0, time.Hour)
	take(t, b, r)
	b.age(t, tokenKey, "ts", time.Second)
	require.Equal(t, 1, passed(t, b, r, 1))
}

func TestA7Digits(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	take(t, b, rule(t, 1_000_000, 1_000_000))
	stored := b.redis.HGetAll(t.Context(), tokenKey).Val()
	require.Equal(t, "999999", stored["tokens"])
	require.Len(t, stored["ts"], 13)
	require.NotContains(t, stored["ts"], "e")
	require.InDelta(t, b.now(t), mustInt(t, stored["ts"]), 10_000)

	// The microseconds of TIME have no leading zeros: glued to the seconds they
	// would be another time.
	for algorithm, field := range map[limit.Algorithm]string{limit.TokenBucket: "ts", limit.SlidingWindowCounter: "start"} {
		r := ruleOf(t, algorithm, 10, 0.001)
		require.NoError(t, b.Reset(t.Context(), theKey))
		b.ask(t, question{at: time.Unix(1_785_000_000, 5000)}, ask(r))
		require.Equal(t, "1785000000000", b.redis.HGet(t.Context(), b.RedisKey(theKey, algorithm), field).Val())
	}
	require.NoError(t, b.Reset(t.Context(), theKey))
	b.ask(t, question{at: time.Unix(1_785_000_000, 5000)}, ask(ruleOf(t, limit.SlidingWindowLog, 10, 0.001)))
	logged := b.redis.ZRangeWithScores(t.Context(), b.RedisKey(theKey, limit.SlidingWindowLog), 0, -1).Val()
	require.Len(t, logged, 1)
	require.InDelta(t, 1_785_000_000_000_005.0, logged[0].Score, 0)

	require.NoError(t, b.Reset(t.Context(), theKey))
	take(t, b, rule(t, 1, 1.0/50_000))
	require.InDelta(t, 100_000_000, b.redis.PTTL(t.Context(), tokenKey).Val().Milliseconds(), 10_000)
}

func mustInt(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

func TestA8OneADay(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := rule(t, 1, 1.0/86400)
	require.Equal(t, "1.1574074074074073e-05", strconv.FormatFloat(r.Refill, 'g', -1, 64))
	const day, began = int64(86_400_000), int64(1_785_000_000_000)
	require.Equal(t, int64(1), b.at(t, began, r).Granted)
	d := b.at(t, began, r)
	require.Zero(t, d.Granted)
	require.Equal(t, 86_400*time.Second, d.First.RetryAfter)
	require.GreaterOrEqual(t, b.redis.PTTL(t.Context(), tokenKey).Val().Milliseconds(), int64(86_399_000))
	require.Zero(t, b.at(t, began+day-1, r).Granted)
	require.Equal(t, int64(1), b.at(t, began+day, r).Granted, "the rate loses no digit on the way")
}

func TestA10TypeSwitch(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for range 2 {
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			require.Equal(t, int64(1), take(t, b, ruleOf(t, algorithm, 10, 0.001)).Granted)
		}
	}
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		key := b.RedisKey(theKey, algorithm)
		for name, spoil := range map[string]func() error{
			"string": func() error { return b.redis.Set(t.Context(), key, "x", 0).Err() },
			"stream": func() error {
				_ = b.redis.Del(t.Context(), key)
				return b.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
			},
		} {
			require.NoError(t, spoil())
			d := take(t, b, ruleOf(t, algorithm, 10, 0.001))
			require.Equal(t, int64(1), d.Granted, "%s under %s", name, key)
			require.Positive(t, b.redis.PTTL(t.Context(), key).Val())
		}
		require.NoError(t, b.redis.Set(t.Context(), key, "x", 0).Err())
		req := ask(ruleOf(t, algorithm, 10, 0.001))
		req.Count = 0
		d, err := b.Take(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, int64(10), d.First.Remaining)
		require.Equal(t, "x", b.redis.Get(t.Context(), key).Val(), "a look changes nothing")
	}
	require.Equal(t, "closed", b.Client().Status().Breaker)
	require.Empty(t, b.Client().Status().LastReason)
}

func TestA11CapacityLowered(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	take(t, b, rule(t, 100, 0.001))
	lowered := rule(t, 10, 0.001)
	require.Equal(t, int64(9), take(t, b, lowered).First.Remaining)
	require.Equal(t, 9, passed(t, b, lowered, 11))
	require.Zero(t, take(t, b, rule(t, 50, 0.001)).Granted)
}

func TestA12BrokenFields(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := rule(t, 10, 0.001)
	spoil := map[string]func(){
		"tokens missing": func() { b.redis.HDel(t.Context(), tokenKey, "tokens") },
		"ts missing":     func() { b.redis.HDel(t.Context(), tokenKey, "ts") },
	}
	for _, value := range []string{"abc", "", "nan", "inf", "1e400", "-inf"} {
		spoil["tokens "+value] = func() { b.redis.HSet(t.Context(), tokenKey, "tokens", value) }
	}
	for _, value := range []string{"abc", "", "nan", "inf"} {
		spoil["ts "+value] = func() { b.redis.HSet(t.Context(), tokenKey, "ts", value) }
	}
	for name, spoil := range spoil {
		b.write(t, 3, 0)
		spoil()
		require.Equal(t, int64(9), take(t, b, r).First.Remaining, name)
		require.Equal(t, int64(8), take(t, b, r).First.Remaining, "%s: repaired", name)
	}
	b.write(t, 0, 0)
	b.redis.HDel(t.Context(), tokenKey, "ts")
	req := ask(r)
	req.Cost = 11
	d, err := b.Take(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, limit.Never, d.First.RetryAfter)
	require.Equal(t, "10", b.redis.HGet(t.Context(), tokenKey, "tokens").Val(), "a refusal repairs")
}

func TestA15TTLAndLoweredRate(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", 0, "ts", b.now(t)).Err())
	require.NoError(t, b.redis.PExpire(t.Context(), tokenKey, 2*time.Second).Err())
	lowered := rule(t, 100, 0.01)
	require.Zero(t, take(t, b, lowered).Granted)
	require.GreaterOrEqual(t, b.redis.PTTL(t.Context(), tokenKey).Val().Milliseconds(), int64(9_990_000))
	b.age(t, tokenKey, "ts", 3*time.Second)
	require.Zero(t, take(t, b, lowered).Granted)
}

func TestA16OddNumbers(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		for name, r := range map[string]limit.Rule{
			"1 ms":     ruleOf(t, algorithm, 1, 1000),
			"10 years": ruleOf(t, algorithm, 1, 1/limit.MaxWindow.Seconds()),
		} {
			require.NoError(t, b.Reset(t.Context(), theKey))
			require.Equal(t, int64(1), take(t, b, r).Granted, "%s %s", algorithm, name)
			ttl := b.redis.PTTL(t.Context(), b.RedisKey(theKey, algorithm)).Val()
			require.GreaterOrEqual(t, ttl.Milliseconds(), min(r.WindowMillis, 900), "%s %s", algorithm, name)
		}
	}
	most := rule(t, limit.MaxCapacity, 1000)
	require.NoError(t, b.Reset(t.Context(), theKey))
	require.Equal(t, int64(limit.MaxCapacity-1), take(t, b, most).First.Remaining)
	require.Equal(t, "2147483646", b.redis.HGet(t.Context(), tokenKey, "tokens").Val())
	b.write(t, "0x10", 0)
	require.Equal(t, int64(15), take(t, b, rule(t, 100, 0.001)).First.Remaining)
	b.write(t, "0x10", 0)
	require.Equal(t, int64(4), take(t, b, rule(t, 5, 0.001)).First.Remaining)
}

// TestA17MixedBatch sends several entries in one call, as batching will.
func TestA17MixedBatch(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	script := redis.NewScript(b.client.script.Text)
	batch := func(keys []string, entries ...[]float64) []any {
		args := make([]any, len(entries))
		for i, entry := range entries {
			args[i] = appendNumbers(nil, entry...)
		}
		reply, err := script.Run(t.Context(), b.redis, keys, args...).Slice()
		require.NoError(t, err)
		return reply
	}
	b.write(t, 3, 0)
	reply := batch([]string{tokenKey, tokenKey},
		[]float64{1, 1, 1, 1, 10, 0.001, 10_000_000},
		[]float64{1, 3, 1, 1, 10, 0.001, 10_000_000})
	require.Equal(t, []any{int64(1), int64(2)}, reply[:2], "cost 1 passes")
	require.Equal(t, []any{int64(0), int64(2)}, reply[4:6], "cost 3 does not")
	require.Len(t, reply, 8)

	require.NoError(t, b.redis.Set(t.Context(), "{t1}:foreign", "x", 0).Err())
	reply = batch([]string{tokenKey, "{t1}:foreign", tokenKey},
		[]float64{1, 1, 1, 1, 10, 0.001, 10_000_000},
		[]float64{1, 1, 1, 1, 5, 0.001, 5_000_000},
		[]float64{1, 1, 1, 1, 2, 0.001, 2_000_000})
	require.Equal(t, []any{int64(1), int64(1)}, reply[0:2])
	require.Equal(t, []any{int64(1), int64(4)}, reply[4:6])
	require.Equal(t, []any{int64(1), int64(0)}, reply[8:10])
	require.Equal(t, "hash", b.redis.Type(t.Context(), "{t1}:foreign").Val())
}

func TestCountIsGrantedAsFarAsItGoes(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		req := ask(ruleOf(t, algorithm, 10, 0.001))
		req.Cost, req.Count = 3, 5
		d, err := b.Take(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, int64(3), d.Granted, algorithm)
		require.Equal(t, int64(1), d.First.Remaining, algorithm)
		require.Positive(t, d.First.RetryAfter, algorithm)
		require.Positive(t, d.First.ResetAfter, algorithm)
		req.Cost, req.Count = 11, 1
		d, err = b.Take(t.Context(), req)
		require.NoError(t, err)
		require.Zero(t, d.Granted)
		require.Equal(t, limit.Never, d.First.RetryAfter, algorithm)
		require.NoError(t, b.Reset(t.Context(), theKey))
		require.Zero(t, b.redis.DBSize(t.Context()).Val())
	}
}
