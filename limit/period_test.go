package limit

import (
	"testing"
	"time"
	_ "time/tzdata" // the test does not depend on what the machine has

	"github.com/stretchr/testify/require"
)

// walked is a calendar as somebody sees it who looks at the clock on the wall every
// quarter of an hour, and at each transition: the first instants of its periods.
func walked(t *testing.T, p Period, in *time.Location, from, to time.Time) []time.Time {
	t.Helper()
	var begins []time.Time
	var latest date
	for at := from.In(in); at.Before(to); {
		year, month, day := at.Date()
		first := p.first(date{year, month, day})
		if len(begins) == 0 || first.utc().After(latest.utc()) {
			begins, latest = append(begins, at), first
		}
		next := at.Truncate(15 * time.Minute).Add(15 * time.Minute)
		if _, until := at.ZoneBounds(); !until.IsZero() && until.Before(next) {
			next = until
		}
		at = next.In(in)
	}
	return begins
}

func TestPeriodAgainstAWalk(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "America/Santiago", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			in, err := time.LoadLocation(place)
			require.NoError(t, err)
			from, to := time.Date(2005, 1, 1, 0, 0, 0, 0, in), time.Date(2026, 12, 1, 0, 0, 0, 0, in)
			for p := Day; p <= Month; p++ {
				begins := walked(t, p, in, from, to)
				for i := 1; i+2 < len(begins); i++ {
					expected := Span{begins[i], begins[i+1], begins[i+2]}
					for _, now := range []time.Time{begins[i], begins[i].Add(7 * time.Hour), begins[i+1].Add(-1)} {
						got := p.Span(now, in)
						require.True(t, expected.Begin.Equal(got.Begin) && expected.End.Equal(got.End) && expected.NextEnd.Equal(got.NextEnd), "%s of %s at %s: %v, not %v", p, place, now, got, expected)
					}
				}
			}
		})
	}
}

func TestPeriodWithoutMidnight(t *testing.T) {
	t.Parallel()
	for place, test := range map[string]struct{ now, begin string }{
		"America/Havana":   {"2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z"}, // 0:00 is 1:00
		"Africa/Cairo":     {"2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z"},
		"America/Santiago": {"2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z"},
		"Europe/Berlin":    {"2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z"},
	} {
		in, err := time.LoadLocation(place)
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, test.now)
		require.NoError(t, err)
		require.Equal(t, test.begin, Day.Span(now, in).Begin.UTC().Format(time.RFC3339), place)
	}
}

func TestParsePeriod(t *testing.T) {
	t.Parallel()
	for p := Day; p <= Month; p++ {
		parsed, err := ParsePeriod(p.String())
		require.NoError(t, err)
		require.Equal(t, p, parsed)
	}
	_, err := ParsePeriod("year")
	require.ErrorContains(t, err, "day")
	require.Empty(t, Period(0).String())
}
