package ratelimit

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/history"
)

// TestHistory has the requests of this gateway, by outcome and source.
func TestHistory(t *testing.T) {
	h := started(t, `{}`, `{"routes":["history-a"],"limits":[{"capacity":3,"refill_per_second":0.001}]}`)
	count := func(outcome string) (n int64) {
		answer, err := asks(h.app, adminapi.HistoryPath, nil)
		require.NoError(t, err)
		told := answer.(*adminapi.History)
		require.Equal(t, 15.0, told.StepSeconds)
		require.False(t, told.At.Before(told.From))
		for _, series := range told.Series {
			require.LessOrEqual(t, len(series.Counts), history.Steps)
			for _, c := range series.Counts {
				if series.Outcome == outcome && series.Source == "local" {
					n += c
				}
			}
		}
		return n
	}
	granted, refused := count("granted"), count("refused")
	for range 5 {
		serves(t, h, "history-tenant", "")
	}
	require.Equal(t, []int64{3, 2}, []int64{
		requestTotals()[history.Counter{Zone: "history-a", Outcome: "granted", Source: "local"}],
		requestTotals()[history.Counter{Zone: "history-a", Outcome: "refused", Source: "local"}],
	})
	require.GreaterOrEqual(t, count("granted")-granted, int64(3), "other tests count, too")
	require.GreaterOrEqual(t, count("refused")-refused, int64(2))
}

// TestEventsAfter are told once each, with data that JSON can tell.
func TestEventsAfter(t *testing.T) {
	h := started(t, `{"default":{"capacity":3,"refill_per_second":1}}`, `{}`)
	last := func(query url.Values) *adminapi.Events {
		answer, err := asks(h.app, adminapi.EventsPath, query)
		require.NoError(t, err)
		return answer.(*adminapi.Events)
	}
	before := last(nil).Last
	data := map[string]any{"took": 1500 * time.Millisecond, "node": "127.0.0.1:1"}
	h.app.tellChange(rulesLoadedEvent, data)
	data["node"] = "changed by a subscriber"
	h.app.tellChange(breakerOpenedEvent, nil)
	told := last(nil)
	require.Equal(t, before+2, told.Last)
	event := told.Events[len(told.Events)-2]
	require.Equal(t, []any{before + 1, rulesLoadedEvent}, []any{event.Number, event.Name})
	text, err := json.Marshal(event.Data)
	require.NoError(t, err)
	require.JSONEq(t, `{"took": 1.5, "node": "127.0.0.1:1"}`, string(text))
	require.Empty(t, last(url.Values{"after": {"99999999"}}).Events)
	for raw, want := range map[string]string{"after=-1": "parameter after", "after=x": "parameter after", "limit=1": "unknown parameter"} {
		require.ErrorContains(t, rawCall(h.app, adminapi.EventsPath, raw), want)
	}
	require.Equal(t, []string{http.MethodGet, http.MethodHead}, (&adminCalls()[len(adminCalls())-1].Call).Methods())
}
