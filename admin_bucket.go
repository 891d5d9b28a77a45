package ratelimit

import (
	"context"
	"time"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
)

// bucketAnswer is what is known of a bucket, in Redis and here.
type bucketAnswer struct {
	Keys       []string        `json:"redis_keys,omitempty"`
	Redis      *stateAnswer    `json:"redis,omitempty"`
	Remembered []refusalAnswer `json:"remembered,omitempty"`
	Prefetch   int64           `json:"prefetch,omitempty"`
	Local      *stateAnswer    `json:"local"`
}

// stateAnswer is the state of a bucket, or why it could not be asked for.
type stateAnswer struct {
	Error        string `json:"error,omitempty"`
	Capacity     int64  `json:"capacity"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMs int64  `json:"retry_after_ms"`
	ResetAfterMs int64  `json:"reset_after_ms"`
}

// refusalAnswer is a refusal that this gateway remembers.
type refusalAnswer struct {
	Key   string `json:"key"`
	Cost  int64  `json:"cost"`
	ForMs int64  `json:"for_ms"`
}

// bucket looks at a bucket everywhere, by what a request costs, and changes nothing.
func (e *explanation) bucket(ctx context.Context, bucket limit.Bucket, cost int64) *bucketAnswer {
	wanted := limit.Request{Buckets: []limit.Bucket{bucket}, Cost: cost}
	answer := new(bucketAnswer)
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
			answer.Remembered = append(answer.Remembered, refusalAnswer{Key: key, Cost: known.Cost, ForMs: known.For.Milliseconds()})
		}
	}
	answer.Prefetch = e.app.memory.ahead.InHand(bucket)
	wanted.Deadline = time.Now().Add(max(explainLook, e.app.Redis.timeout()))
	answer.Redis = look(ctx, &front.Shards{Next: inRedis}, wanted)
	return answer
}

// look asks for the state of the only bucket of a request.
func look(ctx context.Context, at limit.Limiter, wanted limit.Request) *stateAnswer {
	decision, err := at.Take(ctx, wanted)
	if err != nil {
		return &stateAnswer{Error: redisbucket.Reason(err), Capacity: wanted.Buckets[0].Rule.Capacity}
	}
	return &stateAnswer{
		Capacity: wanted.Buckets[0].Rule.Capacity, Remaining: decision.First.Remaining,
		RetryAfterMs: waitMillis(decision.First.RetryAfter), ResetAfterMs: waitMillis(decision.First.ResetAfter),
	}
}

// waitMillis is a wait in ms, -1 where it is for ever.
func waitMillis(d time.Duration) int64 {
	if d == limit.Never {
		return -1
	}
	return headers.RoundedUp(d, time.Millisecond)
}

// price is what the request that is asked about costs: where the handler reads it
// from the request, one.
func (e *explanation) price() int64 {
	switch {
	case e.cost > 0:
		return e.cost
	case e.handler.cost.fixed > 0:
		return e.handler.cost.fixed
	}
	return 1
}
