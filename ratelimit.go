// Package ratelimit limits API traffic for a whole cluster of Caddy gateways at
// once: one bucket of tokens for each tenant and route, in Redis, under rules from
// PostgreSQL, and in each gateway's memory where either is out of reach.
//
// Begin with ratelimit.go: a request enters at Handler.ServeHTTP, which finds out
// whose request it is, which rule counts, and asks the App's chain of limiters to take
// a token from the bucket. CONTRIBUTING.md has the map of the other files.
package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/block"
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
// The configuration of mholt/caddy-ratelimit is read as it stands: there, the
// name of a zone is the route, and its key is the tenant.
//
// Placeholders, set once a request was decided, and blank where no bucket was asked:
//
// Placeholder | Description
// ------------|---------------
// `{http.rate_limit.tenant}` | The tenant that was charged
// `{http.rate_limit.route}` | The route that was charged
// `{http.rate_limit.remaining}` | The whole tokens that are left
// `{http.rate_limit.source}` | Who decided: `redis`, `remembered`, `prefetch`, `local` or `none`
// `{http.rate_limit.charged}` | What the request has cost so far
// `{http.rate_limit.exceeded.name}` | The route whose limit refused the request
// `{http.rate_limit.exceeded.reason}` | Why: `rate`, `concurrency` or `ban`
type Handler struct {
	// The names of what is limited, 1 to 64 characters of `A-Za-z0-9._-` each.
	// Handlers with the same route share its buckets, also over sites. A request
	// needs a token from the bucket of every route, and takes from all or from
	// none. Default: `["default"]`.
	Routes []string `json:"routes,omitempty"`

	// Who is limited: a text with placeholders whose value names the tenant. A
	// header in it that a request sends twice is answered with 400. Default:
	// `{http.request.header.X-Api-Key}`.
	Tenant string `json:"tenant,omitempty"`

	// Whether tenants are known by the hex SHA-256 of their value, in Redis and in
	// rules, so that neither holds API keys. Default: false.
	TenantHashed bool `json:"tenant_hashed,omitempty"`

	// What happens to a request without a tenant: `deny` answers 401, `allow`
	// lets it pass without a limit, `ip` limits it by the client's IP address, of
	// which Redis sees a keyed hash only. Rules for guests have the tenant
	// `~guest`. Default: `deny`.
	Guest string `json:"guest,omitempty"`

	// How many bits of a guest's IPv4 address count, from 1 to 32. Default: 32.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`

	// How many bits of a guest's IPv6 address count, from 1 to 128: providers hand
	// out whole networks. Default: 64.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// What happens to a tenant without any rule of its own: `default` limits it as
	// the rules for all say, `guest` treats it as a request without a tenant, so
	// that made-up keys are no way around a limit, and `deny` answers 401. Until
	// rules are known it is `default`. Default: `default`.
	Unknown string `json:"unknown,omitempty"`

	// The plan of a tenant of which neither the table of tenants nor the app's `plans`
	// know one: a text with placeholders, such as what an authentication has set. Rules
	// for a plan have the tenant `~` and its name. Default: none.
	Plan string `json:"plan,omitempty"`

	// The limits that count where no rule, neither in PostgreSQL nor among the
	// app's static rules, is found. Default: the app's `default`.
	Limits []Limit `json:"limits,omitempty"`

	// How buckets count where a rule does not say: `token_bucket`,
	// `sliding_window_log` or `sliding_window_counter`. Default: `token_bucket`.
	Algorithm string `json:"algorithm,omitempty"`

	// How many tokens a request takes: a whole number from 1, or a placeholder. A
	// request whose cost is anything else is answered with 400. Default: 1.
	Cost string `json:"cost,omitempty"`

	// What a request takes of one route where that is not `cost`, so that requests and
	// what they use stand in one handler. Default: none.
	Costs []Cost `json:"costs,omitempty"`

	// What a request cost in the end, by its answer: one for each route, or one for
	// all. Not with prefetch or shards. Default: what it took at its start.
	Charge []Charge `json:"charge,omitempty"`

	// Who empties the bucket stays out of the route until the time is over, on all
	// gateways. With `charge`, what answers have cost must have emptied it; else the
	// first request that is refused begins it. Not with prefetch or shards. Default:
	// nobody is banned.
	Ban *Ban `json:"ban,omitempty"`

	// How many requests of a tenant run at one time, over all gateways: one for each
	// route, or one for all. It needs no limit beside it. Not with prefetch or shards.
	// Default: any number.
	Concurrent []Concurrent `json:"concurrent,omitempty"`

	// How many tokens each gateway may take ahead from Redis for a bucket that is
	// asked for often, from 0 to 100,000, or `auto` for as many as its demand asks
	// for. All gateways together may then admit as many tokens over the limit.
	// Only for one route and a cost of 1, where a rule does not say. Default: 0.
	Prefetch Prefetch `json:"prefetch,omitempty"`

	// Into how many parts each bucket is split in Redis, from 1 to 16, so that one
	// hot bucket does not meet at one key. Only for a token bucket of one route, a
	// cost of 1 and without prefetch, where a rule does not say. Default: 1.
	Shards int `json:"shards,omitempty"`

	// Whether to decide and count, but never refuse, where a rule does not say. A
	// request without a tenant, or one that is invalid, then passes and is counted
	// as `unauthorized` or `invalid`. Default: false.
	Shadow bool `json:"shadow,omitempty"`

	// Which headers tell clients about their limit: `legacy` sets
	// X-RateLimit-Limit, -Remaining and -Reset, `ietf` sets RateLimit-Policy and
	// RateLimit after draft-ietf-httpapi-ratelimit-headers-11, `both` sets all
	// five, `off` none. Retry-After on a 429 does not depend on it. Default: the
	// app's `headers`; where that is not set either, `off` for zones.
	Headers string `json:"headers,omitempty"`

	// Whether logs, spans and events name the tenant. API keys are secrets: turn
	// it on only where those may hold them. Default: false.
	LogKey bool `json:"log_key,omitempty"`

	// Whether every refusal is a line of the log. Under attack that costs more than
	// the attack. Default: false; the first of a bucket in a minute is, and a line
	// counts the others.
	LogAll bool `json:"log_all,omitempty"`

	// What is read of caddy-ratelimit's own configuration.
	Compat

	ctx      caddy.Context
	app      *App
	logger   *zap.Logger
	identity identity
	cost     costSource
	zones    []*zone
	style    headerStyle
	metered  bool   // some zone charges by the answer
	unread   *int64 // of the Caddyfile's option, until it is in each charge
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
	h.ctx, h.logger = ctx, ctx.Logger()
	app, err := ctx.App(appName)
	if err != nil {
		return fmt.Errorf("loading the app %s: %w", appName, err)
	}
	h.app = app.(*App)
	if err := h.checkZoneOptions(); err != nil {
		return err
	}
	if h.limitsNothing() {
		h.logger.Warn("this rate_limit has no zone, so it limits nothing")
		return nil
	}
	if len(h.RateLimits) == 0 {
		if h.identity, err = newIdentity(h); err != nil {
			return err
		}
	}
	if h.cost, err = newCostSource(h.Cost); err != nil {
		return err
	}
	h.warnOfPlaceholders("cost", h.cost.template)
	h.style = h.headerStyle()
	if err := h.provisionZones(ctx); err != nil {
		return err
	}
	h.app.handlers = append(h.app.handlers, h)
	return nil
}

