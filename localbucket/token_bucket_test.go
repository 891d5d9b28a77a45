package localbucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestLevelUnder(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Capacity: 10, Refill: 2}
	for name, c := range map[string]struct{ stored, want level }{
		"as it is":            {level{tokens: 3, stamp: 1}, level{tokens: 3, stamp: 1}},
		"cut to the capacity": {level{tokens: 50, stamp: 1}, level{tokens: 10, stamp: 1}},
		"a debt":              {level{tokens: -10, stamp: 1}, level{tokens: -10, stamp: 1}},
		"a debt that is cut":  {level{tokens: -11, stamp: 1}, level{tokens: -10, stamp: 1}},
	} {
		require.Equal(t, c.want, c.stored.under(&rule, 1000), name)
	}
}

func TestLevelBalance(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Capacity: 10, Refill: 2}
	for name, c := range map[string]struct {
		at   int64
		want float64
	}{
		"nothing passed":       {1000, 3},
		"before the stamp":     {-5000, 3},
		"fractions":            {1001, 3.002},
		"up to the capacity":   {9000, 10},
		"a very long time":     {math.MaxInt64 / 2, 10},
		"exactly to the brink": {4500, 10},
	} {
		require.InDelta(t, c.want, level{tokens: 3, stamp: 1000}.balance(&rule, c.at), 1e-15, name)
	}
}

func TestLevelUnits(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Capacity: limit.MaxCapacity, Refill: 2}
	for _, c := range []struct {
		tokens     float64
		cost, want int64
	}{
		{0, 1, 0},
		{0.9, 1, 0},
		{1 - 2e-9, 1, 0},
		{1 - 0.5e-9, 1, 1},
		{1, 1, 1},
		{7, 3, 2},
		{9 - 0.5e-9, 3, 3},
		{limit.MaxCapacity, 1, limit.MaxCapacity},
		{5, 6, 0},
	} {
		require.Equal(t, c.want, level{tokens: c.tokens}.units(c.cost, &rule, 0), c)
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
		"counted from before": {level{stamp: -100}, rule(10, 1), 1, limit.State{RetryAfter: 900 * ms, ResetAfter: 9_900 * ms}},
		"faster than a ms":    {level{}, rule(1000, 1e9), 1, limit.State{RetryAfter: ms, ResetAfter: ms}},
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
		l := level{}.fresh(&rule, now)
		var granted int64
		for i := range 50 {
			now += int64([]uint16{pause, other}[i%2])
			l = l.under(&rule, now)
			units := l.units(cost, &rule, now)
			granted += units
			l = l.less(units*cost, &rule, now)
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
	then := now + l.wait(cost, l.balance(rule, now), rule, now)
	l.tokens += float64(rule.Capacity) * 1e-15
	require.Positive(t, l.units(cost, rule, then), "waited %d ms, has %v", then-now, l.balance(rule, then))
}
