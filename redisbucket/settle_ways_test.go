package redisbucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestSettlementsOfBothWays: a bucket in good order is settled in straight lines, and
// that is, to the digit, what the long way does: in the reply and in what is stored.
func TestSettlementsOfBothWays(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	short := timedScript(t)
	const condition = "n == -1 and count == -1 and kind == 1"
	require.Equal(t, 1, strings.Count(short, condition))
	long := strings.Replace(short, condition, "false", 1)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a trace is no secret
	const now, far = 1_785_000_000_000, 1_000_000_000
	for i := range 2000 {
		capacity := math.Ceil(math.Pow(1e6, random.Float64()))
		refill := []float64{0.1, 1.0 / 3, 1, 7, 1000}[random.IntN(5)]
		tokens := capacity * (3*random.Float64() - 1.2)
		if random.IntN(2) == 0 {
			tokens = math.Round(tokens)
		}
		more := math.Round(capacity * (2*random.Float64() - 1.2))
		entry := appendNumbers(nil, -1, 5, -1, 1, capacity, refill, math.Round(capacity*1000/refill), more)
		stamp := now - random.Int64N(3000) + random.Int64N(2)*random.Int64N(3000)
		both := [2][]any{}
		for way, text := range []string{short, long} {
			key := fmt.Sprintf("k%d", i)
			require.NoError(t, client.Del(t.Context(), key).Err())
			if i%10 > 0 {
				require.NoError(t, client.HSet(t.Context(), key, "tokens", tokens, "ts", stamp).Err())
				require.NoError(t, client.PExpire(t.Context(), key, far*time.Millisecond).Err())
			}
			reply, err := client.Eval(t.Context(), text, []string{key}, entry, now/1000, 0).Int64Slice()
			require.NoError(t, err)
			both[way] = append(both[way], reply, client.HGetAll(t.Context(), key).Val())
			expires(t, client, key)
		}
		require.Equal(t, both[1], both[0], "capacity %v, refill %v, tokens %v, more %v", capacity, refill, tokens, more)
	}
}

// expires fails where a key has no end.
func expires(t *testing.T, client *redis.Client, key string) {
	t.Helper()
	if client.Exists(t.Context(), key).Val() > 0 {
		require.Positive(t, client.PTTL(t.Context(), key).Val())
	}
}
