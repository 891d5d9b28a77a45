package ratelimit

import (
	"context"
	"time"
)

// topAnswer is the answer to GET /rate_limit/top.
type topAnswer struct {
	Since   time.Time   `json:"since"`
	Seconds float64     `json:"seconds"`
	Buckets []topBucket `json:"buckets"`
}

// topBucket is one of the buckets that refused most.
type topBucket struct {
	Tenant  string `json:"tenant"`
	Stored  string `json:"stored"`
	Route   string `json:"route"`
	Refused int64  `json:"refused"`
	Over    int64  `json:"over"`
}

const (
	defaultTop = 20
	mostTop    = 200
)

// answerTop lists the buckets that refused most.
func answerTop(_ context.Context, app *App, q *adminQuery) (any, error) {
	most, err := q.number("limit", defaultTop, mostTop)
	if err != nil {
		return nil, err
	}
	top := app.memory.top
	buckets, since := top.list(int(most))
	answer := &topAnswer{Since: since.UTC(), Seconds: top.now().Sub(since).Seconds(), Buckets: make([]topBucket, 0, len(buckets))}
	for _, b := range buckets {
		answer.Buckets = append(answer.Buckets, topBucket{
			Tenant: b.tenant, Stored: storedName(&b), Route: b.zone, Refused: b.refused, Over: b.over,
		})
	}
	return answer, nil
}

// storedName is what the parameter stored takes for the bucket: the gateway's own
// names as keys have them, and all others as rules do.
func storedName(b *refusedBucket) string {
	if ownName.MatchString(b.key.Tenant) {
		return b.key.Tenant
	}
	return b.tenant
}
