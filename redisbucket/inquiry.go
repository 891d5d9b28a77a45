package redisbucket

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// inquireEvery is how long the next server is given to answer before another one
// is asked too.
const inquireEvery = 100 * time.Millisecond

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
	client := newConnection(c.options, endpoint, conn)
	hangUp := func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	unhook := context.AfterFunc(ctx, hangUp)
	defer hangUp()
	defer unhook()
	return use(client)
}

// said is what one of several servers said.
type said[T any] struct {
	from  address
	value T
	err   error
}

// inquireAll asks all the servers, each a little after the one before, and has
// enough look at each answer, until it is true or all have answered. Whoever is
// still being asked then is not waited for any longer than hanging up takes.
func inquireAll[T any](ctx context.Context, from []address, ask func(context.Context, address) (T, error), enough func(said[T]) bool) {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan said[T], len(from))
	for i, endpoint := range from {
		go func() {
			value, err := askLater(ctx, time.Duration(i)*inquireEvery, endpoint, ask)
			answers <- said[T]{endpoint, value, err}
		}()
	}
	left := len(from)
	for ; left > 0; left-- {
		if enough(<-answers) {
			left--
			break
		}
	}
	cancel()
	for ; left > 0; left-- {
		<-answers
	}
}

func askLater[T any](ctx context.Context, after time.Duration, endpoint address, ask func(context.Context, address) (T, error)) (T, error) {
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	return ask(ctx, endpoint)
}
