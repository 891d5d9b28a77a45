// Package nothing holds the handlers that a rate limiter is compared with: one
// that does nothing, which is the price of a handler, one that asks Redis for
// nothing, which is the price of a round trip, and one that refuses everything.
package nothing

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Register makes the modules and their directives known to Caddy. Call it once,
// before Caddy starts.
func Register() {
	caddy.RegisterModule(Nothing{})
	caddy.RegisterModule(Refuse{})
	caddy.RegisterModule(new(Ping))
	directive("bench_nothing", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return Nothing{}, withoutArguments(h)
	})
	directive("bench_refuse", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return Refuse{}, withoutArguments(h)
	})
	directive("bench_ping", parsePing)
}

// directive stands where `rate_limit` does.
func directive(name string, parse httpcaddyfile.UnmarshalHandlerFunc) {
	httpcaddyfile.RegisterHandlerDirective(name, parse)
	httpcaddyfile.RegisterDirectiveOrder(name, httpcaddyfile.Before, "basic_auth")
}

func withoutArguments(h httpcaddyfile.Helper) error {
	if h.Next(); h.NextArg() {
		return h.ArgErr()
	}
	return nil
}

// Nothing passes every request on.
type Nothing struct{}

// CaddyModule returns the module's ID and how to make one.
func (Nothing) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bench_nothing", New: func() caddy.Module { return new(Nothing) }}
}

// ServeHTTP lets the request pass to next.
func (Nothing) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}

// Interface guards
var (
	_ caddy.Module                = Nothing{}
	_ caddyhttp.MiddlewareHandler = Nothing{}
)
