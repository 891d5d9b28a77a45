package ratelimit

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
)

// bucket looks at a bucket everywhere, by what a request costs, and changes nothing.
func (e *explanation) bucket(ctx context.Context, bucket limit.Bucket, cost int64) *adminapi.Bucket {
	wanted := limit.Request{Buckets: []limit.Bucket{bucket}, Cost: cost}
	answer := new(adminapi.Bucket)
	share := bucket
	if e.app.client != nil {
		share.Rule = bucket.Rule.Share(int64(e.app.instances()))
	}
	local := wanted
	local.Buckets = []limit.Bucket{share}
	local.Cost = min(local.Cost, share.Rule.Capacity)
	answer.Local = look(ctx, localbucket.New(e.app.memory.local, localbucket.Options{}), local)
	if e.app.client == nil {
		return answer
	}
	inRedis := redisbucket.New(e.app.client, e.app.Redis.keyPrefix())
	for _, part := range front.Parts(bucket) {
		key := inRedis.RedisKey(part.Key, part.Rule.Algorithm)
		answer.Keys = append(answer.Keys, key)
		if known := e.app.memory.refusals.Refusal(part); known.For > 0 {
			answer.Remembered = append(answer.Remembered, adminapi.Refusal{Key: key, Cost: known.Cost, ForMs: known.For.Milliseconds()})
		}
	}
	answer.Prefetch = e.app.memory.ahead.InHand(bucket)
	wanted.Deadline = time.Now().Add(max(explainLook, e.app.Redis.timeout()))
	answer.Redis = look(ctx, &front.Shards{Next: inRedis}, wanted)
	return answer
}

// look asks for the state of the only bucket of a request.
func look(ctx context.Context, at limit.Limiter, wanted limit.Request) *adminapi.State {
	decision, err := at.Take(ctx, wanted)
	if err != nil {
		return &adminapi.State{Error: redisbucket.Reason(err), Capacity: wanted.Buckets[0].Rule.Capacity}
	}
	return &adminapi.State{
		Capacity: wanted.Buckets[0].Rule.Capacity, Remaining: decision.First.Remaining,
		RetryAfterMs: waitMillis(decision.First.RetryAfter), ResetAfterMs: waitMillis(decision.First.ResetAfter),
		BannedMs: headers.RoundedUp(decision.First.Banned, time.Millisecond),
	}
}

// waitMillis is a wait in ms, -1 where it is for ever.
func waitMillis(d time.Duration) int64 {
	if d == limit.Never {
		return -1
	}
	return headers.RoundedUp(d, time.Millisecond)
}

// price is what the request that is asked about costs where a route has no price of
// its own.
func (e *explanation) price() int64 {
	if e.cost > 0 && e.zone.price == nil {
		return e.cost
	}
	return e.handler.cost.least()
}

// priceAt is what it costs at a route.
func (e *explanation) priceAt(z *zone) int64 {
	switch {
	case z.price == nil:
		return e.price()
	case e.cost > 0 && z == e.zone:
		return e.cost
	}
	return z.price.least()
}

// least is the cost, and one where each request says it.
func (s *costSource) least() int64 { return max(1, s.fixed) }

// answerReset makes the buckets full again, here and in Redis, under every
// algorithm and with every part that they may have been split into.
func answerReset(ctx context.Context, app *App, q *adminapi.Query) (any, error) {
	about, err := app.subject(q)
	if err != nil {
		return nil, err
	}
	answer := &adminapi.Reset{Buckets: []adminapi.ResetBucket{}}
	done := map[limit.Key]bool{}
	for _, of := range about.zones {
		for _, key := range about.keys(of.handler, of.zone) {
			if !done[key] {
				done[key] = true
				bucket, failure := app.resetBucket(ctx, key, of.zone.name)
				answer.Buckets = append(answer.Buckets, bucket)
				answer.Error = cmp.Or(failure, answer.Error)
			}
		}
	}
	if len(done) == 0 {
		return nil, apiError(http.StatusBadRequest, "this names no bucket: for a guest's, parameter ip has to be there, and the handler of the route must limit guests by ip")
	}
	return answer, nil
}

// resetBucket resets one bucket, and returns what was not reset, in words.
func (a *App) resetBucket(ctx context.Context, key limit.Key, route string) (bucket adminapi.ResetBucket, failure string) {
	bucket = adminapi.ResetBucket{Name: key.Tenant, Route: route, Here: true}
	err := a.limiter.Reset(ctx, key)
	if err == nil {
		bucket.BanEnded = a.bans.lift(key, time.Now())
	}
	switch {
	case a.client == nil:
	case err != nil:
		bucket.Redis = redisbucket.Reason(err)
		failure = "Redis could not be asked (" + bucket.Redis + "): its part of the bucket is as it was"
	default:
		bucket.Redis = adminapi.ResetDone
	}
	return bucket, failure
}
