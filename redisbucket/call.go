package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/caddygate/ratelimit/lua"
)

// call is one exchange with Redis: of a batch, or of another command. It is used
// again, with everything that an exchange needs, so that a decision allocates
// nothing of its own.
type call struct {
	node     *node
	batch    batch
	other    []string // the command where it is not the script
	asking   bool     // it goes where a redirect sent it
	lane     *lane
	deadline time.Time // when it ends
	early    bool      // deadline is a caller's, not the request's
	out      []byte    // what is sent
	in       replies
	bound    func() (struct{}, error) // exchange, bound once

	began  time.Time
	failed error         // what the breaker counts in place of an exchange
	asked  bool          // the exchange was made: the breaker let it through
	err    error         // how it ended
	took   time.Duration // how long it took until an answer came; 0 where none did
}

func newCall(n *node) *call {
	c := &call{node: n}
	c.bound = c.exchange
	return c
}

// reset makes the call ready to be used again and drops what it points to.
func (c *call) reset() {
	c.batch.reset()
	c.other, c.lane, c.failed, c.err = nil, nil, nil, nil
	c.deadline, c.early, c.asked, c.asking, c.took = time.Time{}, false, false, false, 0
}

// release resets the call and puts it away.
func (c *call) release() {
	c.reset()
	c.node.calls.Put(c)
}

// make makes the exchange on a lane that was borrowed, or counts why there is
// none. Only the exchange counts for the breaker, and that there is nothing to
// make it on.
func (c *call) make(from *connections, l *lane, missing error) error {
	c.lane, c.failed = l, missing
	err := c.node.guard(c)
	if l != nil {
		from.giveBack(l, c)
	}
	return err
}

// exchange asks once, within the deadline.
func (c *call) exchange() (struct{}, error) {
	if c.failed != nil {
		return struct{}{}, c.node.counted(c.began, c.failed)
	}
	c.asked = true
	c.began = time.Now()
	err := c.ask()
	c.err = err
	switch {
	case err == nil:
		c.took = time.Since(c.began)
		if c.other == nil {
			c.node.traffic.note(len(c.batch.entries), c.took)
		}
		c.node.succeeded()
		return struct{}{}, nil
	case c.early && Reason(err) == "timeout":
		return struct{}{}, fmt.Errorf("%w: %w", errEarly, err)
	}
	return struct{}{}, c.node.counted(c.began, err)
}

// ask sends what there is and returns how it ended for all in all.
func (c *call) ask() error {
	if c.other != nil {
		return c.askOther()
	}
	parts := c.batch.split()
	c.askParts(parts, false)
	if c.unknown(parts) {
		c.askParts(parts, true)
	}
	for i := range parts {
		if redirectIn(parts[i].err) != nil {
			c.node.client.doubt()
			break
		}
	}
	return outcome(parts)
}

// askParts makes one call of the script for each part that is pending, all in one
// exchange. Where the script may not be known, the first brings its whole text,
// which the others find there then.
func (c *call) askParts(parts []part, whole bool) {
	c.out = c.out[:0]
	replies, most := 0, replyBase
	for i := range parts {
		p := &parts[i]
		if !p.pending {
			continue
		}
		if p.asking {
			c.out = appendCommand(c.out, "ASKING")
			replies++
		}
		c.out = p.appendTo(c.out, &c.node.client.script, whole)
		p.at, whole = replies, false
		replies++
		most += p.integers() * replyPerNumber
	}
	c.in.expect(replies, most)
	err := c.lane.exchange(c.out, &c.in, c.deadline)
	for i := range parts {
		if p := &parts[i]; p.pending {
			p.settle(c.in.reply(p.at), err, c.node)
		}
	}
}

// unknown makes those parts pending again for which the script was not known.
func (c *call) unknown(parts []part) (any bool) {
	for i := range parts {
		if err := parts[i].err; err != nil && replyClass(err) == "NOSCRIPT" {
			parts[i].pending, any = true, true
		}
	}
	return any
}

