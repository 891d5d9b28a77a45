package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRequests puts what counters have grown by into the step of the sample, and
// forgets it after 15 minutes.
func TestRequests(t *testing.T) {
	t.Parallel()
	r, began := NewRequests(), time.Unix(1_800_000_000, 0)
	granted, refused := Counter{"a", "granted", "redis"}, Counter{"a", "refused", "redis"}
	other := Counter{"b", "granted", "redis"}
	at := func(step int, totals map[Counter]int64) (time.Time, []Series) {
		r.Sample(began.Add(time.Duration(step)*Step), totals)
		return r.List()
	}
	from, list := at(0, map[Counter]int64{granted: 100})
	require.Empty(t, list, "what was counted before is of no step")
	require.Equal(t, began, from)
	_, list = at(0, map[Counter]int64{granted: 103, other: 2})
	require.Equal(t, []Series{{"granted", "redis", []int64{5}}}, list, "zones are added up")
	_, list = at(2, map[Counter]int64{granted: 104, other: 2, refused: 7})
	require.Equal(t, []Series{{"granted", "redis", []int64{5, 0, 1}}, {"refused", "redis", []int64{0, 0, 7}}}, list)
	_, list = at(3, map[Counter]int64{granted: 3})
	require.Equal(t, []int64{5, 0, 1, 3}, list[0].Counts, "a counter began anew")
	_, list = at(1, map[Counter]int64{granted: 4})
	require.Equal(t, []int64{5, 0, 1, 4}, list[0].Counts, "the clock was set back")
	from, list = at(Steps+1, map[Counter]int64{granted: 4})
	require.Equal(t, began.Add(2*Step), from)
	require.Len(t, list[0].Counts, Steps)
	require.Equal(t, []int64{1, 4, 0}, list[0].Counts[:3])
	_, list = at(10*Steps, map[Counter]int64{granted: 4})
	require.Empty(t, list)
}

// TestEvents gives those after a number, and no more than it keeps.
func TestEvents(t *testing.T) {
	t.Parallel()
	e := new(Events)
	list, last := e.After(0)
	require.Empty(t, list)
	require.Zero(t, last)
	for i := range MaxEvents + 50 {
		e.Add(time.Unix(int64(i), 0), "event", nil)
	}
	list, last = e.After(0)
	require.Len(t, list, MaxEvents)
	require.Equal(t, []int64{51, MaxEvents + 50, MaxEvents + 50}, []int64{list[0].Number, list[MaxEvents-1].Number, last})
	list, _ = e.After(last - 2)
	require.Equal(t, []int64{last - 1, last}, []int64{list[0].Number, list[1].Number})
	list, _ = e.After(last + 7)
	require.Empty(t, list)
}

// TestRequestsAcrossSteps are of both steps, by the time between the samples.
func TestRequestsAcrossSteps(t *testing.T) {
	t.Parallel()
	r, begin := NewRequests(), time.Unix(0, 1000*int64(Step))
	of := Counter{"a", "granted", "redis"}
	counts := func() []int64 {
		_, list := r.List()
		if len(list) == 0 {
			return nil
		}
		return list[0].Counts
	}
	r.Sample(begin.Add(Step-4*time.Second), map[Counter]int64{of: 0})
	r.Sample(begin.Add(Step+time.Second), map[Counter]int64{of: 50})
	require.Equal(t, []int64{40, 10}, counts())
	r.Sample(begin.Add(Step+6*time.Second), map[Counter]int64{of: 100})
	require.Equal(t, []int64{40, 60}, counts(), "both are in one step")
	r.Sample(begin.Add(2*Step), map[Counter]int64{of: 200})
	require.Equal(t, []int64{40, 60, 100}, counts(), "at the very begin")
	r.Sample(begin.Add(5*Step+time.Second), map[Counter]int64{of: 230})
	require.Equal(t, []int64{40, 60, 100, 0, 0, 30}, counts(), "the process was stopped: nobody knows when")
	r.Sample(begin.Add(4*Step), map[Counter]int64{of: 240})
	require.Equal(t, []int64{40, 60, 100, 0, 0, 40}, counts(), "the clock was set back")
}