// Validate checks the words and numbers that Provision does not have to understand.
func (h *Handler) Validate() error {
	return errors.Join(
		block.OneOf("guest", h.Guest, guestDeny, guestAllow, guestIP),
		block.OneOf("unknown", h.Unknown, unknownDefault, unknownGuestWord, unknownDeny),
		block.OneOf("headers", h.Headers, headersLegacy, headersIETF, headersBoth, headersOff),
		ipv4PrefixBounds.CheckSet("ipv4_prefix", h.IPv4Prefix),
		ipv6PrefixBounds.CheckSet("ipv6_prefix", h.IPv6Prefix),
		shardBounds.CheckSet("shards", h.Shards),
	)
}

// ServeHTTP lets the request pass to next if the tenant's bucket of every route
// has what the request costs, and refuses it otherwise.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if len(h.zones) == 0 {
		return next.ServeHTTP(w, r)
	}
	started := sinceStart()
	current := verdictOf(r)
	if current.closed {
		return current.pass(w, r, next)
	}
	rules := h.app.rules(r.Context())
	who, means, err := h.identify(r, current.repl, rules)
	if err != nil || means != standingLimited {
		if h.passes(current, means, err) {
			return current.passFree(w, r, next)
		}
		return current.unidentified(w, r, err)
	}
	from := len(current.charges)
	if z, status, err := h.charge(r, current, who, rules); err != nil {
		current.charges = current.charges[:from] // in handle_errors they would pass for buckets that were asked
		current.turnAway(outcomeOf(status), z)
		z.counts.count(current.turned, limit.SourceNone)
		return current.close(w, r, status, err)
	}
	if len(current.charges) == from {
		return current.passFree(w, r, next)
	}
	cost, err := h.costs(current, from)
	if err != nil {
		if turnCostAway(current, from) {
			return current.passFree(w, r, next)
		}
		return current.close(w, r, http.StatusBadRequest, err)
	}
	h.app.countDemand(current.charges[from:], cost)
	var asked time.Time
	if h.metered {
		asked = time.Now()
	}
	wanted := limit.Request{Buckets: current.buckets[:0], Cost: cost, Count: 1, Local: rules.ignorant()}
	if err := h.decide(current.charges[from:], wanted, h.taking(r.Context())); err != nil {
		h.app.giveBackUnknown(current.charges[from:], true)
		return current.leave(r, from, err)
	}
	current.publish()
	h.account(current.charges[from:], sinceStart()-started)
	if violated := current.violated(from); violated >= 0 {
		h.app.giveBackUnknown(current.charges[from:], false)
		return h.refuse(w, r, current, violated)
	}
	if h.metered {
		kept := who // which most requests need no longer
		current.who = &kept
	}
	return h.serve(w, r, next, admitted{current, from, asked})
}

