package redisbucket

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTakeCountsDown(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	r := rule(t, 3, 0.001)
	for want := int64(2); want >= 0; want-- {
		d := take(t, b, r)
		require.Equal(t, int64(1), d.Granted)
		require.Equal(t, want, d.First.Remaining)
	}
	d := take(t, b, r)
	require.Zero(t, d.Granted)
	require.Positive(t, d.First.RetryAfter)
}
