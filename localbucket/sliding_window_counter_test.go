package localbucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestCounterUnder(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Capacity: 100, WindowMillis: 1000}
	stored := counter{start: 5000, cur: 7, prev: 9}
	for name, c := range map[string]struct {
		now  int64
		want counter
	}{
		"in the window":        {5999, stored},
		"a little back":        {3000, stored},
		"the next":             {6000, counter{start: 6000, prev: 7}},
		"late in the next":     {6999, counter{start: 6000, prev: 7}},
		"empty, and so anew":   {7000, counter{start: 7000}},
		"long empty, and anew": {99_123, counter{start: 99_123}},
	} {
		require.Equal(t, c.want, stored.under(&rule, c.now), name)
	}
}

func TestCounterState(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	rule := limit.Rule{Capacity: 100, WindowMillis: 60_000}
	for name, c := range map[string]struct {
		counter counter
		now     int64
		cost    int64
		want    limit.State
	}{
		"nothing":            {counter{}, 0, 1, limit.State{Remaining: 100}},
		"this window":        {counter{cur: 30}, 6000, 1, limit.State{Remaining: 70, ResetAfter: 114_000 * ms}},
		"both (A3)":          {counter{cur: 11, prev: 50}, 6000, 1, limit.State{Remaining: 44, ResetAfter: 114_000 * ms}},
		"the last alone":     {counter{prev: 50}, 6000, 1, limit.State{Remaining: 55, ResetAfter: 54_000 * ms}},
		"the last fades":     {counter{cur: 50, prev: 60}, 6000, 1, limit.State{RetryAfter: 5000 * ms, ResetAfter: 114_000 * ms}},
		"the next, and more": {counter{cur: 100}, 6000, 1, limit.State{RetryAfter: 54_600 * ms, ResetAfter: 114_000 * ms}},
		"all of it":          {counter{cur: 100}, 6000, 100, limit.State{RetryAfter: 114_000 * ms, ResetAfter: 114_000 * ms}},
		"over the capacity":  {counter{cur: 1}, 0, 101, limit.State{Remaining: 99, RetryAfter: limit.Never, ResetAfter: 120_000 * ms}},
		"over by a change":   {counter{cur: 400}, 0, 1, limit.State{RetryAfter: 105_150 * ms, ResetAfter: 120_000 * ms}},
		"the clock is back":  {counter{cur: 100}, -1000, 1, limit.State{RetryAfter: 61_600 * ms, ResetAfter: 121_000 * ms}},
	} {
		require.Equal(t, c.want, c.counter.state(c.cost, &rule, c.now), name)
	}
}

// FuzzCounter: whatever is asked, no one window has more than the capacity, no
// two neighbours twice as much in any span, and a wait is enough.
func FuzzCounter(f *testing.F) {
	f.Add(int64(5), int64(1000), int64(1), []byte{0, 1, 200, 0, 17})
	f.Add(int64(limit.MaxCapacity), int64(3), int64(7), []byte{255, 0, 0, 0, 1, 2, 3})
	f.Add(int64(1), limit.MaxWindow.Milliseconds(), int64(1), []byte{255, 255, 3})
	f.Fuzz(func(t *testing.T, capacity, window, cost int64, pauses []byte) {
		rule := limit.Rule{Capacity: capacity, WindowMillis: window, Algorithm: limit.SlidingWindowCounter}
		if checkRule(&rule) != nil || cost < 1 || cost > capacity {
			t.Skip()
		}
		c, now := counter{start: 1}, int64(1)
		for _, pause := range pauses {
			now += int64(pause) * (1 + window/256)
			c = c.under(&rule, now)
			c = c.less(c.units(cost, &rule, now)*cost, &rule, now)
			require.LessOrEqual(t, int64(c.cur), capacity)
			require.LessOrEqual(t, int64(c.prev), capacity)
			require.LessOrEqual(t, c.used(&rule, now), float64(capacity)+1e-6)
			then := now + c.wait(cost, &rule, now)
			later := c.under(&rule, then)
			// Of a large capacity a float does not tell a millionth.
			require.LessOrEqual(t, later.used(&rule, then), float64(capacity-cost)+1e-6)
			full := now + c.reset(&rule, now)
			require.Zero(t, c.under(&rule, full).used(&rule, full))
		}
	})
}
