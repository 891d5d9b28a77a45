package redisbucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrafficClasses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		took  time.Duration
		class int
	}{
		"nothing":         {0, 0},
		"at a bound":      {time.Millisecond, 3},
		"above it":        {time.Millisecond + 1, 4},
		"at the last":     {250 * time.Millisecond, RoundTrips - 2},
		"beyond the last": {time.Second, RoundTrips - 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counted traffic
			counted.note(3, test.took)
			want := Traffic{Entries: 3, Seconds: test.took.Seconds()}
			want.Calls[test.class] = 1
			require.Equal(t, want, counted.read())
		})
	}
}