// askOther sends a command that is not the script.
func (c *call) askOther() error {
	c.out = c.out[:0]
	replies := 1
	if c.asking {
		c.out = appendCommand(c.out, "ASKING")
		replies++
	}
	c.out = appendCommand(c.out, c.other...)
	c.in.expect(replies, replyBase)
	if err := c.lane.exchange(c.out, &c.in, c.deadline); err != nil {
		return err
	}
	return errorIn(c.in.reply(replies - 1))
}

// command makes a call of its own, beside those of the senders, and returns what
// was replied.
func (n *node) command(ctx context.Context, asking bool, words []string) (any, error) {
	r, probe, err := n.admit()
	if err != nil {
		return nil, err
	}
	defer n.probed(probe)
	c := n.calls.Get().(*call)
	defer c.release()
	c.other, c.asking = words, asking
	c.began = time.Now()
	c.deadline = untilOrSecond(ctx)
	caller, ok := ctx.Deadline()
	c.early = ok && !caller.After(c.deadline)
	l, err := r.connections.borrow(ctx, c.deadline)
	if err != nil && !missing(err) {
		return nil, err
	}
	if err := c.make(r.connections, l, err); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, n.redirected(err)
	}
	return valueOf(c.in.reply(c.in.want - 1))
}

// untilOrSecond returns the deadline of ctx, or that of a call without one.
func untilOrSecond(ctx context.Context) time.Time {
	until := time.Now().Add(outerTimeout)
	if caller, ok := ctx.Deadline(); ok && caller.Before(until) {
		return caller
	}
	return until
}

// command has whoever serves a key run one command on it, beside the calls of the
// senders, and returns what was replied. It returns by ctx's deadline or within
// about a second. A server that says that another one serves the key has done
// nothing, and that one is asked, once.
func (c *Client) command(ctx context.Context, key string, words []string) (any, error) {
	n, err := c.serving(ctx, key)
	if err != nil {
		return nil, err
	}
	reply, err := n.command(ctx, false, words)
	if moved := redirectIn(err); moved != nil {
		c.doubt()
		if n = c.redirectedTo(moved.host); n != nil {
			reply, err = n.command(ctx, moved.ask, words)
		}
	}
	return reply, err
}

// serving returns the server that has a key.
func (c *Client) serving(ctx context.Context, key string) (*node, error) {
	v, err := c.ready(ctx, untilOrSecond(ctx))
	if err != nil {
		return nil, err
	}
	if n := v.at(slotOf([]byte(key))); n != nil {
		return n, nil
	}
	return nil, errUnserved
}

// Eval runs a script that is not a decision by the Redis that has the keys, all
// in one slot, and returns its reply. It borrows a connection until ctx's
// deadline, which must be there. How it ends does not count for the breaker, and
// an open breaker does not keep it from being tried. Where another server has the
// keys by now, that one is asked, once; while they move, nobody is.
func (c *Client) Eval(ctx context.Context, script lua.Script, keys []string, args ...any) (any, error) {
	n, err := c.serving(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	reply, err := n.eval(ctx, script, keys, args...)
	if moved := redirectIn(err); moved != nil {
		c.doubt()
		if n = c.redirectedTo(moved.host); n != nil && !moved.ask {
			return n.eval(ctx, script, keys, args...)
		}
	}
	return reply, err
}

// eval runs a script on the node.
func (n *node) eval(ctx context.Context, script lua.Script, keys []string, args ...any) (any, error) {
	r := n.current.Load()
	if r == nil {
		return nil, n.notRunning()
	}
	c := n.calls.Get().(*call)
	defer c.release()
	c.deadline, _ = ctx.Deadline()
	l, err := r.connections.borrow(ctx, c.deadline)
	if err != nil {
		return nil, fmt.Errorf("borrowing a connection: %w", err)
	}
	c.lane, c.asked = l, true
	words := append([]string{"EVALSHA", script.SHA1, strconv.Itoa(len(keys))}, keys...)
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	c.other = words
	if c.err = c.askOther(); c.err != nil && replyClass(c.err) == "NOSCRIPT" {
		words[0], words[1] = "EVAL", script.Text
		c.err = c.askOther()
	}
	r.connections.giveBack(l, c)
	if c.err != nil {
		return nil, n.redirected(c.err)
	}
	return valueOf(c.in.reply(0))
}
