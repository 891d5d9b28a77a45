package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/internal/history"
)

// sampleInterval is how often the counts of requests are sampled. Between two samples,
// they count as evenly spread.
const sampleInterval = 5 * time.Second

// watchRequests samples the counts of requests until stop is called.
func (a *App) watchRequests() (stop func()) {
	sample := func() { a.memory.requests.Sample(time.Now(), requestTotals()) }
	sample()
	return background.Every(sampleInterval, sample)
}

// requestRegistry has the counters of requests alone.
var requestRegistry = sync.OnceValue(func() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(processCollectors().requests)
	return registry
})

// requestTotals reads the counters of requests.
func requestTotals() map[history.Counter]int64 {
	totals := map[history.Counter]int64{}
	families, _ := requestRegistry().Gather() // counters alone, which are always right
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var of history.Counter
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "zone":
					of.Zone = label.GetValue()
				case "outcome":
					of.Outcome = label.GetValue()
				case "source":
					of.Source = label.GetValue()
				}
			}
			totals[of] = int64(metric.GetCounter().GetValue())
		}
	}
	return totals
}

// answerHistory tells of the requests of the last 15 minutes.
func answerHistory(_ context.Context, app *App, _ *adminapi.Query) (any, error) {
	now := time.Now()
	app.memory.requests.Sample(now, requestTotals())
	from, list := app.memory.requests.List()
	answer := &adminapi.History{
		From: from.UTC(), At: now.UTC(), StepSeconds: history.Step.Seconds(), Series: make([]adminapi.HistorySeries, 0, len(list)),
	}
	for _, series := range list {
		answer.Series = append(answer.Series, adminapi.HistorySeries(series))
	}
	return answer, nil
}

// answerEvents tells of the last changes of state.
func answerEvents(_ context.Context, app *App, q *adminapi.Query) (any, error) {
	after, err := q.Number("after", 0, adminapi.MaxAfter)
	if err != nil {
		return nil, badQuery(err)
	}
	list, last := app.memory.changes.After(after)
	answer := &adminapi.Events{Events: make([]adminapi.Event, 0, len(list)), Last: last}
	for _, event := range list {
		answer.Events = append(answer.Events, adminapi.Event{Number: event.Number, At: event.At.UTC(), Name: event.Name, Data: shownData(event.Data)})
	}
	return answer, nil
}

// shownData is what an event tells, with times as seconds.
func shownData(data map[string]any) map[string]any {
	shown := make(map[string]any, len(data))
	for name, value := range data {
		if took, isTime := value.(time.Duration); isTime {
			value = took.Seconds()
		}
		shown[name] = value
	}
	return shown
}
