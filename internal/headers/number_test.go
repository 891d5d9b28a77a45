package headers

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReset(t *testing.T) {
	t.Parallel()
	whole := time.Unix(1_785_000_000, 0)
	for name, test := range map[string]struct {
		now          time.Time
		after        time.Duration
		delta, epoch int64
	}{
		"full at a whole second":        {whole, 0, 0, 1_785_000_000},
		"full within a second":          {whole.Add(time.Nanosecond), 0, 0, 1_785_000_001},
		"whole and whole":               {whole, 40 * time.Second, 40, 1_785_000_040},
		"parts that make a whole":       {whole.Add(250 * time.Millisecond), 750 * time.Millisecond, 1, 1_785_000_001},
		"parts that make more than one": {whole.Add(600 * time.Millisecond), 600 * time.Millisecond, 1, 1_785_000_002},
		"less than nothing":             {whole, -time.Second, 0, 1_785_000_000},
		"ten years":                     {whole, 10 * 365 * 24 * time.Hour, 315_360_000, 2_100_360_000},
	} {
		require.Equal(t, test.delta, Reset(false, test.now, test.after), name)
		require.Equal(t, test.epoch, Reset(true, test.now, test.after), name)
		require.False(t, time.Unix(test.epoch, 0).Before(test.now.Add(max(0, test.after))), "%s: not too early", name)
	}
}

// TestH10Waits rounds the longest times that there are.
func TestH10Waits(t *testing.T) {
	t.Parallel()
	require.Equal(t, math.MaxInt64/int64(time.Second)+1, WholeSeconds(math.MaxInt64))
	require.Equal(t, math.MaxInt64/int64(time.Millisecond)+1, RoundedUp(math.MaxInt64, time.Millisecond))
	require.Equal(t, []int64{0, 0, 1, 1, 2}, []int64{WholeSeconds(-1), WholeSeconds(0), WholeSeconds(1), WholeSeconds(time.Second), WholeSeconds(time.Second + 1)})
}
