package fleet

import (
	"math/rand/v2"
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
	var told []EventKind
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
	require.Equal(t, []EventKind{RulesDisagree}, told)
	d.missed()
	pass(300, true)
	require.Equal(t, []EventKind{RulesDisagree}, told)
	pass(300, false)
	require.Equal(t, []EventKind{RulesDisagree, RulesAgree}, told)
}

// TestHeadcountSimulated runs fleets for hours through outages of Redis, which may
// come back empty, with gateways that are back up to 8 s later than the first: the
// shares never add up to more than the whole.
func TestHeadcountSimulated(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	seconds, outages, largest := 0, 0, 0.0
	for range 20 {
		f := simulated{times: usualRhythm(), now: time.Unix(1_785_000_000, 0)}
		f.join(2 + random.IntN(9))
		f.pass(3 * time.Second)
		quiet := 0 // seconds that are left before something may happen again
		for range 1000 {
			seconds++
			quiet--
			switch {
			case quiet > 0:
			case random.IntN(20) == 0:
				outages++
				quiet = 10
				f.outage(time.Duration(random.IntN(60_000))*time.Millisecond, random)
			case random.IntN(100) == 0:
				f.join(1)
				f.pass(2 * time.Second) // until the others know
			}
			f.pass(time.Second)
			largest = max(largest, f.shares())
		}
	}
	t.Logf("%d s, %d outages: the largest sum of shares is %.3f", seconds, outages, largest)
	require.LessOrEqual(t, largest, 1+1e-9)
}

// simulated is a fleet by the clock of its Redis.
type simulated struct {
	times  rhythm
	now    time.Time
	seen   map[int]time.Time
	counts []*headcount
	due    []time.Time
}

func (f *simulated) join(n int) {
	for range n {
		f.counts = append(f.counts, new(headcount))
		f.due = append(f.due, f.now)
	}
}

// pass lets each gateway keep its heartbeat for a while.
func (f *simulated) pass(d time.Duration) {
	for until := f.now.Add(d); f.now.Before(until); f.now = f.now.Add(50 * time.Millisecond) {
		for i, due := range f.due {
			if due.After(f.now) {
				continue
			}
			f.due[i] = f.now.Add(f.times.next())
			f.counts[i].counted(f.beat(i), 1, f.now, f.times)
		}
	}
}

func (f *simulated) beat(i int) (live int64) {
	if f.seen == nil {
		f.seen = map[int]time.Time{}
	}
	f.seen[i] = f.now
	for _, at := range f.seen {
		if f.now.Sub(at) <= f.times.expiry {
			live++
		}
	}
	return live
}

// outage has nobody reach Redis, and everybody again at a moment of their own.
func (f *simulated) outage(d time.Duration, random *rand.Rand) {
	if random.IntN(2) == 0 {
		f.seen = nil
	}
	f.now = f.now.Add(d)
	for i, count := range f.counts {
		if d > f.times.interval {
			count.missed()
		}
		f.due[i] = f.now.Add(time.Duration(random.IntN(8000)) * time.Millisecond)
	}
}

// shares is the sum of what the gateways would give on their own.
func (f *simulated) shares() (sum float64) {
	for _, count := range f.counts {
		sum += 1 / float64(count.inForce)
	}
	return sum
}
