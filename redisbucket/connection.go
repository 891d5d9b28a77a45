package redisbucket

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// outerTimeout bounds an exchange that has no deadline of its own.
	outerTimeout = time.Second
	// socketTimeout bounds an exchange whatever its deadline: no decision may wait
	// any longer.
	socketTimeout = 10 * time.Second
)

// newConnection makes a client of one connection, which it never replaces: one
// attempt, deadlines from the context, and nothing that asks Redis behind our
// back. It owns conn from then on.
func newConnection(o Options, endpoint address, conn net.Conn) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: endpoint.network, Addr: endpoint.host,
		Username: endpoint.user, Password: endpoint.password, DB: endpoint.db,
		Dialer:                   once(conn),
		Protocol:                 2,
		MaxRetries:               -1,
		DialTimeout:              o.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              socketTimeout,
		WriteTimeout:             socketTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 1,
		PoolTimeout:              outerTimeout,
		MinIdleConns:             0,
		PipelinePoolSize:         -1,
		MaxConcurrentDials:       2,
		ReadBufferSize:           4 << 10,
		WriteBufferSize:          4 << 10,
		ConnMaxIdleTime:          -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// dial connects to the endpoint within the dial timeout, TLS included.
func dial(ctx context.Context, o Options, endpoint address) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	config, err := o.TLS.config(endpoint)
	if err != nil {
		return nil, err
	}
	plain := &net.Dialer{}
	if config == nil {
		return plain.DialContext(ctx, endpoint.network, endpoint.host)
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, endpoint.network, endpoint.host)
}

// once returns a dialer that hands out a connection that is there already. The
// client's pool, which would dial within a request, try again and log, never
// gets to dial.
func once(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var used atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, net.ErrClosed
		}
		return conn, nil
	}
}
