// Package ratelimit limits API traffic for a whole cluster of Caddy gateways at
// once. A request enters at Handler.ServeHTTP: the handler finds out whose
// request it is, looks up the rule that counts, and asks the App's chain of
// limiters to take a token from the bucket of that tenant and route.
package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler limits how often each tenant may call a route. Every tenant has one
// bucket for each route: in Redis, shared by all gateways, where the app
// `rate_limit` names one, and in memory otherwise. A request that finds its
// bucket empty ends with the error 429, which `handle_errors` can render.
//
// Placeholders, set once a request was decided:
//
// Placeholder | Description
// ------------|---------------
// `{http.rate_limit.tenant}` | The tenant that was charged
// `{http.rate_limit.route}` | The route that was charged
// `{http.rate_limit.remaining}` | The whole tokens that are left
// `{http.rate_limit.source}` | Who decided: `redis`, `local` or `none`
// `{http.rate_limit.exceeded.name}` | The route whose limit refused the request
type Handler struct {
	// The name of what is limited, 1 to 64 characters of `A-Za-z0-9._-`. Handlers
	// with the same route share their buckets, also over sites. Several routes in
	// one handler are not yet supported. Default: `["default"]`.
	Routes []string `json:"routes,omitempty"`

	// Who is limited: a text with placeholders whose value names the tenant. A
	// header in it that a request sends twice is answered with 400. Default:
	// `{http.request.header.X-Api-Key}`.
	Tenant string `json:"tenant,omitempty"`

	// Whether tenants are known by the SHA-256 of their value. Not yet
	// supported. Default: false.
	TenantHashed bool `json:"tenant_hashed,omitempty"`

	// What happens to a request without a tenant: `deny` answers 401, `allow`
	// lets it pass without a limit. `ip` is not yet supported. Default: `deny`.
	Guest string `json:"guest,omitempty"`

	// How many bits of a guest's IPv4 address count. Not yet supported.
	// Default: 32.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`

	// How many bits of a guest's IPv6 address count. Not yet supported.
	// Default: 64.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// What happens to a tenant without a rule of its own. Not yet supported.
	// Default: `default`.
	Unknown string `json:"unknown,omitempty"`

	// The limits that count where no rule, neither in PostgreSQL nor among the
	// app's static rules, is found. Default: the app's `default`.
	Limits []Limit `json:"limits,omitempty"`

	// How buckets count where a rule does not say: `token_bucket`.
	// `sliding_window_log` and `sliding_window_counter` are not yet supported.
	// Default: `token_bucket`.
	Algorithm string `json:"algorithm,omitempty"`

	// How many tokens a request takes. Not yet supported. Default: 1.
	Cost string `json:"cost,omitempty"`

	// How many tokens are taken ahead for hot keys. Not yet supported.
	// Default: 0.
	Prefetch string `json:"prefetch,omitempty"`

	// Into how many parts a bucket is split. Not yet supported. Default: 1.
	Shards int `json:"shards,omitempty"`

	// Whether to decide and count, but never refuse. Not yet supported.
	// Default: false.
	Shadow bool `json:"shadow,omitempty"`

	// Which headers tell clients about their limit: `legacy` sets
	// X-RateLimit-Limit, -Remaining and -Reset, `off` sets none (Retry-After on a
	// 429 is always set). `ietf` and `both` are not yet supported. Default: the
	// app's `headers`.
	Headers string `json:"headers,omitempty"`

	// Whether the log line about a refusal names the tenant. API keys are
	// secrets: turn it on only where the log may hold them. Default: false.
	LogKey bool `json:"log_key,omitempty"`

	// The zones of caddy-ratelimit's own configuration. Not yet supported.
	Zones

	app      *App
	logger   *zap.Logger
	route    string
	tenant   tenantSource
	defaults limit.Rule // what a rule does not name
	fallback limit.Rule // the rule where no other is found
	fields   bool       // whether X-RateLimit-* are set
	counts   *routeMetrics
}

// CaddyModule returns the module's ID and how to make one.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision resolves the handler's settings against the app's. It touches
// neither the network nor anything that a running config uses.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	app, err := ctx.App(appName)
	if err != nil {
		return fmt.Errorf("loading the app %s: %w", appName, err)
	}
	h.app = app.(*App)
	if err := h.refuseUnsupported(); err != nil {
		return err
	}
	if err := h.provisionRoute(); err != nil {
		return err
	}
	if h.tenant, err = newTenantSource(h.Tenant, h.logger); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	h.counts = h.app.metrics.route(h.route)
	return h.provisionLimits()
}

// Validate checks the words that Provision does not have to understand.
func (h *Handler) Validate() error {
	if err := oneOf("guest", h.Guest, guestDeny, guestAllow); err != nil {
		return err
	}
	return oneOf("headers", h.Headers, headersLegacy, headersOff)
}

// ServeHTTP lets the request pass to next if the tenant's bucket for the route
// has a token for it, and refuses it otherwise.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	started := time.Now()
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	tenant, err := h.tenant.of(r, repl)
	if err != nil {
		return caddyhttp.Error(http.StatusBadRequest, err)
	}
	if tenant == "" {
		return h.serveGuest(w, r, next)
	}

	key := limit.Key{Tenant: limit.EscapeName(tenant), Route: h.route}
	known := answerOf(r)
	if known.charged(key) {
		return known.passAgain(w, r, next)
	}
	current := known
	if current == nil {
		current = newAnswer()
	}
	charge := current.add(limit.Bucket{Key: key, Rule: h.rule(r, tenant)})
	charge.tenant = tenant
	if err := h.decide(r, charge); err != nil {
		return err
	}
	h.counts.observe(time.Since(started))
	return h.respond(w, r, next, current)
}

