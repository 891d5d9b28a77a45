package redisbucket

import (
	"context"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Limiter decides in Redis. It is one configuration's view of a Node and holds
// no state of its own.
type Limiter struct {
	node   *Node
	prefix string
}

// New returns a Limiter whose keys begin with prefix, without braces and at
// most 32 bytes long; an empty one is DefaultPrefix.
func New(node *Node, prefix string) *Limiter {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return &Limiter{node: node, prefix: prefix}
}

// Take asks Redis once, with all of the request's buckets in one script call,
// and returns by the request's deadline, or ctx's if that is earlier, or within
// about a second where there is neither. Nothing is ever sent twice: after an
// error the tokens may or may not have been taken. Reason names an error's kind.
func (l *Limiter) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if err := checkRequest(&req); err != nil {
		return limit.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limit.Decision{}, fmt.Errorf("taking from Redis: %w", err)
	}
	c := l.node.newCall(ctx, req.Deadline)
	defer c.release()
	c.script, c.request = true, req
	c.arguments.encode(l.prefix, &req)
	if err := l.node.do(ctx, c); err != nil {
		return limit.Decision{}, fmt.Errorf("taking from Redis: %w", err)
	}
	return c.decision, nil
}

// Reset deletes the state of one bucket, or of one shard of it, under every
// algorithm. It returns by ctx's deadline or within about a second.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("resetting in Redis: %w", err)
	}
	c := l.node.newCall(ctx, time.Time{})
	defer c.release()
	c.arguments.encodeReset(l.prefix, key)
	if err := l.node.do(ctx, c); err != nil {
		return fmt.Errorf("resetting in Redis: %w", err)
	}
	return nil
}

// RedisKey returns the name of the Redis key that holds a bucket under an
// algorithm; 0 is the token bucket.
func (l *Limiter) RedisKey(key limit.Key, algorithm limit.Algorithm) string {
	return keyText(l.prefix, key, algorithm)
}

// Node returns the Redis that the Limiter asks.
func (l *Limiter) Node() *Node { return l.node }

func (n *Node) newCall(ctx context.Context, deadline time.Time) *call {
	c := n.calls.Get().(*call)
	c.limitTime(ctx, deadline)
	return c
}

// Interface guards.
var _ limit.Limiter = (*Limiter)(nil)
