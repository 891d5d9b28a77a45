package ratelimit

import (
	"context"
	"math/rand/v2"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/internal/recent"
	"github.com/caddygate/ratelimit/limit"
)

// answerHistory tells what requests got in the last minutes.
func answerHistory(context.Context, *App, *adminapi.Query) (any, error) {
	return processHistory().List(time.Now()), nil
}

// answerEvents lists the last changes of state.
func answerEvents(_ context.Context, _ *App, q *adminapi.Query) (any, error) {
	after, err := q.Position("after")
	if err != nil {
		return nil, badQuery(err)
	}
	return processEvents().After(after), nil
}

// answerTop lists the buckets that refused, or were asked, most.
func answerTop(_ context.Context, app *App, q *adminapi.Query) (any, error) {
	most, err := q.Number("limit", adminapi.DefaultTop, adminapi.MaxTop)
	if err != nil {
		return nil, badQuery(err)
	}
	by, err := q.Word("by", adminapi.TopRefused, adminapi.TopRequests, adminapi.TopShadow)
	if err != nil {
		return nil, badQuery(err)
	}
	list, each := app.memory.top, int64(1)
	switch by {
	case adminapi.TopRequests:
		list, each = app.memory.asked, askedSample
	case adminapi.TopShadow:
		list = app.memory.shadow
	}
	buckets, since, counted := list.List(int(most))
	answer := &adminapi.Top{Since: since.UTC(), Seconds: counted.Seconds(), Buckets: make([]adminapi.TopBucket, 0, len(buckets))}
	if by != adminapi.TopRefused {
		answer.By = by
	}
	for i := range buckets {
		answer.Buckets = append(answer.Buckets, topBucket(&buckets[i], by, each))
	}
	return answer, nil
}

// topBucket is a bucket of a list that notes one in each.
func topBucket(b *hot.Bucket, by string, each int64) adminapi.TopBucket {
	told := adminapi.TopBucket{
		Tenant: b.Tenant, Stored: adminapi.StoredName(b.Tenant, b.Key.Tenant), Key: b.Key.Tenant, Route: b.Zone, Over: b.Over * each,
	}
	switch by {
	case adminapi.TopRequests:
		told.Requests = b.Count * each
	case adminapi.TopShadow:
		told.Shadow = b.Count
	default:
		told.Refused = b.Count
	}
	return told
}

// askedSample is how many requests stand behind one that is noted, because to note
// each would cost it more than a decision in memory.
const askedSample = 16

// noteAsked notes for the lists what a charge was asked for, one in askedSample, and
// what it would have been refused.
func (m *memory) noteAsked(c *charge) {
	if rand.Uint32()%askedSample == 0 {
		m.asked.Note(c.bucket.Key, c.zone.name, c.tenant)
	}
	if c.outcome == outcomeShadow {
		m.shadow.Note(c.bucket.Key, c.zone.name, c.tenant)
	}
}

// startHistory counts, at the end of each step, what all routes did in it. Of two
// configurations that run in a reload, each counts what the other has not.
func startHistory() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(recent.Over(time.Now()))
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				now := time.Now()
				processHistory().Add(now, countedSince())
				timer.Reset(recent.Over(now))
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// countedSince returns what all routes counted since it was called before.
func countedSince() map[recent.Kind]int64 {
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	counts := map[recent.Kind]int64{}
	for _, route := range usedRoutes.byName {
		route.addSince(counts)
	}
	return counts
}

// addSince adds what the route counted since it was called before. It needs
// usedRoutes.mu.
func (m *routeMetrics) addSince(counts map[recent.Kind]int64) {
	for what := range m.requests {
		for source := range m.requests[what] {
			counter := m.requests[what][source].Load()
			if counter == nil {
				continue
			}
			var told dto.Metric
			if (*counter).Write(&told) != nil {
				continue // it cannot fail for a counter
			}
			now := int64(told.GetCounter().GetValue())
			counts[recent.Kind{Outcome: outcomeWords[what], Source: limit.Source(source).String()}] += now - m.told[what][source]
			m.told[what][source] = now
		}
	}
}