// rule returns the one rule that counts for the tenant on this route.
func (h *Handler) rule(r *http.Request, tenant string) limit.Rule {
	rule, found := h.app.findRule(r.Context(), tenant, h.route)
	if !found {
		return h.fallback
	}
	return rule.Or(h.defaults)
}

// decide asks the limiters about the charge and writes their answer into it. It
// errs only where the client has left.
func (h *Handler) decide(r *http.Request, charge *charge) error {
	decision, err := h.app.limiter.Take(r.Context(), limit.Request{
		Buckets: charge.bucket[:], Cost: 1, Count: 1,
	})
	if err == nil {
		charge.decision = decision
		return nil
	}
	if cause := r.Context().Err(); cause != nil {
		return caddyhttp.Error(statusClientClosedRequest, cause)
	}
	// Even the last limiter of the chain failed. That is a defect of ours, and
	// no reason to fail the request.
	h.logger.Error("deciding failed, the request passes", zap.Error(err))
	charge.decision = limit.Decision{Granted: 1, Source: limit.SourceNone}
	return nil
}

// respond counts the newest decision of the answer, tells the client about it,
// and calls next if it was granted.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, current *answer) error {
	newest := current.newest()
	current.publish(r)
	if newest.decision.Granted < 1 {
		h.counts.count(outcomeRefused, newest.decision.Source)
		h.app.refusals.note(newest.bucket[0].Key, h.refusal(newest))
		current.refuse(w, h.fields)
		return caddyhttp.Error(http.StatusTooManyRequests, errExceeded)
	}
	if newest.decision.Source == limit.SourceNone {
		h.counts.count(outcomeAllowed, limit.SourceNone)
		return next.ServeHTTP(w, r)
	}
	h.counts.count(outcomeGranted, newest.decision.Source)
	return current.pass(w, r, next, h.fields)
}

// serveGuest answers a request that names no tenant.
func (h *Handler) serveGuest(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.Guest == guestAllow {
		h.counts.count(outcomeAllowed, limit.SourceNone)
		return next.ServeHTTP(w, r)
	}
	h.counts.count(outcomeUnauthorized, limit.SourceNone)
	w.Header().Set("WWW-Authenticate", challenge)
	return caddyhttp.Error(http.StatusUnauthorized, errNoTenant)
}

// refusal describes a refusal to the sampled log.
func (h *Handler) refusal(c *charge) refusal {
	said := refusal{route: h.route, source: c.decision.Source, wait: c.decision.First.RetryAfter}
	if h.LogKey {
		said.tenant = c.tenant
	}
	return said
}

func (h *Handler) provisionRoute() error {
	switch len(h.Routes) {
	case 0:
		h.route = defaultRoute
	case 1:
		h.route = h.Routes[0]
	default:
		return notYetSupported("routes", "several routes in one handler")
	}
	if !limit.ValidRoute(h.route) {
		return fmt.Errorf("routes: %q is not a route: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", h.route, limit.MaxRouteLength)
	}
	return nil
}

func (h *Handler) provisionLimits() error {
	algorithm := limit.TokenBucket
	if h.Algorithm != "" {
		var err error
		if algorithm, err = limit.ParseAlgorithm(h.Algorithm); err != nil {
			return fmt.Errorf("algorithm: %w", err)
		}
	}
	h.defaults = limit.Rule{Algorithm: algorithm, Mode: limit.Enforce, Prefetch: limit.PrefetchOff, Shards: 1}
	h.fields = h.headers() != headersOff
	own, found, err := ownLimit(h.Limits, h.route)
	switch {
	case err != nil:
		return err
	case found:
		h.fallback = own.Or(h.defaults)
	case h.app.fallback != nil:
		h.fallback = h.app.fallback.Or(h.defaults)
	case !h.app.coversRoute(h.route):
		return fmt.Errorf("route %q has no rule that every tenant falls back to: give the directive a `limit`, the global option a `default`, or add a static rule for (*, %s)", h.route, h.route)
	}
	return nil
}

// headers returns the word that counts for this handler.
func (h *Handler) headers() string {
	for _, word := range []string{h.Headers, h.app.Headers} {
		if word != "" {
			return word
		}
	}
	return headersLegacy
}

// refuseUnsupported names what the configuration may hold, but this version does not do.
func (h *Handler) refuseUnsupported() error {
	return firstUnsupported([]unsupported{
		{"tenant_hashed", "hashed tenants", h.TenantHashed},
		{"guest", "guest ip", h.Guest == "ip"},
		{"ipv4_prefix", "ipv4_prefix", h.IPv4Prefix != 0},
		{"ipv6_prefix", "ipv6_prefix", h.IPv6Prefix != 0},
		{"unknown", "unknown", h.Unknown != ""},
		{"algorithm", h.Algorithm, isWindow(h.Algorithm)},
		{"cost", "cost", h.Cost != ""},
		{"prefetch", "prefetch", h.Prefetch != ""},
		{"shards", "shards", h.Shards != 0},
		{"shadow", "shadow", h.Shadow},
		{"headers", "headers " + h.Headers, h.Headers == "ietf" || h.Headers == "both"},
		{"rate_limits", "zones", len(h.RateLimits) > 0},
	})
}

// The words and statuses of the handler.
const (
	defaultRoute  = "default"
	guestDeny     = "deny"
	guestAllow    = "allow"
	headersLegacy = "legacy"
	headersOff    = "off"

	// challenge is the WWW-Authenticate value of a 401: what is missing is a key.
	challenge = `ApiKey realm="rate_limit"`

	// statusClientClosedRequest is the status nginx made known for a client that
	// left before it was answered.
	statusClientClosedRequest = 499
)

var (
	errExceeded = errors.New("rate limit exceeded")
	errNoTenant = errors.New("the request names no tenant")
)

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
