package redisbucket

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client prints of each connection that is cut
	goleak.VerifyTestMain(m)
}

// patience is how long a decision may take where a test is not about time: ten
// times what it may take at all, because the machine has other work.
const patience = 250 * time.Millisecond

// bench is a Limiter on a private Redis.
type bench struct {
	*Limiter
	redis *redis.Client
}

// onRedis returns a started Limiter whose URL is that of a server or a proxy.
func started(t testing.TB, o Options) *Limiter {
	t.Helper()
	node, err := NewClient(o)
	require.NoError(t, err)
	stop := node.Start(nil)
	t.Cleanup(func() {
		stop()
		require.NoError(t, node.Destruct())
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	node.Warm(ctx)
	return New(node, "")
}

// sole is the only server of a Limiter.
func (l *Limiter) sole() *node { return l.client.sole }

func onRedis(t testing.TB) *bench {
	t.Helper()
	server := servertest.Redis(t)
	return &bench{started(t, Options{URLs: []string{server.URL()}}), server.Client(t)}
}

// rule is a rule by capacity and refill, a token bucket.
func rule(t testing.TB, capacity int64, refill float64) limit.Rule {
	t.Helper()
	return ruleOf(t, limit.TokenBucket, capacity, refill)
}

func ruleOf(t testing.TB, algorithm limit.Algorithm, capacity int64, refill float64) limit.Rule {
	t.Helper()
	r, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: algorithm})
	require.NoError(t, err)
	return r
}

var theKey = limit.Key{Tenant: "t1", Route: "a"}

// ask is a request for one unit from the usual bucket.
func ask(r limit.Rule) limit.Request {
	return limit.Request{Buckets: []limit.Bucket{{Key: theKey, Rule: r}}, Cost: 1, Count: 1, Deadline: time.Now().Add(patience)}
}

// take asks for one unit and fails where nobody decides.
func take(t testing.TB, l limit.Limiter, r limit.Rule) limit.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), ask(r))
	require.NoError(t, err)
	require.Equal(t, limit.SourceRedis, d.Source)
	return d
}

// passed counts how many of n requests for one unit are granted.
func passed(t testing.TB, l limit.Limiter, r limit.Rule, n int) int {
	t.Helper()
	granted := 0
	for range n {
		granted += int(take(t, l, r).Granted)
	}
	return granted
}

// now is Redis' clock in ms.
func (b *bench) now(t testing.TB) int64 {
	t.Helper()
	at, err := b.redis.Time(t.Context()).Result()
	require.NoError(t, err)
	return at.UnixMilli()
}

// age makes a token bucket's or a counter's stamp older by d.
func (b *bench) age(t testing.TB, key, field string, d time.Duration) {
	t.Helper()
	age(t, b.redis, key, field, d)
}

func age(t testing.TB, client *redis.Client, key, field string, d time.Duration) {
	t.Helper()
	stamp, err := client.HGet(t.Context(), key, field).Float64()
	require.NoError(t, err)
	require.NoError(t, client.HSet(t.Context(), key, field, int64(stamp)-d.Milliseconds()).Err())
}

// batchOf is a call of the script, encoded, for the requests.
func batchOf(prefix string, requests ...*limit.Request) *part {
	b := &batch{}
	for _, req := range requests {
		w := newWaiter()
		w.ask(prefix, req)
		b.add(w)
	}
	return &b.split()[0]
}

// command is the words of a call of the script for a part.
func (p *part) command(verb, script any) []any {
	keys, entries := []any{}, []any{}
	for i := range p.entries {
		e := &p.entries[i]
		for _, key := range e.first.keys {
			keys = append(keys, string(key))
		}
		for text := appendEntry(nil, e); len(text) > 0; {
			head, rest, _ := bytes.Cut(text, []byte("\r\n"))
			length, _ := strconv.Atoi(string(head[1:]))
			entries, text = append(entries, rest[:length]), rest[length+2:]
		}
	}
	return slices.Concat([]any{verb, script, len(keys)}, keys, entries)
}

// answerTo returns what the first waiter of a call reads in a reply.
func (p *part) answerTo(reply []byte) (limit.Decision, error) {
	if err := p.decode(reply); err != nil {
		return limit.Decision{}, err
	}
	p.deliver()
	return p.entries[0].first.decision, nil
}
