// Package redisbucket is a limit.Limiter whose buckets live in Redis, where one
// script decides for a whole cluster of gateways at once. A Client is what is
// shared and outlives a configuration: connections and a circuit breaker for
// each server of one Redis. A Limiter is one configuration's value around it.
//
// Open limiter.go first, then round.go: how a request becomes part of a call. The
// files are four subjects:
//
//   - who asks: limiter.go, settle.go, queue.go, senders.go, round.go, batch.go, call.go
//   - one server: node.go, breaker.go, connections.go, dial.go, lane.go
//   - which servers: client.go, topology.go, cluster.go, sentinel.go, follow.go
//   - the wire: keys.go, wire.go, reply.go, errors.go
//
// Beside them, options.go and address.go say what may be asked for, and status.go
// what is told.
//
// A waiter is one request that waits, an entry what equal ones ask for, a part the
// entries that go to the script in one command, a batch the parts of one call. A call
// is one exchange over a lane, a connection that is used by one call at a time; a
// round takes what waits, makes a call and delivers the answers. A run is the time
// between a server's start and its stop.
package redisbucket

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddygate/ratelimit/limit"
)

// Limiter decides in Redis. It is one configuration's view of a Client and holds
// no state of its own.
type Limiter struct {
	client *Client
	prefix string
}

// New returns a Limiter whose keys begin with prefix, without braces and at
// most 32 bytes long; an empty one is DefaultPrefix.
func New(client *Client, prefix string) *Limiter {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return &Limiter{client: client, prefix: prefix}
}

// Take asks Redis once, with all of the request's buckets in one script call,
// which it may share with others who wait, and returns by the request's deadline,
// or ctx's if that is earlier, or within about a second where there is neither.
// What may have been executed is never sent twice: after an error the tokens may
// or may not have been taken. Reason names an error's kind.
//
// In a cluster, buckets whose keys are in different slots cannot be decided by one
// call. All of them are looked at first, and then taken from one after another,
// the one with the least first, as long as none refuses. What was taken before one
// does, because others came in between, is lost: fewer are granted than could be
// for that moment, and never more. Buckets that are asked apart are asked at once, in
// a call for each slot: where one of those fails, the error is Take's, and what the
// others gave is lost.
func (l *Limiter) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if err := checkRequest(&req); err != nil {
		return limit.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limit.Decision{}, fmt.Errorf("taking from Redis: %w", err)
	}
	client := l.client.acting()
	w := client.waiters.Get().(*waiter)
	w.ask(l.prefix, &req)
	w.limitTime(ctx, req.Deadline)
	decision, err := client.take(ctx, w)
	if err != nil {
		return limit.Decision{}, fmt.Errorf("taking from Redis: %w", err)
	}
	return decision, nil
}

// Reset deletes the state of one bucket, or of one shard of it, under every
// algorithm. It returns by ctx's deadline or within about a second.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("resetting in Redis: %w", err)
	}
	client := l.client.acting()
	for _, names := range resetNames(l.prefix, key, client.sole == nil) {
		if _, err := client.command(ctx, names[0], append([]string{"DEL"}, names...)); err != nil {
			return fmt.Errorf("resetting in Redis: %w", err)
		}
	}
	return nil
}

// RedisKey returns the name of the Redis key that holds a bucket under an
// algorithm; 0 is the token bucket.
func (l *Limiter) RedisKey(key limit.Key, algorithm limit.Algorithm) string {
	return keyText(l.prefix, key, algorithm)
}

// Client returns the Redis that the Limiter asks.
func (l *Limiter) Client() *Client { return l.client }

// Interface guards.
var _ limit.Limiter = (*Limiter)(nil)

// checkRequest refuses what the script has no answer for.
func checkRequest(req *limit.Request) error {
	if len(req.Buckets) == 0 {
		return errors.New("taking from Redis: the request names no bucket")
	}
	if req.Cost < 1 || req.Count < 0 {
		return fmt.Errorf("taking from Redis: cost %d and count %d are out of bounds", req.Cost, req.Count)
	}
	return nil
}

// resetNames returns the keys that hold a bucket under every algorithm, in groups
// for one command each. In a cluster that is each by itself: a shard's names are
// in several slots, and those of a slot that moves may be in two places.
func resetNames(prefix string, key limit.Key, apart bool) (groups [][]string) {
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowLog, limit.SlidingWindowCounter, limit.Concurrency} {
		name := keyText(prefix, key, algorithm)
		if apart || len(groups) == 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], name)
	}
	ban := string(appendBanKey(nil, prefix, key))
	if apart {
		return append(groups, []string{ban})
	}
	groups[0] = append(groups[0], ban)
	return groups
}
