package redisbucket

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// inquiryPause is how long a server is given to answer before another one is
// asked too.
const inquiryPause = 100 * time.Millisecond

// inquire asks one server one thing, over a connection of its own.
func (c *Client) inquire(ctx context.Context, endpoint address, command ...any) (any, error) {
	var reply any
	err := c.visit(ctx, endpoint, func(client *redis.Client) (err error) {
		reply, err = client.Do(ctx, command...).Result()
		return err
	})
	return reply, err
}

// visit connects to a server for as long as use takes.
func (c *Client) visit(ctx context.Context, endpoint address, use func(*redis.Client) error) error {
	conn, err := dial(ctx, c.options, endpoint)
	if err != nil {
		return err
	}
	first := &hearing{Conn: conn}
	client := newConnection(c.options, endpoint, first)
	hangUp := func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	unhook := context.AfterFunc(ctx, hangUp)
	defer hangUp()
	defer unhook()
	return first.explained(use(client))
}

// said is what one of several servers answered.
type said[T any] struct {
	value T
	err   error
}

// inquiry is a question to several servers.
type inquiry[T any] struct {
	from   []address
	pause  time.Duration // before the next one is asked too, unless one was in vain; 0: all at once
	ask    func(context.Context, address) (T, error)
	enough func(said[T]) bool // looks at an answer, and reports whether no more are needed
}

// make asks until enough was said, or all have answered. Whoever is still being
// asked then is not waited for any longer than hanging up takes.
func (q inquiry[T]) make(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan said[T], len(q.from))
	next := make(chan struct{}, len(q.from))
	for i, endpoint := range q.from {
		go func() {
			if !wait(ctx, time.Duration(i)*q.pause, next) {
				answers <- said[T]{err: ctx.Err()}
				return
			}
			value, err := q.ask(ctx, endpoint)
			answers <- said[T]{value, err}
		}()
	}
	done := false
	for range q.from {
		answer := <-answers
		if done {
			continue
		}
		if done = q.enough(answer); done {
			cancel()
		} else {
			next <- struct{}{}
		}
	}
}

// mostTelling returns the error that tells the operator most of those of several
// servers: that what is asked for is not there, then what one of them replied, such
// as that the password is wrong, and only then that one does not answer.
func mostTelling(errs []error) error {
	for _, tells := range []func(error) bool{isSetup, fromRedis} {
		if at := slices.IndexFunc(errs, tells); at >= 0 {
			return errs[at]
		}
	}
	return errs[0]
}

// wait waits for d or a sign. It is false where ctx is done before.
func wait(ctx context.Context, d time.Duration, sign <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sign:
	case <-ctx.Done():
		return false
	}
	return true
}
