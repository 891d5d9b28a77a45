package limit_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestA16Bounds holds rules just within the bounds and just outside of them.
func TestA16Bounds(t *testing.T) {
	t.Parallel()
	const tenYears = 10 * 365 * 86400.0
	for name, c := range map[string]struct {
		rule   limit.Rule
		window int64 // 0: refused
	}{
		"one a second":             {limit.Rule{Capacity: 1, Refill: 1}, 1000},
		"largest capacity":         {limit.Rule{Capacity: math.MaxInt32, Refill: math.MaxInt32}, 1000},
		"over it":                  {limit.Rule{Capacity: math.MaxInt32 + 1, Refill: math.MaxInt32}, 0},
		"no capacity":              {limit.Rule{Refill: 1}, 0},
		"negative capacity":        {limit.Rule{Capacity: -1, Refill: 1}, 0},
		"largest log":              {limit.Rule{Capacity: 100_000, Refill: 1, Algorithm: limit.SlidingWindowLog}, 100_000_000},
		"over it, log":             {limit.Rule{Capacity: 100_001, Refill: 1, Algorithm: limit.SlidingWindowLog}, 0},
		"over it, counter":         {limit.Rule{Capacity: 100_001, Refill: 1, Algorithm: limit.SlidingWindowCounter}, 100_001_000},
		"window of 1 ms":           {limit.Rule{Capacity: 1, Refill: 1000}, 1},
		"window of just 1 ms":      {limit.Rule{Capacity: 1, Refill: 2000}, 1},
		"window under 1 ms":        {limit.Rule{Capacity: 1, Refill: 2001}, 0},
		"window of 10 years":       {limit.Rule{Capacity: 1, Refill: 1 / tenYears}, tenYears * 1000},
		"window over 10 years":     {limit.Rule{Capacity: 1, Refill: 1 / (tenYears + 1)}, 0},
		"windows are rounded":      {limit.Rule{Capacity: 1, Refill: 3}, 333},
		"and not ceiled":           {limit.Rule{Capacity: 100, Refill: 0.3}, 333_333},
		"no refill":                {limit.Rule{Capacity: 1}, 0},
		"negative refill":          {limit.Rule{Capacity: 1, Refill: -1}, 0},
		"NaN":                      {limit.Rule{Capacity: 1, Refill: math.NaN()}, 0},
		"infinite":                 {limit.Rule{Capacity: 1, Refill: math.Inf(1)}, 0},
		"smallest float":           {limit.Rule{Capacity: 1, Refill: math.SmallestNonzeroFloat64}, 0},
		"largest float":            {limit.Rule{Capacity: 1, Refill: math.MaxFloat64}, 0},
		"unknown algorithm":        {limit.Rule{Capacity: 1, Refill: 1, Algorithm: 4}, 0},
		"unknown mode":             {limit.Rule{Capacity: 1, Refill: 1, Mode: 5}, 0},
		"most prefetch":            {limit.Rule{Capacity: 1, Refill: 1, Prefetch: 100_000}, 1000},
		"over it, prefetch":        {limit.Rule{Capacity: 1, Refill: 1, Prefetch: 100_001}, 0},
		"auto prefetch":            {limit.Rule{Capacity: 1, Refill: 1, Prefetch: limit.PrefetchAuto}, 1000},
		"negative prefetch":        {limit.Rule{Capacity: 1, Refill: 1, Prefetch: -3}, 0},
		"most shards":              {limit.Rule{Capacity: 1, Refill: 1, Shards: 16}, 1000},
		"over it, shards":          {limit.Rule{Capacity: 1, Refill: 1, Shards: 17}, 0},
		"a window from elsewhere":  {limit.Rule{Capacity: 1, Refill: 1, WindowMillis: 7}, 1000},
		"a capacity of over 2^53?": {limit.Rule{Capacity: math.MaxInt64, Refill: 1}, 0},
	} {
		rule, err := limit.NewRule(c.rule)
		if c.window == 0 {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.window, rule.WindowMillis, name)
		c.rule.WindowMillis = c.window
		require.Equal(t, c.rule, rule, name)
	}
}

// TestH10Share divides the longest window: it stays within the bound.
func TestH10Share(t *testing.T) {
	t.Parallel()
	rule, err := limit.NewRule(limit.Rule{Capacity: 1, Refill: 1 / limit.MaxWindow.Seconds(), Algorithm: limit.TokenBucket})
	require.NoError(t, err)
	require.Equal(t, rule, rule.Share(100_000))
}