// admitted is a request that passes: its verdict, the first of this handler's charges, and
// when they were asked for.
type admitted struct {
	*verdict
	from  int
	asked time.Time
}

// serve lets the request pass, and holds its places until it has ended.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, p admitted) error {
	h.tellShadows(r, p.charges[p.from:])
	p.showNearest(p.from, h.style)
	p.annotate(r.Context())
	if held := h.app.enter(p.charges[p.from:]); held != nil {
		held.ResponseWriterWrapper = caddyhttp.ResponseWriterWrapper{ResponseWriter: w}
		defer held.done()
		w = held
	}
	if h.metered {
		return h.answer(p.verdict, p.from, p.asked).serve(w, r, next)
	}
	return p.pass(w, r, next)
}

// refuse answers for the bucket that refused, and tells of it.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, current *verdict, violated int) error {
	c := &current.charges[violated]
	if c.state.Banned > 0 {
		h.app.noteBan(c, c.state.Banned)
	}
	h.tellRefusal(r, c)
	return current.refuse(w, r, violated, h.style)
}

// identify finds out whose request it is. Zones with keys of their own do that
// for themselves.
func (h *Handler) identify(r *http.Request, repl *caddy.Replacer, rules ruleSet) (visitor, standing, error) {
	if len(h.RateLimits) > 0 {
		return visitor{}, standingLimited, nil
	}
	return h.identity.of(r, repl, rules)
}

// charge adds to the verdict the buckets that the request is held to, but for
// those that it was held to before. An error turns the request away, and comes
// with the zone and the status.
func (h *Handler) charge(r *http.Request, current *verdict, who visitor, rules ruleSet) (*zone, int, error) {
	var free []*zone
	for _, zone := range h.zones {
		if !zone.matches(r) {
			continue
		}
		who := who
		if zone.key != nil {
			var err error
			if who, err = zone.visitor(r, current.repl); err != nil {
				if !h.Shadow {
					return zone, invalidStatus(err), err
				}
				zone.counts.count(outcomeInvalid, limit.SourceNone)
				current.turnAway(outcomeInvalid, zone)
				continue
			}
			who.Membership = rules.membership(who.rules)
		}
		key := limit.Key{Tenant: who.key, Route: zone.route}
		if current.charged(key) {
			continue
		}
		if who.Blocked {
			return zone, http.StatusForbidden, errBlocked
		}
		rule := zone.rule(&who, rules)
		switch rule.Mode {
		case limit.Deny:
			return zone, http.StatusForbidden, errDenied
		case limit.Unlimited:
			free = append(free, zone)
		default:
			if rule.Capacity > 0 {
				c := rules.charge(zone, key, who.shown, rule)
				if c.bucket.Settles = zone.meter != nil; c.enforced() {
					c.bucket.Ban = zone.ban
				}
				current.add(c)
			}
			if c, bounded := rules.places(zone, &who, rule); bounded {
				c.bucket.Place = h.app.memory.nextPlace()
				current.add(c)
			}
		}
	}
	for _, zone := range free {
		zone.counts.count(outcomeUnlimited, limit.SourceNone)
	}
	return nil, 0, nil
}

// account counts what was decided.
func (h *Handler) account(charges []charge, took time.Duration) {
	for i := range charges {
		c := &charges[i]
		if h.otherTells(charges, i) {
			continue
		}
		c.zone.counts.observe(took)
		if c.outcome != outcomeUndecided {
			c.count()
			h.app.memory.noteAsked(c)
		}
	}
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
