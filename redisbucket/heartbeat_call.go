package redisbucket

import (
	"context"
	"fmt"
	"strconv"

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