// TestF4Share is what an instance gives of a rule, under each algorithm: never 0.
func TestF4Share(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm         limit.Algorithm
		capacity, n, want int64
		refill            float64
		window            int64
	}{
		{limit.TokenBucket, 10, 1, 10, 1, 10_000},
		{limit.TokenBucket, 10, 0, 10, 1, 10_000},
		{limit.TokenBucket, 10, -1, 10, 1, 10_000},
		{limit.TokenBucket, 10, 3, 3, 1.0 / 3, 9_000},
		{limit.TokenBucket, 2, 3, 1, 1.0 / 3, 3_000},
		{limit.TokenBucket, 10, 6, 1, 1.0 / 6, 6_000},
		{limit.TokenBucket, 1, 100_000, 1, 1e-5, 100_000_000},
		{0, 10, 3, 3, 1.0 / 3, 9_000},
		{limit.SlidingWindowLog, 10, 3, 3, 0.3, 10_000},
		{limit.SlidingWindowLog, 2, 3, 1, 0.5, 2_000},
		{limit.SlidingWindowCounter, 100, 7, 14, 0.14, 100_000},
	} {
		rule, err := limit.NewRule(limit.Rule{Capacity: c.capacity, Refill: 1, Algorithm: c.algorithm, Mode: limit.Shadow, Prefetch: 5, Shards: 2})
		require.NoError(t, err)
		share := rule.Share(c.n)
		require.Equal(t, c.want, share.Capacity, c)
		require.InEpsilon(t, c.refill, share.Refill, 1e-12, c)
		require.Equal(t, c.window, share.WindowMillis, c)
		share.Capacity, share.Refill, share.WindowMillis = rule.Capacity, rule.Refill, rule.WindowMillis
		require.Equal(t, rule, share, "nothing else changes")
	}
}

func FuzzShare(f *testing.F) {
	f.Add(int64(10), 1.0, uint8(1), int64(3))
	f.Add(int64(math.MaxInt32), 1e12, uint8(3), int64(100_000))
	f.Fuzz(func(t *testing.T, capacity int64, refill float64, algorithm uint8, n int64) {
		rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill, Algorithm: limit.Algorithm(algorithm)})
		if err != nil {
			t.Skip()
		}
		share := rule.Share(n)
		require.GreaterOrEqual(t, share.Capacity, int64(1))
		require.LessOrEqual(t, share.Capacity, rule.Capacity)
		require.Positive(t, share.Refill)
		require.Positive(t, share.WindowMillis)
		if n > 1 && capacity >= n && n <= 100_000 {
			require.LessOrEqual(t, share.Capacity*n, rule.Capacity, "all shares together are within the limit")
		}
	})
}

func TestOr(t *testing.T) {
	t.Parallel()
	defaults := limit.Rule{
		Capacity: 9, Refill: 9, WindowMillis: 9, Prefetch: 7, Algorithm: limit.SlidingWindowLog, Mode: limit.Deny, Shards: 4,
	}
	rule := limit.Rule{Capacity: 1, Refill: 2, WindowMillis: 500}
	want := defaults
	want.Capacity, want.Refill, want.WindowMillis = rule.Capacity, rule.Refill, rule.WindowMillis
	require.Equal(t, want, rule.Or(defaults))

	named := limit.Rule{
		Capacity: 1, Refill: 2, WindowMillis: 500, Prefetch: limit.PrefetchOff, Algorithm: limit.TokenBucket, Mode: limit.Enforce, Shards: 1,
	}
	require.Equal(t, named, named.Or(defaults))
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowLog, limit.SlidingWindowCounter} {
		parsed, err := limit.ParseAlgorithm(algorithm.String())
		require.NoError(t, err)
		require.Equal(t, algorithm, parsed)
	}
	for _, mode := range []limit.Mode{limit.Enforce, limit.Shadow, limit.Unlimited, limit.Deny} {
		parsed, err := limit.ParseMode(mode.String())
		require.NoError(t, err)
		require.Equal(t, mode, parsed)
	}
	for _, word := range []string{"", "Token_Bucket", "leaky"} {
		_, err := limit.ParseAlgorithm(word)
		require.ErrorContains(t, err, "allowed are token_bucket")
		_, err = limit.ParseMode(word)
		require.ErrorContains(t, err, "allowed are enforce")
	}
	require.Empty(t, limit.Algorithm(0).String())
	require.Empty(t, limit.Mode(0).String())
}

func TestSources(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for source := range limit.Sources {
		words[limit.Source(source).String()] = true
	}
	require.Equal(t, map[string]bool{"none": true, "redis": true, "prefetch": true, "remembered": true, "local": true}, words)
}

