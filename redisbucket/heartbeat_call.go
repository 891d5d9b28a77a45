package redisbucket

import (
	"context"
	"fmt"

	"github.com/caddygate/ratelimit/lua"
)

// eval runs a script that is not a decision by the Redis that has the keys, all
// in one slot, and returns its reply. It borrows a connection until ctx's
// deadline, which must be there. How it ends does not count for the breaker, and
// an open breaker does not keep it from being tried. Where another server has the
// keys by now, that one is asked, once; while they move, nobody is.
func (c *Client) eval(ctx context.Context, script lua.Script, keys []string, args ...any) (any, error) {
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
	g := n.current.Load()
	if g == nil {
		return nil, n.notRunning()
	}
	deadline, _ := ctx.Deadline()
	lane, err := g.borrow(ctx, deadline)
	if err != nil {
		return nil, fmt.Errorf("borrowing a connection: %w", err)
	}
	reply, err := lane.conn.EvalSha(ctx, script.SHA1, keys, args...).Result()
	if err != nil && replyClass(err) == "NOSCRIPT" {
		reply, err = lane.conn.Eval(ctx, script.Text, keys, args...).Result()
	}
	if err != nil {
		err = n.redirected(unreadable(err))
	}
	g.giveBack(lane, &call{asked: true, err: err})
	return reply, err
}
