package ratelimit

import (
	"context"
	"net/http"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

// resetAnswer is the answer to DELETE /rate_limit/bucket.
type resetAnswer struct {
	Error   string        `json:"error,omitempty"`
	Buckets []resetBucket `json:"buckets"`
}

// resetBucket is one bucket that was reset, and where.
type resetBucket struct {
	Name  string `json:"name"`
	Route string `json:"route"`
	Here  bool   `json:"here"`
	Redis string `json:"redis,omitempty"`
}

// resetDone is what a reset tells of Redis where it worked.
const resetDone = "reset"

// status tells by the answer's status that a part was not reset.
func (a *resetAnswer) status() int {
	if a.Error != "" {
		return http.StatusBadGateway
	}
	return http.StatusOK
}

// answerReset makes the buckets full again, here and in Redis, under every
// algorithm and with every part that they may have been split into.
func answerReset(ctx context.Context, app *App, q *adminQuery) (any, error) {
	about, err := q.subject(app)
	if err != nil {
		return nil, err
	}
	answer := &resetAnswer{Buckets: []resetBucket{}}
	done := map[limit.Key]bool{}
	for _, of := range about.zones {
		for _, key := range about.keys(of.handler, of.zone) {
			if !done[key] {
				done[key] = true
				answer.reset(ctx, app, key, of.zone.name)
			}
		}
	}
	if len(done) == 0 {
		return nil, apiError(http.StatusBadRequest, "this names no bucket: for a guest's, parameter ip has to be there, and the handler of the route must limit guests by ip")
	}
	return answer, nil
}

func (a *resetAnswer) reset(ctx context.Context, app *App, key limit.Key, route string) {
	bucket := resetBucket{Name: key.Tenant, Route: route, Here: true}
	err := app.limiter.Reset(ctx, key)
	switch {
	case app.node == nil:
	case err != nil:
		bucket.Redis = redisbucket.Reason(err)
		a.Error = "Redis could not be asked (" + bucket.Redis + "): its part of the bucket is as it was"
	default:
		bucket.Redis = resetDone
	}
	a.Buckets = append(a.Buckets, bucket)
}
