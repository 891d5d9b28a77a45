package limit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		n      int64
		refill float64
	}{
		"100/s":        {100, 100},
		"5/m":          {5, 5.0 / 60},
		"36/h":         {36, 0.01},
		"1/d":          {1, 1.1574074074074073e-05},
		"100/10s":      {100, 10},
		"1/1000s":      {1, 0.001},
		"7/2d":         {7, 7.0 / 172800},
		"1/3650d":      {1, 1 / (3650 * 86400.0)},
		"3/1m30s":      {3, 3.0 / 90},
		"2147483647/s": {2147483647, 2147483647},
		"1/1ms":        {1, 1000},
	} {
		n, refill, err := limit.ParseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want.n, n, text)
		require.InEpsilon(t, want.refill, refill, 1e-15, text)
	}
}

func TestParseRateRefuses(t *testing.T) {
	t.Parallel()
	for text, part := range map[string]string{
		"":                            "not of the form <n>/<unit>",
		"100":                         "not of the form <n>/<unit>",
		"/s":                          "whole number from 1 to 2147483647",
		"0/s":                         "whole number from 1 to 2147483647",
		"-1/s":                        "whole number from 1 to 2147483647",
		"1.5/s":                       "whole number from 1 to 2147483647",
		"1e3/s":                       "whole number from 1 to 2147483647",
		"0x10/s":                      "whole number from 1 to 2147483647",
		"2147483648/s":                "whole number from 1 to 2147483647",
		"99999999999999999999/s":      "whole number from 1 to 2147483647",
		"1/":                          "not s, m, h, d or a duration above 0",
		"1/x":                         "not s, m, h, d or a duration above 0",
		"1/0s":                        "not s, m, h, d or a duration above 0",
		"1/-5s":                       "not s, m, h, d or a duration above 0",
		"1/10":                        "not s, m, h, d or a duration above 0",
		"1/s/s":                       "not s, m, h, d or a duration above 0",
		"1/0d":                        "whole number from 1 to 3650",
		"1/3651d":                     "whole number from 1 to 3650",
		"1/1.5d":                      "whole number from 1 to 3650",
		strings.Repeat("9", 500):      "…",
		"1/" + strings.Repeat("x", 9): "the unit \"xxxxxxxxx\"",
	} {
		_, _, err := limit.ParseRate(text)
		require.ErrorContains(t, err, part, text)
		require.Less(t, len(err.Error()), 250, "the text is clipped")
	}
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"100/s", "1/1000s", "7/2d", "1/1ns", "2147483647/3650d", "+1/s", "1/99999h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, refill, err := limit.ParseRate(text)
		if err != nil {
			require.Zero(t, n)
			require.Zero(t, refill)
			return
		}
		require.Positive(t, n)
		require.LessOrEqual(t, n, int64(limit.MaxCapacity))
		require.Positive(t, refill)
		require.LessOrEqual(t, refill, limit.MaxCapacity*1e9)
	})
}
