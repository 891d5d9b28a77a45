package redisbucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// step is one second of a headcount: what was counted, 0 where nothing could be,
// and the number that is in force then.
type step struct{ counted, inForce int64 }

func steps(n int, s step) []step {
	list := make([]step, n)
	for i := range list {
		list[i] = s
	}
	return list
}

func joined(parts ...[]step) (all []step) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// TestHeadcount takes a count each second, where 10 s are the hold and more than
// 5 s are a break.
func TestHeadcount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		until int64
		steps []step
	}{
		"a higher count is believed at once": {1, []step{{1, 1}, {3, 3}, {4, 4}}},
		"a lower one after the hold":         {1, joined([]step{{3, 3}}, steps(10, step{2, 3}), []step{{2, 2}})},
		"what is assumed counts as counted":  {3, joined(steps(10, step{1, 3}), []step{{1, 1}})},
		"nothing counted changes nothing":    {3, joined(steps(30, step{0, 0}), []step{{2, 3}})},
		"the highest of the hold is believed": {
			1, joined([]step{{5, 5}}, steps(4, step{1, 5}), []step{{3, 5}}, steps(5, step{2, 5}), []step{{2, 3}}),
		},
		"back up in the hold": {1, joined([]step{{3, 3}}, steps(8, step{1, 3}), []step{{3, 3}}, steps(10, step{1, 3}), []step{{1, 1}})},
		"an outage begins the hold anew": {
			1, joined([]step{{3, 3}}, steps(9, step{2, 3}), []step{{0, 3}}, steps(10, step{2, 3}), []step{{2, 2}}),
		},
		"an outage forgets nothing":      {1, joined([]step{{3, 3}}, steps(1000, step{0, 3}), steps(10, step{1, 3}), []step{{1, 1}})},
		"they come back one by one":      {1, joined([]step{{3, 3}}, steps(60, step{0, 3}), steps(5, step{1, 3}), steps(4, step{2, 3}), steps(30, step{3, 3}))},
		"going down step by step":        {1, joined([]step{{4, 4}}, steps(10, step{3, 4}), steps(10, step{2, 3}), []step{{2, 2}})},
		"a hundred thousand":             {100_000, []step{{99_999, 100_000}, {100_001, 100_001}}},
		"at least one, whatever is said": {0, []step{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count, now := headcount{}, time.Unix(1_785_000_000, 0)
			for i, s := range test.steps {
				now = now.Add(time.Second)
				if s.counted == 0 {
					count.missed()
				} else {
					count.counted(s.counted, test.until, now, usualRhythm())
				}
				require.Equal(t, s.inForce, count.inForce, "step %d", i)
			}
		})
	}
}

// TestHeadcountAfterAPause has the process not run for a while: nothing that it saw
// before tells of the time in between.
func TestHeadcountAfterAPause(t *testing.T) {
	t.Parallel()
	count, now := headcount{}, time.Unix(1_785_000_000, 0)
	at := func(seconds int, n int64) int64 {
		count.counted(n, 1, now.Add(time.Duration(seconds)*time.Second), usualRhythm())
		return count.inForce
	}
	require.Equal(t, int64(3), at(0, 3))
	require.Equal(t, int64(3), at(1, 2))
	require.Equal(t, int64(3), at(60, 1), "a minute went by that nobody saw")
	for second := 61; second < 70; second++ {
		require.Equal(t, int64(3), at(second, 1))
	}
	require.Equal(t, int64(1), at(70, 1))
}

// TestDisagreement tells once of over a minute, and once of its end.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	var d disagreement
	now := time.Unix(1_785_000_000, 0)
	var told []FleetEventKind
	pass := func(seconds int, disagree bool) {
		for range seconds {
			now = now.Add(time.Second)
			if kind := d.seen(disagree, now, time.Minute); kind != 0 {
				told = append(told, kind)
			}
		}
	}
	pass(60, true)
	pass(1, false)
	require.Empty(t, told, "no longer than a minute")
	pass(50, true)
	d.missed()
	pass(50, true)
	require.Empty(t, told, "nothing is known of the time in between")
	pass(300, true)
	require.Equal(t, []FleetEventKind{RulesDisagree}, told)
	d.missed()
	pass(300, true)
	require.Equal(t, []FleetEventKind{RulesDisagree}, told)
	pass(300, false)
	require.Equal(t, []FleetEventKind{RulesDisagree, RulesAgree}, told)
}
