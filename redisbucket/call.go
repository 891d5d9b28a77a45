package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one exchange with Redis: of a batch, or of another command. It is used
// again, with everything that an exchange needs, so that a decision allocates
// little of its own.
type call struct {
	batch  batch
	other  []any // the command where it is not the script
	until  untilContext
	reply  replyBuffer
	node   *Node
	lane   *lane
	run    func() (struct{}, error) // exchange, bound once
	failed error                    // what the breaker counts in place of an exchange

	early bool          // until is the caller's deadline, not the request's
	asked bool          // the exchange was made: the breaker let it through
	err   error         // how it ended
	took  time.Duration // how long it took until an answer came; 0 where none did
}

func newCall(n *Node) *call {
	c := &call{node: n}
	c.run = c.exchange
	return c
}

// reset makes the call ready to be used again and drops what it points to.
func (c *call) reset() {
	c.batch.reset()
	c.other, c.lane, c.failed, c.err = nil, nil, nil, nil
	c.until.deadline, c.early, c.asked, c.took = time.Time{}, false, false, 0
}

// release resets the call and puts it away.
func (c *call) release() {
	c.reset()
	c.node.calls.Put(c)
}

// ready returns the current generation where a call may be made: the Node is
// started, the breaker lets calls through, and there is time left.
func (n *Node) ready(ctx context.Context, deadline time.Time) (*generation, error) {
	g, err := n.started(ctx, deadline)
	if err != nil {
		return nil, err
	}
	if err := n.breakerError(); err != nil {
		return nil, err
	}
	if time.Until(deadline) <= 0 {
		return nil, errWait // asking in vain would cost the tokens and the connection
	}
	return g, nil
}

// do waits for a lane until the deadline and makes the exchange on it, within
// the same deadline. Only the exchange counts for the breaker, and that there
// is nothing to make it on.
func (n *Node) do(ctx context.Context, c *call) error {
	g := n.current.Load()
	if g == nil {
		return n.notRunning()
	}
	lane, err := g.borrow(ctx, c.until.deadline)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errWait):
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
	return nil, n.notRunning()
}

// notRunning is why there is no generation.
func (n *Node) notRunning() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	return errNotStarted
}

// exchange asks once. A script that the server does not know is sent whole, on
// the same lane, within the same deadline.
func (c *call) exchange() (struct{}, error) {
	began := time.Now()
	if c.failed != nil {
		c.node.noteFailure(c.failed)
		return struct{}{}, c.node.counted(began, c.failed)
	}
	c.asked = true
	err := c.ask()
	if err == nil && c.other == nil {
		err = c.batch.decode(c.reply.data)
	}
	c.err = err
	if err == nil {
		c.took = time.Since(began)
		if c.other == nil {
			c.node.traffic.note(len(c.batch.entries), c.took)
		}
		return struct{}{}, nil
	}
	if c.early && Reason(err) == "timeout" {
		return struct{}{}, fmt.Errorf("%w: %w", errEarly, err)
	}
	c.node.noteFailure(err)
	return struct{}{}, c.node.counted(began, err)
}

func (c *call) ask() error {
	if c.other != nil {
		return c.send(c.other)
	}
	c.batch.encode()
	names := &c.node.names
	err := c.send(c.batch.command(names.evalsha, names.sha1))
	if err != nil && replyClass(err) == "NOSCRIPT" {
		err = c.send(c.batch.command(names.eval, names.text))
	}
	return err
}

func (c *call) send(list []any) error {
	c.reply.expect(len(c.batch.entries), c.batch.buckets)
	command := redis.NewRawWriteToCmd(&c.until, &c.reply, list...)
	if err := c.lane.conn.Process(&c.until, command); err != nil {
		return unreadable(err)
	}
	return errorIn(c.reply.data)
}
