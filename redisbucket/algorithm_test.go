package redisbucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
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
		most   int
	}{
		"each 100 ms for 9.95 s at 1/s": {1, 100 * time.Millisecond, 100, 9, 10},
		"each second for 60 s at 0.1/s": {0.1, time.Second, 60, 6, 6},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onRedis(t)
			r := rule(t, 1, test.rate)
			granted := 0
			for range test.checks {
				granted += passed(t, b, r, 1)
				b.age(t, tokenKey, "ts", test.step)
			}
			require.GreaterOrEqual(t, granted, test.least)
			require.LessOrEqual(t, granted, test.most)
		})
	}
}

func TestA2OneTimestamp(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowLog, 5, 0.05)
	require.Equal(t, 5, passed(t, b, r, 6))
	require.Equal(t, int64(5), b.redis.ZCard(t.Context(), tokenKey+":log").Val())
	require.NoError(t, b.Reset(t.Context(), theKey))
	req := ask(r)
	req.Cost = 3
	d, err := b.Take(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, int64(2), d.First.Remaining)
	require.Equal(t, int64(3), b.redis.ZCard(t.Context(), tokenKey+":log").Val())
}

func TestA3Counter(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowCounter, 100, 100.0/60)
	key := tokenKey + ":win"
	require.NoError(t, b.redis.HSet(t.Context(), key, "start", b.now(t)-6000, "cur", 10, "prev", 50).Err())
	d := take(t, b, r)
	require.Equal(t, int64(1), d.Granted)
	require.InDelta(t, 44, d.First.Remaining, 1)
	b.age(t, key, "start", 3*time.Minute)
	require.Equal(t, int64(99), take(t, b, r).First.Remaining)

	one := ruleOf(t, limit.SlidingWindowCounter, 1, 0.1)
	require.NoError(t, b.Reset(t.Context(), theKey))
	require.Equal(t, 1, passed(t, b, one, 1))
	b.age(t, key, "start", time.Second)
	refused := take(t, b, one)
	require.Zero(t, refused.Granted)
	require.InDelta(t, 19_000, refused.First.RetryAfter.Milliseconds(), 1000)
	b.age(t, key, "start", 19*time.Second)
	require.Equal(t, 1, passed(t, b, one, 1))
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
	take(t, b, r)
	d := take(t, b, r)
	require.Zero(t, d.Granted)
	require.InDelta(t, 86400, d.First.RetryAfter.Seconds(), 1)
	require.GreaterOrEqual(t, b.redis.PTTL(t.Context(), tokenKey).Val().Milliseconds(), int64(86_399_000))
	b.write(t, 0, -86_400*time.Second)
	require.Equal(t, int64(1), take(t, b, r).Granted, "the rate loses no digit on the way")
}

func TestA9RetryAfter(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := rule(t, 1, 1.0/60)
	for after, want := range map[int]int64{20: 40, 31: 29, 44: 16, 59: 1} {
		b.write(t, 0, -time.Duration(after)*time.Second)
		d := take(t, b, r)
		require.Zero(t, d.Granted)
		require.Equal(t, want, int64(math.Ceil(d.First.RetryAfter.Seconds())))
	}
}

// TestA9RetryAfterIsExact asks the script at fixed times, by writing its clock
// into its text, so that a wait is known to the millisecond.
func TestA9RetryAfterIsExact(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		capacity := 1 + random.Int64N(1000)
		refill := math.Exp(random.Float64()*14 - 7)
		r, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.TokenBucket})
		if err != nil {
			continue
		}
		offset := random.Int64N(1000)
		held := random.Float64()
		const at = int64(1_785_000_000_000)
		store := func() {
			require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", strconv.FormatFloat(held, 'g', -1, 64), "ts", at).Err())
		}
		store()
		first := b.at(t, at+offset, r)
		wait := first.First.RetryAfter.Milliseconds()
		if first.Granted == 1 {
			continue
		}
		require.Zero(t, b.at(t, at+offset+wait-1, r).Granted, "%+v after %d ms, held %v", r, offset, held)
		require.Equal(t, int64(1), b.at(t, at+offset+wait, r).Granted, "%+v after %d ms, held %v", r, offset, held)
	}
}

