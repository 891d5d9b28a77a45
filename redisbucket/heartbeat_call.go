package redisbucket

import (
	"context"
	"fmt"

	"github.com/caddygate/ratelimit/lua"
)

// eval runs a script that is not a decision by the Redis that has the keys, all
// in one slot, and returns its reply. It borrows a connection until ctx's
// deadline, which must be there. How it ends does not count for the breaker, and
// an open breaker does not keep it from being tried.
func (n *Node) eval(ctx context.Context, script lua.Script, keys []string, args ...any) (any, error) {
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
		err = unreadable(err)
	}
	g.giveBack(lane, &call{asked: true, err: err})
	return reply, err
}
