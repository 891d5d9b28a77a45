package ratelimit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/hot"
)

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
	now := time.Now()
	for i := range buckets {
		told := topBucket(&buckets[i], by, each)
		told.BannedSeconds = seconds(app.bans.rest(buckets[i].Key, now))
		answer.Buckets = append(answer.Buckets, told)
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
	if rand.Uint32()%askedSample == 0 { //nolint:gosec // a sample is no secret
		m.asked.Note(c.bucket.Key, c.zone.name, c.tenant)
	}
	if c.outcome == outcomeShadow {
		m.shadow.Note(c.bucket.Key, c.zone.name, c.tenant)
	}
}
