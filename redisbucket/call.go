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
	asking bool  // it goes where a redirect sent it
	until  untilContext
	reply  replyBuffer // to other
	node   *node
	lane   *lane
	run    func() (struct{}, error) // exchange, bound once
	failed error                    // what the breaker counts in place of an exchange

	early bool          // until is the caller's deadline, not the request's
	asked bool          // the exchange was made: the breaker let it through
	err   error         // how it ended
	took  time.Duration // how long it took until an answer came; 0 where none did
}

func newCall(n *node) *call {
	c := &call{node: n}
	c.run = c.exchange
	return c
}

// reset makes the call ready to be used again and drops what it points to.
func (c *call) reset() {
	c.batch.reset()
	c.other, c.lane, c.failed, c.err = nil, nil, nil, nil
	c.until.deadline, c.early, c.asked, c.asking, c.took = time.Time{}, false, false, false, 0
}

// release resets the call and puts it away.
func (c *call) release() {
	c.reset()
	c.node.calls.Put(c)
}

// do waits for a lane until the deadline and makes the exchange on it, within
// the same deadline. Only the exchange counts for the breaker, and that there
// is nothing to make it on.
func (n *node) do(ctx context.Context, c *call) error {
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

// ask sends what there is and returns how it ended for all in all.
func (c *call) ask() error {
	if c.other != nil {
		return c.askOther()
	}
	parts := c.batch.split()
	if len(parts) > 1 || parts[0].asking {
		c.askParts(parts)
		return verdict(parts)
	}
	p := &parts[0]
	p.settle(c.askPart(p), c.node)
	return p.err
}

// askPart makes the one call of the script that there is.
func (c *call) askPart(p *part) error {
	names := &c.node.client.names
	p.encode()
	err := c.send(p.command(names.evalsha, names.sha1), &p.reply)
	if err != nil && replyClass(err) == "NOSCRIPT" {
		err = c.send(p.command(names.eval, names.text), &p.reply)
	}
	return err
}

// send makes one exchange of one command.
func (c *call) send(list []any, reply *replyBuffer) error {
	reply.clear()
	command := redis.NewRawWriteToCmd(&c.until, reply, list...)
	if err := c.lane.conn.Process(&c.until, command); err != nil {
		return unreadable(err)
	}
	return errorIn(reply.data)
}
