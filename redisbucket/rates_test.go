package redisbucket

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
	const slow, fast = 1, 10 // a second
	for _, test := range []struct {
		name          string
		before, after limit.Rule
		finds         int64
	}{
		{"slower", rule(t, 100, fast), rule(t, 100, slow), 5},
		{"faster", rule(t, 100, slow), rule(t, 100, fast), 50},
		{"never more than the new capacity", rule(t, 100, slow), rule(t, 20, fast), 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := onRedis(t)
			all := ask(test.before)
			all.Count = 100
			emptied, err := b.Take(t.Context(), all)
			require.NoError(t, err)
			require.Equal(t, int64(100), emptied.Granted)
			// The 5 s end now, by Redis' clock; what passes until it is asked is allowed for.
			require.NoError(t, b.redis.HSet(t.Context(), tokenKey, "tokens", 0, "ts", b.now(t)-(5*time.Second).Milliseconds()).Err())
			began := b.now(t)
			all.Buckets[0].Rule = test.after
			found, err := b.Take(t.Context(), all)
			require.NoError(t, err)
			took := float64(b.now(t)-began+1) / 1000
			require.GreaterOrEqual(t, found.Granted, test.finds)
			require.LessOrEqual(t, float64(found.Granted), min(float64(test.finds)+took*test.after.Refill+1, float64(test.after.Capacity)))
		})
	}
}
