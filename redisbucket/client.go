package redisbucket

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// outerTimeout bounds every exchange whose own deadline is later or missing.
const outerTimeout = time.Second

// clientOptions are what every connection is made with: one attempt, deadlines
// from the context, and nothing that asks Redis behind our back. A client holds
// one connection; its pool has room for two because go-redis begins to probe on
// its own once it has failed as often as its pool is large.
func clientOptions(o Options, endpoint address, dial dialer) *redis.Options {
	return &redis.Options{
		Network: endpoint.network, Addr: endpoint.host,
		Username: endpoint.user, Password: endpoint.password, DB: endpoint.db,
		Dialer:                   dial,
		Protocol:                 2,
		MaxRetries:               -1,
		DialTimeout:              o.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              outerTimeout,
		WriteTimeout:             outerTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 2,
		PoolTimeout:              outerTimeout,
		PipelinePoolSize:         -1,
		MaxConcurrentDials:       2,
		ReadBufferSize:           4 << 10,
		WriteBufferSize:          4 << 10,
		ConnMaxIdleTime:          -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// newDialer returns a dialer whose attempts end with life, so that closing does
// not wait for a network that does not answer.
func newDialer(life context.Context, o Options, endpoint address) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		config, err := o.TLS.config(endpoint)
		if err != nil {
			return nil, err
		}
		plain := &net.Dialer{}
		if config == nil {
			return plain.DialContext(ctx, network, addr)
		}
		return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, addr)
	}
}

// untilContext is a context that is nothing but a deadline. It costs no timer
// and can be used again: the client turns it into the connection's deadline.
type untilContext struct{ deadline time.Time }

// Deadline returns the time that the context stands for.
func (c *untilContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns nil: the context is never canceled.
func (c *untilContext) Done() <-chan struct{} { return nil }

// Err returns nil: the connection's deadline tells, not the context.
func (c *untilContext) Err() error { return nil }

// Value returns nil.
func (c *untilContext) Value(any) any { return nil }

// Interface guards
var _ context.Context = (*untilContext)(nil)
