package redisbucket

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// askParts makes one call of the script for each part, all in one exchange. Those
// for whom the script was not known are sent once more: the first with its whole
// text, which the others find there then.
func (c *call) askParts(parts []part) {
	for i := range parts {
		parts[i].encode()
		parts[i].err = errPending
	}
	c.exchangeParts(parts, false)
	unknown := false
	for i := range parts {
		if err := parts[i].err; err != nil && replyClass(err) == "NOSCRIPT" {
			parts[i].err, unknown = errPending, true
		}
	}
	if unknown {
		c.exchangeParts(parts, true)
	}
	for i := range parts {
		if redirectIn(parts[i].err) != nil {
			c.node.client.doubt()
			return
		}
	}
}

// exchangeParts sends the parts that are pending, and settles them.
func (c *call) exchangeParts(parts []part, whole bool) {
	pipe := c.lane.conn.Pipeline()
	names := &c.node.client.names
	for i := range parts {
		p := &parts[i]
		if p.err != errPending { //nolint:errorlint // the mark itself
			continue
		}
		if p.asking {
			_ = pipe.Process(&c.until, redis.NewStatusCmd(&c.until, "asking")) // it is sent by Exec
		}
		list := p.command(names.evalsha, names.sha1)
		if whole {
			list = p.command(names.eval, names.text)
			whole = false
		}
		p.reply.clear()
		p.sent = redis.NewRawWriteToCmd(&c.until, &p.reply, list...)
		_ = pipe.Process(&c.until, p.sent)
	}
	_, failed := pipe.Exec(&c.until)
	for i := range parts {
		if p := &parts[i]; p.err == errPending { //nolint:errorlint // the mark itself
			p.settle(p.outcome(failed), c.node)
		}
	}
}

// outcome returns how the part's command ended in a pipeline that may have failed.
func (p *part) outcome(failed error) error {
	if err := p.sent.Err(); err != nil {
		return unreadable(err)
	}
	if len(p.reply.data) == 0 {
		return fmt.Errorf("%w: %w", errReply, failed)
	}
	return errorIn(p.reply.data)
}

// askOther sends a command that is not the script.
func (c *call) askOther() error {
	c.reply.expect(0, 0)
	if !c.asking {
		return c.send(c.other, &c.reply)
	}
	c.reply.clear()
	pipe := c.lane.conn.Pipeline()
	_ = pipe.Process(&c.until, redis.NewStatusCmd(&c.until, "asking")) // it is sent by Exec
	sent := redis.NewRawWriteToCmd(&c.until, &c.reply, c.other...)
	_ = pipe.Process(&c.until, sent)
	_, _ = pipe.Exec(&c.until) // what it replied is in sent
	if err := sent.Err(); err != nil {
		return unreadable(err)
	}
	return errorIn(c.reply.data)
}

// command has whoever serves a key run one command on it, beside the calls of the
// senders, and returns the reply as it came. It returns by ctx's deadline or
// within about a second. A server that says that another one serves the key has
// done nothing, and that one is asked, once.
func (c *Client) command(ctx context.Context, key string, list ...any) ([]byte, error) {
	n, err := c.serving(ctx, key)
	if err != nil {
		return nil, err
	}
	reply, err := n.command(ctx, false, list)
	if moved := redirectIn(err); moved != nil {
		c.doubt()
		if n = c.redirectedTo(moved.host); n != nil {
			reply, err = n.command(ctx, moved.ask, list)
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
