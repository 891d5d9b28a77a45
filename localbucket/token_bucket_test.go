package localbucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestLevelAt(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Capacity: 10, Refill: 2}
	for name, c := range map[string]struct {
		stored level
		now    int64
		want   level
	}{
		"nothing passed":       {level{tokens: 3, stamp: 1000}, 1000, level{tokens: 3, stamp: 1000}},
		"fractions":            {level{tokens: 3, stamp: 1000}, 1001, level{tokens: 3.002, stamp: 1001}},
		"up to the capacity":   {level{tokens: 3, stamp: 1000}, 9000, level{tokens: 10, stamp: 9000}},
		"cut to the capacity":  {level{tokens: 50, stamp: 1000}, 1000, level{tokens: 10, stamp: 1000}},
		"ahead, kept":          {level{tokens: 3, stamp: 3000}, 1000, level{tokens: 3, stamp: 3000}},
		"too far ahead":        {level{tokens: 3, stamp: 3001}, 1000, level{tokens: 3, stamp: 1000}},
		"before the epoch":     {level{tokens: 3, stamp: -1000}, -500, level{tokens: 4, stamp: -500}},
		"ahead and to be cut":  {level{tokens: 50, stamp: 2000}, 1000, level{tokens: 10, stamp: 2000}},
		"a very long time ago": {level{tokens: 0, stamp: 0}, math.MaxInt64 / 2, level{tokens: 10, stamp: math.MaxInt64 / 2}},
	} {
		require.Equal(t, c.want, c.stored.at(&rule, c.now), name)
	}
}

func TestLevelUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tokens     float64
		cost, want int64
	}{
		{0, 1, 0}, {0.9, 1, 0}, {1 - 2e-9, 1, 0}, {1 - 0.5e-9, 1, 1}, {1, 1, 1},
		{7, 3, 2}, {9 - 0.5e-9, 3, 3}, {limit.MaxCapacity, 1, limit.MaxCapacity}, {5, 6, 0},
	} {
		require.Equal(t, c.want, level{tokens: c.tokens}.units(c.cost), c)
	}
}

func TestLevelState(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	rule := func(capacity int64, refill float64) limit.Rule {
		return limit.Rule{Capacity: capacity, Refill: refill}
	}
	for name, c := range map[string]struct {
		level level
		rule  limit.Rule
		cost  int64
		want  limit.State
	}{
		"full":                {level{tokens: 10}, rule(10, 1), 1, limit.State{Remaining: 10}},
		"empty":               {level{}, rule(10, 1), 1, limit.State{RetryAfter: 1000 * ms, ResetAfter: 10_000 * ms}},
		"waits are ceiled":    {level{}, rule(1, 3), 1, limit.State{RetryAfter: 334 * ms, ResetAfter: 334 * ms}},
		"but not for a rest":  {level{tokens: 0.1 + 0.2 - 0.3}, rule(1, 1), 1, limit.State{RetryAfter: 1000 * ms, ResetAfter: 1000 * ms}},
		"wait for the cost":   {level{tokens: 2.5}, rule(10, 1), 4, limit.State{Remaining: 2, RetryAfter: 1500 * ms, ResetAfter: 7500 * ms}},
		"over the capacity":   {level{tokens: 10}, rule(10, 1), 11, limit.State{Remaining: 10, RetryAfter: limit.Never}},
		"the stamp is ahead":  {level{stamp: 700}, rule(10, 1), 1, limit.State{RetryAfter: 1700 * ms, ResetAfter: 10_700 * ms}},
		"almost a token":      {level{tokens: 1 - 1e-10}, rule(2, 1), 1, limit.State{Remaining: 1, ResetAfter: 1000 * ms}},
		"longer than can be":  {level{}, rule(1, 1e-12), 1, limit.State{RetryAfter: time.Duration(longestWait) * ms, ResetAfter: time.Duration(longestWait) * ms}},
		"a rule of no refill": {level{}, rule(1, 0), 1, limit.State{RetryAfter: time.Duration(longestWait) * ms, ResetAfter: time.Duration(longestWait) * ms}},
	} {
		require.Equal(t, c.want, c.level.state(c.cost, &c.rule, 0), name)
	}
}

// FuzzLevel holds any trace of takes to what a token bucket is: never below 0 or
// over the capacity, never more than the capacity and the refill in any span, and
// the waits it names are enough.
func FuzzLevel(f *testing.F) {
	f.Add(int64(10), 1.0, int64(1), uint16(100), uint16(950))
	f.Add(int64(limit.MaxCapacity), 1e9, int64(1000), uint16(1), uint16(60000))
	f.Add(int64(1), 1.0/86400, int64(1), uint16(60000), uint16(0))
	f.Fuzz(func(t *testing.T, capacity int64, refill float64, cost int64, pause, other uint16) {
		rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.TokenBucket})
		if err != nil || cost < 1 || cost > capacity {
			t.Skip()
		}
		now := int64(1000)
		l := fullLevel(&rule, now)
		var granted int64
		for i := range 50 {
			now += int64([]uint16{pause, other}[i%2])
			l = l.at(&rule, now)
			granted += l.units(cost)
			l = l.less(l.units(cost) * cost)
			require.GreaterOrEqual(t, l.tokens, 0.0)
			require.LessOrEqual(t, l.tokens, float64(capacity))
		}
		most := float64(capacity) + float64(now-1000)*refill/1000
		require.LessOrEqual(t, float64(granted*cost), most*(1+1e-9)+1e-6)
		requireEnough(t, l, &rule, cost, now)
	})
}

// requireEnough waits for as long as the bucket says, give or take what a float
// cannot tell of a large balance.
func requireEnough(t *testing.T, l level, rule *limit.Rule, cost, now int64) {
	t.Helper()
	wait := l.wait(cost, rule, now)
	after := l.at(rule, now+wait)
	after.tokens += float64(rule.Capacity)*1e-15 + rule.Refill*1e-9 + tokenSlack
	require.Positive(t, after.units(cost), "waited %d ms, has %v", wait, after.tokens)
}
