package localbucket

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func logRule(capacity, windowMillis int64) limit.Rule {
	return limit.Rule{Capacity: capacity, WindowMillis: windowMillis, Algorithm: limit.SlidingWindowLog}
}

// logOf is a log of so many tokens, one at each time.
func logOf(at ...int64) log {
	var l log
	for _, at := range at {
		l.add(at, 1, math.MaxInt32)
	}
	return l
}

// times are those of the tokens in a ring, oldest first.
func (r *ring) times() []int64 {
	all := []int64{}
	for i := range r.size {
		for range r.get(i).upTo - r.before(i) {
			all = append(all, r.get(i).at)
		}
	}
	return all
}

func TestLogUnits(t *testing.T) {
	t.Parallel()
	rule := logRule(4, 10)
	for name, c := range map[string]struct {
		log        log
		now        int64
		cost, want int64
	}{
		"empty":                    {log{}, 0, 1, 4},
		"two units of two":         {log{}, 0, 2, 2},
		"one is there":             {logOf(5), 5, 1, 3},
		"a rest is none":           {logOf(5), 5, 2, 1},
		"until the last µs":        {logOf(5), 10_004, 1, 3},
		"and no longer":            {logOf(5), 10_005, 1, 4},
		"full":                     {logOf(1, 2, 3, 4), 5, 1, 0},
		"more than the capacity":   {logOf(1, 2, 3, 4, 5, 6), 5, 1, 0},
		"those ahead count":        {logOf(1, 2, 2_000_005), 5, 1, 1},
		"costs more than there is": {logOf(1), 5, 4, 0},
	} {
		require.Equal(t, c.want, c.log.units(c.cost, &rule, c.now), name)
	}
	huge := logRule(limit.MaxCapacity, 10)
	require.Equal(t, int64(limit.MaxLogCapacity), log{}.units(1, &huge, 0), "a log of that size would be memory without end")
}

func TestLogState(t *testing.T) {
	t.Parallel()
	rule := logRule(3, 10)
	for name, c := range map[string]struct {
		log  log
		cost int64
		want limit.State
	}{
		"empty":             {log{}, 1, limit.State{Remaining: 3}},
		"room":              {logOf(-400), 2, limit.State{Remaining: 2, ResetAfter: 10 * time.Millisecond}},
		"waits are ceiled":  {logOf(-5001, -4999, 1), 1, limit.State{RetryAfter: 5 * time.Millisecond, ResetAfter: 11 * time.Millisecond}},
		"for the third":     {logOf(-5001, -4999, 1), 3, limit.State{RetryAfter: 11 * time.Millisecond, ResetAfter: 11 * time.Millisecond}},
		"over the capacity": {logOf(1), 4, limit.State{Remaining: 2, RetryAfter: limit.Never, ResetAfter: 11 * time.Millisecond}},
		"what is over":      {logOf(-3, -2, -1, 0), 1, limit.State{RetryAfter: 10 * time.Millisecond, ResetAfter: 10 * time.Millisecond}},
		"expired and not":   {logOf(-20_000, -10_000, -9_999), 3, limit.State{Remaining: 2, RetryAfter: time.Millisecond, ResetAfter: time.Millisecond}},
	} {
		require.Equal(t, c.want, c.log.state(c.cost, &rule, 0), name)
	}
}

// TestLogRoom: a log has room for as many entries as were taken, never for more
// than its capacity, and gives it back.
func TestLogRoom(t *testing.T) {
	t.Parallel()
	rule := logRule(100, 1000)
	var l log
	for now := range int64(3000) {
		if l.units(1, &rule, now*7000) > 0 {
			l = l.less(1, &rule, now*7000)
		}
		require.LessOrEqual(t, len(l.slots), 100)
		require.LessOrEqual(t, len(l.slots), max(leastPlaces, 4*int(l.size)))
	}
	require.Len(t, l.slots, 100)
	l = l.less(100, &rule, 1e9)
	require.Len(t, l.slots, leastPlaces, "many at one instant are one entry")
}

func TestLogMemory(t *testing.T) {
	const capacity = 10_000
	l := newTester()
	a := bucketOf(t, "a", capacity, 0.001)
	a.Rule.Algorithm = limit.SlidingWindowLog
	before := heap()
	for range capacity {
		l.take(t, a, 1)
		l.clock.Advance(t, time.Microsecond)
	}
	each := float64(int64(heap())-int64(before)) / capacity
	require.Less(t, each, 40.0)
	t.Logf("%.1f bytes an entry", each)
	runtime.KeepAlive(l)
}

// FuzzRing holds a ring to a sorted slice of all its tokens.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 1, 1, 2, 3, 0, 255, 7, 7, 7, 200, 9})
	f.Add([]byte{200, 1, 199, 1, 198, 1, 0, 3})
	f.Fuzz(func(t *testing.T, calls []byte) {
		var r ring
		want := []int64{}
		for i := 0; i+1 < len(calls); i += 2 {
			at, n := int64(calls[i]), int64(calls[i+1]%8)
			if n == 0 {
				first := r.firstAfter(at)
				r.drop(first)
				want = slices.DeleteFunc(want, func(t int64) bool { return t <= at })
			} else {
				r.add(at, n, int64(len(want))+n)
				for range n {
					want = append(want, at)
				}
				slices.Sort(want)
			}
			require.Equal(t, want, r.times())
			require.LessOrEqual(t, int(r.size), len(r.slots))
			for i, at := range want {
				require.Equal(t, at, r.holding(r.gone+int64(i)+1).at)
			}
		}
	})
}

// FuzzLog: whatever is asked, no window has more than the capacity, and a wait is
// exact to the millisecond.
func FuzzLog(f *testing.F) {
	f.Add(int64(5), int64(1000), int64(1), []byte{0, 1, 200, 0, 17})
	f.Add(int64(100), int64(3), int64(7), []byte{255, 0, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, capacity, window, cost int64, pauses []byte) {
		if capacity < 1 || capacity > 300 || window < 1 || window > limit.MaxWindow.Milliseconds() || cost < 1 || cost > capacity {
			t.Skip()
		}
		rule := logRule(capacity, window)
		var l log
		now := int64(1)
		for _, pause := range pauses {
			now += int64(pause) * (1 + window*1000/256)
			if l = l.under(&rule, now); l.units(cost, &rule, now) > 0 {
				l = l.less(cost, &rule, now)
			}
			_, used := l.live(&rule, now)
			require.LessOrEqual(t, used, capacity)
			wait := l.wait(cost, &rule, now).Milliseconds()
			require.Positive(t, l.units(cost, &rule, now+wait*1000))
			if wait > 0 {
				require.Zero(t, l.units(cost, &rule, now+wait*1000-1000))
			}
		}
	})
}
