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
// which it may share with others who wait, and returns by the request's deadline,
// or ctx's if that is earlier, or within about a second where there is neither. Nothing is ever sent twice: after an
// error the tokens may or may not have been taken. Reason names an error's kind.
func (l *Limiter) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if err := checkRequest(&req); err != nil {
		return limit.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limit.Decision{}, fmt.Errorf("taking from Redis: %w", err)
	}
	node := l.node.acting()
	w := node.waiters.Get().(*waiter)
	w.ask(l.prefix, &req)
	w.limitTime(ctx, req.Deadline)
	decision, err := node.take(ctx, w)
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
	if err := l.node.acting().reset(ctx, resetCommand(l.prefix, key)); err != nil {
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

// take has a waiter decided by the senders of the run.
func (n *Node) take(ctx context.Context, w *waiter) (limit.Decision, error) {
	g, err := n.ready(ctx, w.deadline)
	if err != nil {
		return n.answer(w, err)
	}
	return g.senders.take(ctx, w)
}

// reset makes a call of its own, beside those of the senders.
func (n *Node) reset(ctx context.Context, command []any) error {
	c := n.calls.Get().(*call)
	defer c.release()
	c.other = command
	c.until.deadline = time.Now().Add(outerTimeout)
	if caller, ok := ctx.Deadline(); ok && caller.Before(c.until.deadline) {
		c.until.deadline, c.early = caller, true
	}
	if _, err := n.ready(ctx, c.until.deadline); err != nil {
		return err
	}
	return n.do(ctx, c)
}

// Interface guards.
var _ limit.Limiter = (*Limiter)(nil)
