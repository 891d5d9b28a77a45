package redisbucket

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddygate/ratelimit/limit"
)

// call is one exchange with Redis. It is used again, with everything that an
// exchange needs, so that a decision allocates little of its own.
type call struct {
	arguments arguments
	until     untilContext
	reply     replyBuffer
	node      *Node
	lane      *lane
	run       func() (struct{}, error) // exchange, bound once
	failed    error                    // what the breaker counts in place of an exchange

	request  limit.Request // zero where the command is not the script
	script   bool
	early    bool // until is the caller's deadline, not the request's
	decision limit.Decision
	asked    bool  // the exchange was made: the breaker let it through
	err      error // how it ended
}

func newCall(n *Node) *call {
	c := &call{node: n}
	c.run = c.exchange
	return c
}

// release makes the call ready to be used again and drops what it points to.
func (c *call) release() {
	c.lane, c.failed, c.err = nil, nil, nil
	c.request, c.decision = limit.Request{}, limit.Decision{}
	c.script, c.early, c.asked = false, false, false
	c.node.calls.Put(c)
}

// do waits for a lane until the deadline and makes the exchange on it, within
// the same deadline. Only the exchange counts for the breaker, and that there
// is nothing to make it on.
func (n *Node) do(ctx context.Context, c *call) error {
	g, err := n.started(ctx, c.until.deadline)
	if err != nil {
		return err
	}
	if err := n.breakerError(); err != nil {
		return err
	}
	if time.Until(c.until.deadline) <= 0 {
		return errWait // asking in vain would cost the tokens and the connection
	}
	lane, err := g.borrow(ctx, c.until.deadline)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case Reason(err) == "wait":
		return err
	default:
		c.failed = err
		return n.guard(c.run)
	}
	if ctx.Err() != nil {
		g.idle <- lane
		return ctx.Err()
	}
	c.lane = lane
	err = n.guard(c.run)
	g.giveBack(lane, c)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// started returns the current generation. Before the first Start it waits for
// it: a server may hand out requests a moment before its config's other parts run.
func (n *Node) started(ctx context.Context, deadline time.Time) (*generation, error) {
	if g := n.current.Load(); g != nil {
		return g, nil
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-n.begun:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g := n.current.Load(); g != nil {
		return g, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	return nil, errNotStarted
}

// exchange asks once. A script that the server does not know is sent whole, on
// the same lane, within the same deadline.
func (c *call) exchange() (struct{}, error) {
	if c.failed != nil {
		c.node.noteFailure(c.failed)
		return struct{}{}, c.failed
	}
	c.asked = true
	err := c.ask()
	if err == nil && c.script {
		c.decision, err = decode(c.reply.data, &c.request)
	}
	c.err = err
	if err == nil {
		return struct{}{}, nil
	}
	if c.early && Reason(err) == "timeout" {
		return struct{}{}, fmt.Errorf("%w: %w", errEarly, err)
	}
	c.node.noteFailure(err)
	return struct{}{}, err
}

func (c *call) ask() error {
	if !c.script {
		return c.send(c.arguments.list)
	}
	names := &c.node.names
	err := c.send(c.arguments.command(names.evalsha, names.sha1))
	if err != nil && replyClass(err) == "NOSCRIPT" {
		err = c.send(c.arguments.command(names.eval, names.text))
	}
	return err
}

func (c *call) send(list []any) error {
	c.reply.expect(len(c.request.Buckets))
	command := redis.NewRawWriteToCmd(&c.until, &c.reply, list...)
	if err := c.lane.conn.Process(&c.until, command); err != nil {
		return unreadable(err)
	}
	return errorIn(c.reply.data)
}

// limitTime sets the deadline: the request's, or the caller's if that is
// earlier, or a second from now where there is none.
func (c *call) limitTime(ctx context.Context, deadline time.Time) {
	if deadline.IsZero() {
		deadline = time.Now().Add(outerTimeout)
	}
	if caller, ok := ctx.Deadline(); ok && caller.Before(deadline) {
		deadline, c.early = caller, true
	}
	c.until.deadline = deadline
}
