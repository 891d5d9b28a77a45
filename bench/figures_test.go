package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := append([]float64(nil), test.values...)
		require.Equal(t, test.want, median(test.values))
		require.Equal(t, before, test.values, "the order of rounds is kept, because others pair by it")
	}
}

// rates are samples of a second each with so many answers.
func rates(perSecond ...int64) []sample {
	samples := make([]sample, len(perSecond))
	for i, n := range perSecond {
		samples[i] = sample{shot: shot{requests: n, took: time.Second}}
	}
	return samples
}

func TestPairedComparesWithinARound(t *testing.T) {
	t.Parallel()
	// The machine is ten times slower in the second round: the ratio stays.
	require.InDelta(t, 0.9, paired(rates(900, 90, 900), rates(1000, 100, 1000)), 1e-9)
	require.Zero(t, paired(rates(1), nil))
	require.Zero(t, paired(rates(1), rates(0)), "nothing to compare with")
}

// timed are samples with that p99 each.
func timed(millis ...int) []sample {
	samples := make([]sample, len(millis))
	for i, n := range millis {
		samples[i] = sample{shot: shot{p99: time.Duration(n) * time.Millisecond}}
	}
	return samples
}

func TestDifferencesAreTakenWithinARound(t *testing.T) {
	t.Parallel()
	// The second round is slow for both: what one adds stays.
	require.InDelta(t, 2, added(timed(5, 105, 6), timed(3, 103, 3), sample.p99Millis), 1e-9)
	require.InDelta(t, -1, added(timed(2), timed(3, 9), sample.p99Millis), 1e-9)
	require.Zero(t, added(nil, timed(3), sample.p99Millis))
}

func TestBeyondComparesWhatTwoAdd(t *testing.T) {
	t.Parallel()
	base, today, before := timed(10, 20, 10), timed(15, 30, 15), timed(20, 40, 20)
	got, measured := beyond(today, before, base, sample.p99Millis)
	require.True(t, measured)
	require.InDelta(t, 0.5, got, 1e-9)
	got, measured = beyond(timed(15, 15), timed(9, 20), timed(10, 10), sample.p99Millis)
	require.True(t, measured)
	require.InDelta(t, 0.5, got, 1e-9, "a round in which the other adds nothing is left out")
	_, measured = beyond(today, base, base, sample.p99Millis)
	require.False(t, measured)
	_, measured = beyond(today, nil, base, sample.p99Millis)
	require.False(t, measured)
}

func TestDecisionsByRedis(t *testing.T) {
	t.Parallel()
	s := sample{shot: shot{took: 2 * time.Second}, reading: reading{calls: 10, counts: counts{redis: 100, opened: 1}}}
	require.Equal(t, 5.0, s.byRedis(), "a handler with PINGs has one call for each")
	s.counted = true
	require.Equal(t, 50.0, s.byRedis(), "ours has fewer, and counts")
	require.EqualValues(t, 2, openings([]sample{s, s}))
}

func TestFloodCountsRefusals(t *testing.T) {
	t.Parallel()
	s := sample{shot: shot{requests: 1000, statuses: 900, took: 2 * time.Second}}
	require.Equal(t, 500.0, s.rate())
	s.flood = true
	require.Equal(t, 450.0, s.rate())
	require.Equal(t, 50.0, s.admitted())
}

func TestSurprises(t *testing.T) {
	t.Parallel()
	ordinary := cell{name: nameAlone}
	require.Zero(t, ordinary.surprises(shot{requests: 10, took: time.Second}))
	require.EqualValues(t, 3, ordinary.surprises(shot{requests: 10, statuses: 2, broken: 1, took: time.Second}))

	pinged := cell{name: namePinged}
	require.Zero(t, pinged.surprises(shot{requests: 10, statuses: 10}), "an overload of PINGs is told, and not what is measured")

	ours, refuses := cell{name: nameStrict, flood: true}, cell{name: nameRefuse, flood: true}
	require.Zero(t, ours.surprises(shot{requests: 10_000, statuses: 9_800, took: time.Second}), "200 may pass in a second")
	require.EqualValues(t, 9_400, ours.surprises(shot{requests: 10_000, took: time.Second}), "10,000 may not")
	require.Zero(t, refuses.surprises(shot{requests: 10_000, statuses: 10_000, took: time.Second}))
	require.EqualValues(t, 1, refuses.surprises(shot{requests: 10_000, statuses: 9_999, took: time.Second}))
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 100_000: "100,000", 1_234_567: "1,234,567", -1000: "-1,000"} {
		require.Equal(t, want, grouped(n))
	}
}
