package localbucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestD9RatesChange is the example of docs/rules.md: time that has passed before a
// rule changed counts at the rate in force when the bucket is asked.
func TestD9RatesChange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		before, after limit.Rule
		asked         int64 // under the old rule, just before it changes
		finds         int64
	}{
		{"slower", limit.Rule{Capacity: 100, Refill: 10}, limit.Rule{Capacity: 100, Refill: 1}, 0, 5},
		{"faster", limit.Rule{Capacity: 100, Refill: 1}, limit.Rule{Capacity: 100, Refill: 10}, 0, 50},
		{"never more than the new capacity", limit.Rule{Capacity: 100, Refill: 1}, limit.Rule{Capacity: 20, Refill: 10}, 0, 20},
		{"a longer window does not find again what was dropped", windowed(10, 5*time.Second), windowed(10, time.Minute), 1, 9},
		{"a longer window", windowed(10, 10*time.Second), windowed(10, time.Minute), 0, 0},
		{"a shorter window", windowed(10, time.Minute), windowed(10, 4*time.Second), 0, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			l := New(NewStore(), Options{Clock: func() time.Time { return now }})
			all := func(rule limit.Rule, count int64) int64 {
				rule, err := limit.NewRule(rule)
				require.NoError(t, err)
				decision, err := l.Take(t.Context(), limit.Request{
					Buckets: []limit.Bucket{{Key: limit.Key{Tenant: "t", Route: "a"}, Rule: rule}}, Cost: 1, Count: count,
				})
				require.NoError(t, err)
				return decision.Granted
			}
			require.Equal(t, test.before.Capacity, all(test.before, 1000))
			now = now.Add(5 * time.Second)
			if test.asked > 0 {
				require.Equal(t, test.asked, all(test.before, test.asked))
			}
			require.Equal(t, test.finds, all(test.after, 1000))
		})
	}
}

// windowed is a rule of a sliding window.
func windowed(capacity int64, window time.Duration) limit.Rule {
	return limit.Rule{Algorithm: limit.SlidingWindowLog, Capacity: capacity, Refill: float64(capacity) / window.Seconds()}
}
