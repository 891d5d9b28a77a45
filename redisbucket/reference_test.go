package redisbucket

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/model"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// TestReference holds every number of the script's answers over random traces for
// each algorithm, and for all of them mixed, to the model's.
func TestReference(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	digest, err := client.ScriptLoad(t.Context(), timedScript(t)).Result()
	require.NoError(t, err)
	for algorithm := limit.Algorithm(0); algorithm <= limit.SlidingWindowCounter; algorithm++ {
		t.Run(fmt.Sprintf("%d %s", algorithm, algorithm), func(t *testing.T) {
			for seed := range model.Traces(1000) {
				o := model.Options{Seed: seed, Algorithm: algorithm, Trims: true}
				replay(t, client, digest, o)
				if o.Apart = seed%5 == 0; o.Apart {
					replay(t, client, digest, o)
				}
				if seed%500 == 0 {
					require.NoError(t, client.FlushDB(t.Context()).Err())
				}
			}
		})
	}
}

// timedScript is the script with the time in its last two arguments, and TTLs so
// long that no key dies by Redis' own clock.
func timedScript(t testing.TB) string {
	t.Helper()
	text := lua.Take().Text
	for old, replacement := range map[string]string{
		"call('TIME')":                       "{ARGV[#ARGV - 1], ARGV[#ARGV]}",
		"#argv":                              "#argv - 2",
		"whole(max(2 * window, full, 1000))": "'1000000000'",
	} {
		require.Equal(t, 1, strings.Count(text, old), old)
		text = strings.Replace(text, old, replacement, 1)
	}
	return text
}

func replay(t testing.TB, client *redis.Client, digest string, o model.Options) {
	t.Helper()
	steps := model.Trace(o)
	pipe := client.Pipeline()
	replies := make([]*redis.Cmd, len(steps))
	for i := range steps {
		batch := batchOf(fmt.Sprintf("%d-%d-%t", o.Algorithm, o.Seed, o.Apart), &steps[i].Request)
		seconds, micros := steps[i].Micros/1_000_000, steps[i].Micros%1_000_000
		replies[i] = pipe.Do(context.Background(), append(batch.command("evalsha", digest), seconds, micros)...)
	}
	_, err := pipe.Exec(context.Background())
	require.NoError(t, err)
	for i, reply := range replies {
		got, err := reply.Int64Slice()
		require.NoError(t, err)
		if want := integers(&steps[i].Want); !slices.Equal(want, got) {
			require.Equal(t, want, got, "seed %d, step %d, %+v", o.Seed, i, steps[i].Request)
		}
	}
}

// TestAccounts holds what is settled, owed and banned over random traces to the model.
func TestAccounts(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	digest, err := client.ScriptLoad(t.Context(), timedScript(t)).Result()
	require.NoError(t, err)
	most := uint64(500)
	if servertest.Thorough(t, "10,000 traces of settlements for each algorithm instead of 500") {
		most = 10_000
	}
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowCounter} {
		t.Run(algorithm.String(), func(t *testing.T) {
			for seed := range model.Traces(most) {
				replayAccount(t, client, digest, seed, algorithm)
				if seed%500 == 0 {
					require.NoError(t, client.FlushDB(t.Context()).Err())
				}
			}
		})
	}
}

func replayAccount(t *testing.T, client *redis.Client, digest string, seed uint64, algorithm limit.Algorithm) {
	t.Helper()
	entries := model.Account(seed, algorithm)
	prefix := fmt.Sprintf("account-%d-%d", algorithm, seed)
	decisions := script{client, digest}.ask(t, len(entries), func(i int, w *waiter) (micros int64) {
		e := &entries[i]
		if e.Settlement != nil {
			w.askToSettle(prefix, e.Settlement)
			w.cost = w.age(time.UnixMicro(e.Micros))
		} else {
			w.ask(prefix, &e.Request)
		}
		return e.Micros
	})
	for i, d := range decisions {
		e := &entries[i]
		if e.Settlement == nil {
			e.Want.Source = limit.SourceRedis
			require.Equal(t, e.Want, d, "seed %d, step %d, %+v", seed, i, e.Request)
			continue
		}
		got := limit.Settled{Cut: d.Granted, Banned: d.First.Banned}
		require.Equal(t, e.Settled, got, "seed %d, step %d, %+v", seed, i, e.Settlement)
	}
}

// script is the script as a server has it, with the time in its arguments.
type script struct {
	client *redis.Client
	digest string
}

// ask asks n times in one pipeline, each by itself and at a time in µs, and returns the
// answers.
func (s script) ask(t *testing.T, n int, fill func(i int, w *waiter) (micros int64)) []limit.Decision {
	t.Helper()
	pipe := s.client.Pipeline()
	replies, parts := make([]*redis.Cmd, n), make([]*part, n)
	for i := range n {
		w, b := newWaiter(), &batch{}
		micros := fill(i, w)
		b.add(w)
		parts[i] = &b.split()[0]
		replies[i] = pipe.Do(context.Background(), append(parts[i].command("evalsha", s.digest), micros/1_000_000, micros%1_000_000)...)
	}
	_, err := pipe.Exec(context.Background())
	require.NoError(t, err)
	decisions := make([]limit.Decision, n)
	for i, p := range parts {
		numbers, err := replies[i].Int64Slice()
		require.NoError(t, err)
		require.NoError(t, p.decode(listOf(numbers)))
		w := p.entries[0].first
		p.deliver()
		decisions[i] = w.decision
	}
	return decisions
}

// listOf is a reply of integers.
func listOf(numbers []int64) []byte {
	reply := fmt.Appendf(nil, "*%d\r\n", len(numbers))
	for _, n := range numbers {
		reply = fmt.Appendf(reply, ":%d\r\n", n)
	}
	return reply
}

// integers writes a decision as the script does.
func integers(d *limit.Decision) []int64 {
	var all []int64
	for i, state := range append([]limit.State{d.First}, d.Rest...) {
		if i == 0 || d.Each != nil {
			all = append(all, d.Grant(i).Granted)
		}
		retry := int64(-1)
		if state.RetryAfter != limit.Never {
			retry = state.RetryAfter.Milliseconds()
		}
		all = append(all, state.Remaining, retry, state.ResetAfter.Milliseconds())
	}
	return all
}
