package ratelimit

import (
	"context"
	"time"
	"unicode/utf8"
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
	Stored  string `json:"stored,omitempty"`
	Key     string `json:"key"`
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
			Tenant: b.tenant, Stored: storedName(&b), Key: b.key.Tenant, Route: b.zone, Refused: b.refused, Over: b.over,
		})
	}
	return answer, nil
}

// storedName is what the parameter stored takes for the bucket: the gateway's own
// names as keys have them, and all others as rules do. It is blank where that would
// name another bucket: a client can send what looks like a name of the gateway's
// own, and bytes that JSON cannot tell.
func storedName(b *refusedBucket) string {
	if !utf8.ValidString(b.tenant) || ownName.MatchString(b.tenant) && b.tenant != b.key.Tenant {
		return ""
	}
	return b.tenant
}