func TestDecisionAt(t *testing.T) {
	t.Parallel()
	d := limit.Decision{First: limit.State{Remaining: 1}, Rest: []limit.State{{Remaining: 2}, {Remaining: 3}}}
	for i := range 3 {
		require.Equal(t, int64(i+1), d.At(i).Remaining)
	}
}

// TestScale holds a region's part of a rule: what all regions give together is
// never more than the rule, but for the one token of a part that is too small.
func TestScale(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule  limit.Rule
		share float64
		want  limit.Rule
	}{
		"a bucket":          {limit.Rule{Capacity: 200, Refill: 100}, 0.7, limit.Rule{Capacity: 140, Refill: 70, WindowMillis: 2000}},
		"rounded down":      {limit.Rule{Capacity: 10, Refill: 10}, 0.25, limit.Rule{Capacity: 2, Refill: 2.5, WindowMillis: 800}},
		"a product short":   {limit.Rule{Capacity: 100, Refill: 100}, 0.29, limit.Rule{Capacity: 29, Refill: 28.999999999999996, WindowMillis: 1000}},
		"at least one":      {limit.Rule{Capacity: 3, Refill: 1}, 0.01, limit.Rule{Capacity: 1, Refill: 0.01, WindowMillis: 100_000}},
		"the whole":         {limit.Rule{Capacity: 3, Refill: 1}, 1, limit.Rule{Capacity: 3, Refill: 1, WindowMillis: 3000}},
		"over it":           {limit.Rule{Capacity: 3, Refill: 1}, 7, limit.Rule{Capacity: 3, Refill: 1, WindowMillis: 3000}},
		"no number":         {limit.Rule{Capacity: 3, Refill: 1}, math.NaN(), limit.Rule{Capacity: 3, Refill: 1, WindowMillis: 3000}},
		"nothing":           {limit.Rule{Capacity: 1000, Refill: 1000}, 0, limit.Rule{Capacity: 1, Refill: 0.001, WindowMillis: 1_000_000}},
		"a window's length": {limit.Rule{Capacity: 10, Refill: 1, Algorithm: limit.SlidingWindowLog}, 0.35, limit.Rule{Capacity: 3, Refill: 0.3, WindowMillis: 10_000, Algorithm: limit.SlidingWindowLog}},
		"a counter's":       {limit.Rule{Capacity: 2, Refill: 2, Algorithm: limit.SlidingWindowCounter}, 0.01, limit.Rule{Capacity: 1, Refill: 1, WindowMillis: 1000, Algorithm: limit.SlidingWindowCounter}},
		"what it names":     {limit.Rule{Capacity: 10, Refill: 10, Shards: 4, Prefetch: 7, Mode: limit.Shadow}, 0.5, limit.Rule{Capacity: 5, Refill: 5, WindowMillis: 1000, Shards: 4, Prefetch: 7, Mode: limit.Shadow}},
		"ten years at most": {limit.Rule{Capacity: 1, Refill: 1 / limit.MaxWindow.Seconds()}, 0.01, limit.Rule{Capacity: 1, Refill: 1 / limit.MaxWindow.Seconds(), WindowMillis: limit.MaxWindow.Milliseconds()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, err := limit.NewRule(test.rule)
			require.NoError(t, err)
			require.Equal(t, test.want, rule.Scale(test.share))
		})
	}
}

func TestScaledRulesSumToTheWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(6, 3))
	for range 20_000 {
		rule, err := limit.NewRule(limit.Rule{Capacity: 1 + random.Int64N(limit.MaxCapacity), Refill: 1 + random.Float64()*1e6})
		require.NoError(t, err)
		first := 0.01 + random.Float64()*0.98
		one, other := rule.Scale(first), rule.Scale(1-first)
		if one.Capacity > 1 && other.Capacity > 1 {
			require.LessOrEqual(t, one.Capacity+other.Capacity, rule.Capacity)
		}
		require.InEpsilon(t, rule.Refill, one.Refill+other.Refill, 1e-9)
		require.LessOrEqual(t, one.Capacity, rule.Capacity)
	}
}

func TestScaleDoesNotAllocate(t *testing.T) {
	rule, err := limit.NewRule(limit.Rule{Capacity: 200, Refill: 100})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { rule.Scale(0.7) }))
}

func BenchmarkScale(b *testing.B) {
	rule, err := limit.NewRule(limit.Rule{Capacity: 200, Refill: 100})
	require.NoError(b, err)
	b.ReportAllocs()
	var sum int64
	for b.Loop() {
		sum += rule.Scale(0.7).Capacity
	}
	require.Positive(b, sum)
}
