package ratelimit

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/internal/hot"
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
	buckets, since, counted := app.memory.top.List(int(most))
	answer := &topAnswer{Since: since.UTC(), Seconds: counted.Seconds(), Buckets: make([]topBucket, 0, len(buckets))}
	for _, b := range buckets {
		answer.Buckets = append(answer.Buckets, topBucket{
			Tenant: b.Tenant, Stored: storedName(&b), Key: b.Key.Tenant, Route: b.Zone, Refused: b.Count, Over: b.Over,
		})
	}
	return answer, nil
}

// storedName is what the parameter stored takes for the bucket: the gateway's own
// names as keys have them, and all others as rules do. It is blank where that would
// name another bucket: a client can send what looks like a name of the gateway's
// own, and bytes that JSON cannot tell.
func storedName(b *hot.Refused) string {
	if !utf8.ValidString(b.Tenant) || ownName.MatchString(b.Tenant) && b.Tenant != b.Key.Tenant {
		return ""
	}
	return b.Tenant
}
