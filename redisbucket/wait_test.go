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
	checked := 0
	for range 500 {
		capacity := 1 + random.Int64N(1000)
		refill := math.Exp(random.Float64()*14 - 7)
		r, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.TokenBucket})
		if err != nil {
			continue
		}
		held := random.Float64()
		offset := random.Int64N(int64(1000*(1-held)/refill) + 2) // until a token is there, and a moment more
		const at = int64(1_785_000_000_000)
		require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", strconv.FormatFloat(held, 'g', -1, 64), "ts", at).Err())
		first := b.at(t, at+offset, r)
		wait := first.First.RetryAfter.Milliseconds()
		if first.Granted == 1 {
			continue
		}
		checked++
		require.Zero(t, b.at(t, at+offset+wait-1, r).Granted, "%+v after %d ms, held %v", r, offset, held)
		require.Equal(t, int64(1), b.at(t, at+offset+wait, r).Granted, "%+v after %d ms, held %v", r, offset, held)
	}
	t.Logf("%d of 500 checked", checked)
	require.GreaterOrEqual(t, checked, 300, "too many were granted at once, or are no rule")
}

// TestA9ShortAndLongWay: the short way and the long way answer alike, for one
// bucket and for several, and leave the same behind.
func TestA9ShortAndLongWay(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	random := rand.New(rand.NewPCG(5, 6))
	const at = int64(1_785_000_000_000)
	for range 300 {
		req := limit.Request{Cost: 1 + random.Int64N(4), Count: random.Int64N(4)}
		var held []stored
		for i := range 1 + random.IntN(3) {
			capacity := 1 + random.Int64N(40)
			r, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: math.Exp(random.Float64()*10 - 5), Algorithm: limit.TokenBucket})
			if err != nil {
				r = rule(t, capacity, 1)
			}
			key := limit.Key{Tenant: "t1", Route: strconv.Itoa(i)}
			req.Buckets = append(req.Buckets, limit.Bucket{Key: key, Rule: r})
			if random.IntN(4) > 0 {
				ttl := time.Duration(1+random.Int64N(100_000)) * time.Second
				held = append(held, stored{b.RedisKey(key, 0), random.Float64() * float64(capacity) * 1.1, ttl})
			}
		}
		now := at + random.Int64N(5000) - 1000
		var answers [2]limit.Decision
		var left [2][]map[string]string
		var ttls [2][]time.Duration
		for way, long := range []bool{false, true} {
			for _, s := range held {
				require.NoError(t, b.redis.HSet(t.Context(), s.key, "tokens", strconv.FormatFloat(s.tokens, 'g', -1, 64), "ts", at).Err())
				require.NoError(t, b.redis.PExpire(t.Context(), s.key, s.ttl).Err())
			}
			answers[way] = b.ask(t, question{at: time.UnixMilli(now), longWay: long}, req)
			for _, bucket := range req.Buckets {
				key := b.RedisKey(bucket.Key, 0)
				left[way] = append(left[way], b.redis.HGetAll(t.Context(), key).Val())
				ttls[way] = append(ttls[way], b.redis.PTTL(t.Context(), key).Val())
			}
			require.NoError(t, b.redis.FlushDB(t.Context()).Err())
		}
		require.Equal(t, answers[0], answers[1], "%+v held %+v after %d", req, held, now-at)
		require.Equal(t, left[0], left[1], "%+v held %+v after %d", req, held, now-at)
		for i := range req.Buckets {
			require.InDelta(t, ttls[0][i], ttls[1][i], float64(900*time.Millisecond))
		}
	}
}

// stored is what a key holds before the script is asked.
type stored struct {
	key    string
	tokens float64
	ttl    time.Duration
}

// at asks for one unit at a time of Redis' clock.
func (b *bench) at(t testing.TB, millis int64, r limit.Rule) limit.Decision {
	t.Helper()
	return b.ask(t, question{at: time.UnixMilli(millis)}, ask(r))
}

// question is how the script is asked: at a time that is written into its text,
// and whether token buckets in good order go the long way.
type question struct {
	at      time.Time
	longWay bool
}

func (b *bench) ask(t testing.TB, q question, req limit.Request) limit.Decision {
	t.Helper()
	text := b.client.script.Text
	replace := func(old, new string) {
		require.Equal(t, 1, strings.Count(text, old), old)
		text = strings.Replace(text, old, new, 1)
	}
	replace("call('TIME')", fmt.Sprintf("{'%d', '%d'}", q.at.Unix(), q.at.Nanosecond()/1000))
	if q.longWay {
		replace("good, held, settled = kind == 1 and n > 0, nil, false", "good, held, settled = false, nil, false")
	}
	batch := batchOf(b.prefix, &req)
	command := redis.NewRawCmd(t.Context(), batch.command("eval", text)...)
	require.NoError(t, b.redis.Process(t.Context(), command))
	d, err := batch.answerTo(command.Val())
	require.NoError(t, err)
	return d
}
