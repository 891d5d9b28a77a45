package nothing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/redis/go-redis/v9"
)

// pingTimeout is how long a PING may take before the request fails, which voids
// the run.
const pingTimeout = time.Second

// Ping asks Redis for one PING per request, over go-redis' pool, and passes the
// request on.
type Ping struct {
	// The host and port of Redis. Default: none; it is required.
	Addr string `json:"addr,omitempty"`

	client *redis.Client
}

// CaddyModule returns the module's ID and how to make one.
func (*Ping) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bench_ping", New: func() caddy.Module { return new(Ping) }}
}

// Provision makes the client, which connects at the first request.
func (p *Ping) Provision(caddy.Context) error {
	if p.Addr == "" {
		return errors.New("addr: name the host and port of Redis")
	}
	p.client = redis.NewClient(&redis.Options{
		Addr: p.Addr, Protocol: 2, DialTimeout: pingTimeout, ReadTimeout: pingTimeout, WriteTimeout: pingTimeout,
	})
	return nil
}

// Cleanup closes the client.
func (p *Ping) Cleanup() error {
	if p.client == nil {
		return nil
	}
	return p.client.Close()
}

// ServeHTTP lets the request pass to next once Redis has answered, and ends it
// with the error 502 where Redis does not.
func (p *Ping) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if err := p.ping(r.Context()); err != nil {
		return caddyhttp.Error(http.StatusBadGateway, fmt.Errorf("asking Redis: %w", err))
	}
	return next.ServeHTTP(w, r)
}

func (p *Ping) ping(ctx context.Context) error {
	return p.client.Ping(ctx).Err()
}

func parsePing(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	p := new(Ping)
	if h.Next(); !h.Args(&p.Addr) {
		return nil, h.ArgErr()
	}
	return p, nil
}

// Interface guards
var (
	_ caddy.Module                = (*Ping)(nil)
	_ caddy.Provisioner           = (*Ping)(nil)
	_ caddy.CleanerUpper          = (*Ping)(nil)
	_ caddyhttp.MiddlewareHandler = (*Ping)(nil)
)