// TestA9ShortAndLongWay: the way of a bucket alone and that of several answer
// alike, and leave the same behind.
func TestA9ShortAndLongWay(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		capacity := 1 + random.Int64N(40)
		r, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: math.Exp(random.Float64()*10 - 5), Algorithm: limit.TokenBucket})
		if err != nil {
			continue
		}
		req := ask(r)
		req.Cost, req.Count = 1+random.Int64N(4), random.Int64N(4)
		const at = int64(1_785_000_000_000)
		held, fresh := random.Float64()*float64(capacity)*1.1, random.IntN(4) == 0
		now := at + random.Int64N(5000) - 1000
		ttl := time.Duration(1+random.Int64N(100_000)) * time.Second
		var answers [2]limit.Decision
		var left [2]string
		for i, longWay := range []bool{false, true} {
			if !fresh {
				require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", strconv.FormatFloat(held, 'g', -1, 64), "ts", at).Err())
				require.NoError(t, b.redis.PExpire(t.Context(), tokenKey, ttl).Err())
			}
			answers[i] = b.ask(t, question{at: now, longWay: longWay}, req)
			left[i] = fmt.Sprint(b.redis.HGetAll(t.Context(), tokenKey).Val(), b.redis.PTTL(t.Context(), tokenKey).Val().Round(time.Second))
			require.NoError(t, b.Reset(t.Context(), theKey))
		}
		require.Equal(t, answers[0], answers[1], "%+v held %v after %d", req, held, now-at)
		require.Equal(t, left[0], left[1], "%+v held %v after %d", req, held, now-at)
	}
}

// at asks for one unit at a time of Redis' clock.
func (b *bench) at(t testing.TB, millis int64, r limit.Rule) limit.Decision {
	t.Helper()
	return b.ask(t, question{at: millis}, ask(r))
}

// question is how the script is asked: at a time that is written into its text,
// and whether a bucket alone goes the way of several.
type question struct {
	at      int64
	longWay bool
}

func (b *bench) ask(t testing.TB, q question, req limit.Request) limit.Decision {
	t.Helper()
	text := b.node.script.Text
	replace := func(old, new string) {
		require.Equal(t, 1, strings.Count(text, old), old)
		text = strings.Replace(text, old, new, 1)
	}
	replace("call('TIME')", "{'"+strconv.FormatInt(q.at/1000, 10)+"', '"+strconv.FormatInt(q.at%1000*1000, 10)+"'}")
	if q.longWay {
		replace("if n == 1 and", "if false and")
	}
	var a arguments
	a.encode(b.prefix, &req)
	command := redis.NewRawCmd(t.Context(), a.command("eval", text)...)
	require.NoError(t, b.redis.Process(t.Context(), command))
	d, err := decode(command.Val(), &req)
	require.NoError(t, err)
	return d
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
	require.Equal(t, "closed", b.Node().Status().Breaker)
	require.Empty(t, b.Node().Status().LastReason)
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
	for _, value := range []string{"abc", "", "nan", "-1", "inf", "1e400", "-inf"} {
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
	script := redis.NewScript(b.node.script.Text)
	batch := func(keys []string, args ...any) []any {
		reply, err := script.Run(t.Context(), b.redis, keys, args...).Slice()
		require.NoError(t, err)
		return reply
	}
	b.write(t, 3, 0)
	reply := batch([]string{tokenKey, tokenKey}, 2,
		1, 1, 1, 1, 10, 0.001, 10_000_000,
		1, 3, 1, 1, 10, 0.001, 10_000_000)
	require.Equal(t, []any{int64(1), int64(2)}, reply[:2], "cost 1 passes")
	require.Equal(t, []any{int64(0), int64(2)}, reply[4:6], "cost 3 does not")
	require.Len(t, reply, 8)

	require.NoError(t, b.redis.Set(t.Context(), "{t1}:foreign", "x", 0).Err())
	reply = batch([]string{tokenKey, "{t1}:foreign", tokenKey}, 3,
		1, 1, 1, 1, 10, 0.001, 10_000_000,
		1, 1, 1, 1, 5, 0.001, 5_000_000,
		1, 1, 1, 1, 2, 0.001, 2_000_000)
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

// TestLogClockBack finds members of a time that has not come.
func TestLogClockBack(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := ruleOf(t, limit.SlidingWindowLog, 3, 0.3)
	key := tokenKey + ":log"
	ahead := float64((b.now(t) + time.Hour.Milliseconds()) * 1000)
	for i := range 3 {
		require.NoError(t, b.redis.ZAdd(t.Context(), key, redis.Z{Score: ahead, Member: i}).Err())
	}
	d := take(t, b, r)
	require.Zero(t, d.Granted)
	require.LessOrEqual(t, d.First.RetryAfter, 10*time.Second)
	require.Equal(t, int64(3), b.redis.ZCard(t.Context(), key).Val())
	newest := b.redis.ZRevRangeWithScores(t.Context(), key, 0, 0).Val()
	require.Less(t, newest[0].Score, ahead, "moved to now")
}
