package nothing

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Refuse ends every request with the error 429, on the way that a rate limiter
// takes.
type Refuse struct{}

// CaddyModule returns the module's ID and how to make one.
func (Refuse) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bench_refuse", New: func() caddy.Module { return new(Refuse) }}
}

// ServeHTTP refuses the request.
func (Refuse) ServeHTTP(http.ResponseWriter, *http.Request, caddyhttp.Handler) error {
	return caddyhttp.Error(http.StatusTooManyRequests, errRefused)
}

var errRefused = errors.New("everything is refused")

// Interface guards
var (
	_ caddy.Module                = Refuse{}
	_ caddyhttp.MiddlewareHandler = Refuse{}
)
