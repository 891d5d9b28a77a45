package front

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func brought(spare int64) batch {
	return batch{
		answered: true, spare: spare,
		decision: limit.Decision{Granted: spare + 1, Source: limit.SourceRedis, First: limit.State{Remaining: 7, RetryAfter: time.Second}},
	}
}

// TestCallCounts follows the tokens of one call: to those who wait, back from those
// who leave before and after it, and to nobody else.
func TestCallCounts(t *testing.T) {
	t.Parallel()
	c := newCall(6)
	for range 5 {
		require.True(t, c.admit())
	}
	require.False(t, c.admit(), "one token is for the one who calls")
	require.False(t, c.leave(), "nothing has come yet")
	require.True(t, c.underWay())
	require.Equal(t, int64(1), c.finish(brought(5)))
	require.False(t, c.underWay())
	require.False(t, c.admit())
	require.NoError(t, c.wait(context.Background(), patience{}))
	require.True(t, c.leave(), "its token is for nobody now")
	for left := int64(4); left >= 2; left-- {
		d, ok := c.claim()
		require.True(t, ok)
		require.Equal(t, limit.Decision{Granted: 1, Source: limit.SourceRedis, First: limit.State{Remaining: 7 + left}}, d)
	}
}

// TestCallBringsLess: where there are fewer tokens than those who wait, none is kept
// from them by one who leaves.
func TestCallBringsLess(t *testing.T) {
	t.Parallel()
	c := newCall(6)
	for range 3 {
		require.True(t, c.admit())
	}
	require.Zero(t, c.finish(brought(2)))
	require.False(t, c.leave())
	for range 2 {
		_, ok := c.claim()
		require.True(t, ok)
	}
	c = newCall(6)
	require.True(t, c.admit())
	require.Zero(t, c.finish(batch{}))
	_, ok := c.claim()
	require.False(t, ok)
}

// TestKeep: the token of one who leaves late goes to those of its call alone.
func TestKeep(t *testing.T) {
	t.Parallel()
	p := &Prefetch{Store: NewPrefetchStore()}
	rule := limit.Rule{Capacity: 10, Refill: 10, WindowMillis: 1000, Prefetch: 5}
	key := p.Store.key(limit.Key{Tenant: "t1", Route: "a"})
	mine, other := newCall(5), newCall(5)
	for _, c := range []struct {
		stored *call
		want   int64
	}{{nil, 0}, {other, 0}, {mine, 1}} {
		h := newHand(rule, 0)
		h.call = c.stored
		held := p.Store.entries.Lock(key)
		held.Put(key, h, 0)
		held.Unlock()
		p.keep(key, mine)
		held = p.Store.entries.Lock(key)
		require.Equal(t, c.want, held.Get(key).tokens)
		held.Delete(key)
		held.Unlock()
		p.keep(key, mine)
	}
}
