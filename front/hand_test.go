package front

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestW1TokensAhead: of a log, no more is taken ahead than one call can bear.
func TestW1TokensAhead(t *testing.T) {
	t.Parallel()
	for algorithm, want := range map[limit.Algorithm]int64{limit.SlidingWindowLog: 400, limit.TokenBucket: 10_000} {
		for _, prefetch := range []int32{limit.PrefetchAuto, 100_000} {
			rule := limit.Rule{Capacity: 100_000, Refill: 100_000, Algorithm: algorithm, Prefetch: prefetch}
			require.Equal(t, want, most(&rule), algorithm)
		}
	}
}
