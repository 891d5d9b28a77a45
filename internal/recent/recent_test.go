package recent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	granted = Kind{"granted", "redis"}
	refused = Kind{"refused", "local"}
)

// at is a time a moment after the begin of a step.
func at(step int64) time.Time { return time.Unix(0, step*int64(Step)).Add(time.Millisecond) }

func TestHistory(t *testing.T) {
	t.Parallel()
	h := new(History)
	require.Empty(t, h.List(at(1000)).Series)
	h.Add(at(1000), map[Kind]int64{granted: 5, refused: 0})
	h.Add(at(1001), map[Kind]int64{granted: 7, refused: 2})
	h.Add(at(1001), map[Kind]int64{granted: 1}) // a configuration that ends
	got := h.List(at(1001))
	require.Equal(t, 10, got.StepSeconds)
	require.Equal(t, time.Unix(10010, 0).UTC(), got.End)
	require.Len(t, got.Series, 2)
	require.Equal(t, "granted", got.Series[0].Outcome)
	require.Len(t, got.Series[0].Counts, Steps)
	require.Equal(t, []int64{5, 8}, got.Series[0].Counts[Steps-2:])
	require.Equal(t, []int64{0, 2}, got.Series[1].Counts[Steps-2:])

	got = h.List(at(1004))
	require.Equal(t, []int64{5, 8, 0, 0, 0}, got.Series[0].Counts[Steps-5:], "steps that nobody has told are 0")
	require.Empty(t, h.List(at(1001+Steps)).Series, "what is long over is gone")
	require.Len(t, h.List(at(1000+Steps)).Series, 2)

	h.Add(at(1001+Steps), map[Kind]int64{refused: 3})
	got = h.List(at(1001 + Steps))
	require.Len(t, got.Series, 1, "the place of a step is used again")
	require.Equal(t, int64(3), got.Series[0].Counts[Steps-1])
}

func TestHistoryInEveryStep(t *testing.T) {
	t.Parallel()
	h := new(History)
	for i := range int64(3 * Steps) {
		h.Add(at(1000+i), map[Kind]int64{granted: i})
	}
	counts := h.List(at(1000 + 3*Steps - 1)).Series[0].Counts
	for i, n := range counts {
		require.Equal(t, int64(2*Steps+i), n)
	}
}

func TestOver(t *testing.T) {
	t.Parallel()
	require.Equal(t, Step, Over(time.Unix(1000, 0)))
	require.Equal(t, time.Second, Over(time.Unix(1009, 0)))
}

func TestEvents(t *testing.T) {
	t.Parallel()
	e, now := new(Events), time.Unix(1000, 0)
	require.Empty(t, e.After(0).Events)
	data := map[string]any{"node": "redis:6379/0", "age": 1500 * time.Millisecond}
	e.Note(now, "rate_limit_breaker_opened", data)
	data["node"] = "changed"
	e.Note(now, "rate_limit_breaker_closed", nil)
	got := e.After(0)
	require.Equal(t, int64(2), got.Last)
	require.Len(t, got.Events, 2)
	require.Equal(t, map[string]any{"node": "redis:6379/0", "age": "1.5s"}, got.Events[0].Data)
	require.Len(t, e.After(1).Events, 1)
	require.Empty(t, e.After(2).Events)
	require.Len(t, e.After(99).Events, 2, "the number is that of an earlier process")

	body, err := json.Marshal(e.After(2))
	require.NoError(t, err)
	require.JSONEq(t, `{"last":2,"events":[]}`, string(body))
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	e := new(Events)
	for range 3*Kept + 7 {
		e.Note(time.Unix(1000, 0), "x", nil)
	}
	got := e.After(10)
	require.Len(t, got.Events, Kept)
	require.Equal(t, int64(3*Kept+7), got.Events[Kept-1].Number)
	require.Equal(t, int64(2*Kept+8), got.Events[0].Number)
	require.Equal(t, int64(2*Kept+7-10), got.Lost)
	require.Zero(t, e.After(0).Lost)
}
