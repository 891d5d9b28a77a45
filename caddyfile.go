package ratelimit

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

const directive = "rate_limit"

func init() {
	httpcaddyfile.RegisterDirective(directive, parseDirective)
	httpcaddyfile.RegisterDirectiveOrder(directive, httpcaddyfile.Before, "basic_auth")
	httpcaddyfile.RegisterGlobalOption(appName, parseGlobalOption)
}

// parseDirective makes the handler and its route. It is RegisterHandlerDirective
// with a look at the matcher, because `rate_limit /orders` names no route.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	line := h.Line()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	if matcher != nil && len(handler.Routes) == 0 && len(handler.RateLimits) == 0 {
		caddy.Log().Named(directive).Warn("the first argument is a matcher and no route is named, so the route is `default`",
			zap.String("file", h.File()), zap.Int("line", line))
	}
	return h.NewRoute(matcher, handler), nil
}

// parseGlobalOption makes the app.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next()
		return nil, d.Err("the global option rate_limit stands here twice")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	rate_limit [<matcher>] [<route>...] {
//		tenant      <text with placeholders> [hashed]
//		guest       deny|allow|ip
//		ipv4_prefix <bits>
//		ipv6_prefix <bits>
//		unknown     default|guest|deny
//		limit       <n>/<unit> [burst <n>] [<route>]
//		algorithm   token_bucket|sliding_window_log|sliding_window_counter
//		cost        <n>|<placeholder>
//		prefetch    0|<n>|auto
//		shards      <n>
//		shadow
//		headers     legacy|ietf|both|off
//		log_key
//	}
//
// and that of mholt/caddy-ratelimit:
//
//	rate_limit [<matcher>] {
//		zone <name> {
//			match {
//				<matchers>
//			}
//			key         <text with placeholders>
//			window      <duration>
//			events      <n>
//			ipv4_prefix <bits>
//			ipv6_prefix <bits>
//			algorithm   token_bucket|sliding_window_log|sliding_window_counter
//			burst       <n>
//		}
//		jitter         <part>
//		sweep_interval <duration>
//		distributed {
//			read_interval  <duration>
//			write_interval <duration>
//			purge_age      <duration>
//		}
//		storage <module>
//		log_key
//		disable_metrics
//	}
//
// A unit is s, m, h, d or a duration: 100/s, 5/m, 100/10s.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name; the matcher is gone already
	h.Routes = d.RemainingArgs()
	for _, route := range h.Routes {
		if err := checkRouteArg(d, route); err != nil {
			return err
		}
	}
	err := parseBlock(d, map[string]option{
		"tenant":          {parse: h.parseTenant},
		"guest":           {parse: word(&h.Guest, guestDeny, guestAllow, guestIP).read},
		"ipv4_prefix":     {parse: integer(&h.IPv4Prefix, ipv4PrefixBounds)},
		"ipv6_prefix":     {parse: integer(&h.IPv6Prefix, ipv6PrefixBounds)},
		"unknown":         {parse: word(&h.Unknown, unknownDefault, unknownGuestWord, unknownDeny).read},
		"cost":            {parse: h.parseCost},
		"shadow":          {parse: flag(&h.Shadow)},
		"limit":           {parse: h.parseLimit, repeats: true},
		"algorithm":       {parse: word(&h.Algorithm, limit.TokenBucket.String(), limit.SlidingWindowLog.String(), limit.SlidingWindowCounter.String()).read},
		"headers":         {parse: word(&h.Headers, headersLegacy, headersIETF, headersBoth, headersOff).read},
		"log_key":         {parse: flag(&h.LogKey)},
		"prefetch":        {parse: h.parsePrefetch},
		"shards":          {parse: integer(&h.Shards, shardBounds)},
		"zone":            {parse: h.parseZone, repeats: true},
		"jitter":          {parse: h.parseJitter},
		"sweep_interval":  {parse: duration(&h.SweepInterval, intervalBounds)},
		"disable_metrics": {parse: flag(&h.DisableMetrics)},
		"distributed":     {parse: h.parseDistributed},
		"storage":         {parse: h.parseStorage},
	})
	if err != nil {
		return err
	}
	return located(d, h.checkMixed())
}

// checkRouteArg refuses what cannot be a route, with a hint where it is plain
// what was meant.
func checkRouteArg(d *caddyfile.Dispenser, route string) error {
	if _, _, err := limit.ParseRate(route); err == nil || strings.Contains(route, "/") {
		return d.Errf("%q is not a route: did you mean the option `limit %s` in the block?", route, route)
	}
	if !limit.ValidRoute(route) {
		return d.Errf("%q is not a route: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", route, limit.MaxRouteLength)
	}
	return nil
}

func (h *Handler) parseTenant(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	h.Tenant = d.Val()
	if strings.TrimSpace(h.Tenant) == "" {
		return d.Err("a blank text names no tenant: name a placeholder such as {header.X-Api-Key}")
	}
	if !d.NextArg() {
		return nil
	}
	if d.Val() != "hashed" || d.NextArg() {
		return d.ArgErr()
	}
	h.TenantHashed = true
	return nil
}

func (h *Handler) parsePrefetch(d *caddyfile.Dispenser) error {
	value, err := oneArg(d)
	if err != nil {
		return err
	}
	h.Prefetch = Prefetch(value)
	_, err = h.Prefetch.rule()
	return located(d, err)
}

func (h *Handler) parseCost(d *caddyfile.Dispenser) error {
	if err := anyText(&h.Cost)(d); err != nil {
		return err
	}
	_, err := newCostSource(h.Cost)
	return located(d, err)
}

// parseLimit reads `limit <rate> [burst <n>] [<route>]`.
func (h *Handler) parseLimit(d *caddyfile.Dispenser) error {
	capacity, refill, err := parseQuota(d)
	if err != nil {
		return err
	}
	own := Limit{Capacity: capacity, RefillPerSecond: refill}
	if d.NextArg() {
		own.Route = d.Val()
		if err := checkRouteArg(d, own.Route); err != nil {
			return err
		}
		if !slices.Contains(h.routes(), own.Route) {
			return d.Errf("%q is not a route of this directive", own.Route)
		}
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	for _, other := range h.Limits {
		if other.Route == own.Route {
			return d.Err("the option limit stands here twice for the same route")
		}
	}
	h.Limits = append(h.Limits, own)
	return nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	rate_limit {
//		redis <url>... {
//			mode         cluster|sentinel <master>
//			sentinel_user     <name>
//			sentinel_password <text>
//			key_prefix   <text>
//			timeout      <duration>
//			dial_timeout <duration>
//			breaker      <failures> <open>|off
//			tls {
//				ca          <file>
//				cert        <file>
//				key         <file>
//				server_name <name>
//			}
//		}
//		rules <url> {
//			table     <name>
//			refresh   <duration>
//			channel   <name>
//			listen    on|off
//			max_rules <n>
//			trigger   <module> {
//				<options>
//			}
//		}
//		rule      <tenant>|~guest|* <route>|* <n>/<unit> [burst <n>] [algorithm <word>] [mode enforce|shadow|unlimited|deny] [prefetch 0|<n>|auto] [shards <n>]
//		default   <n>/<unit> [burst <n>]
//		instances <n> | auto <n until known>
//		fallback  local|allow|deny
//		headers   legacy|ietf|both|off
//		reset     delta|epoch
//		max_keys  <n>
//		guest_secret <text>
//		region    <name> <share>|auto {
//			rebalance <duration>|off
//			valid     <duration>
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.Err("the global option rate_limit takes a block and no arguments")
	}
	return parseBlock(d, map[string]option{
		"redis":        {parse: a.parseRedis},
		"rules":        {parse: a.parseRules},
		"rule":         {parse: a.parseRule, repeats: true},
		"default":      {parse: a.parseDefault},
		"instances":    {parse: a.parseInstances},
		"fallback":     {parse: a.parseFallback},
		"headers":      {parse: word(&a.Headers, headersLegacy, headersIETF, headersBoth, headersOff).read},
		"reset":        {parse: word(&a.Reset, resetDelta, resetEpoch).read},
		"max_keys":     {parse: integer(&a.MaxKeys, maxKeysBounds)},
		"guest_secret": {parse: anyText(&a.GuestSecret)},
		"region":       {parse: a.parseRegion},
	})
}

func (a *App) parseDefault(d *caddyfile.Dispenser) error {
	capacity, refill, err := parseQuota(d)
	if err != nil {
		return err
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	a.Default = &Limit{Capacity: capacity, RefillPerSecond: refill}
	return nil
}

func (a *App) parseFallback(d *caddyfile.Dispenser) error {
	if err := anyText(&a.Fallback)(d); err != nil {
		return err
	}
	_, err := a.onFailure()
	return located(d, err)
}

// parseRule reads `rule <tenant> <route> <rate> [burst <n>] [<word> <value>]…`.
func (a *App) parseRule(d *caddyfile.Dispenser) error {
	var rule StaticRule
	if !d.Args(&rule.Tenant, &rule.Route) {
		return d.ArgErr()
	}
	var err error
	if rule.Capacity, rule.RefillPerSecond, err = parseQuota(d); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.NextArg() {
		name := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		switch {
		case seen[name]:
			return d.Errf("%s stands twice in a rule", name)
		case name == "algorithm":
			rule.Algorithm = d.Val()
		case name == "mode":
			rule.Mode = d.Val()
		case name == "prefetch":
			rule.Prefetch = Prefetch(d.Val())
		case name == "shards":
			var err error
			if rule.Shards, err = parseInteger("shards", d.Val(), shardBounds); err != nil {
				return d.WrapErr(err)
			}
		default:
			return d.Errf("unknown word %q in a rule: allowed are burst, algorithm, mode, prefetch and shards", name)
		}
		seen[name] = true
	}
	if _, err := rule.entry("rule"); err != nil {
		return d.WrapErr(err)
	}
	for i := range a.StaticRules {
		if a.StaticRules[i].Tenant == rule.Tenant && a.StaticRules[i].Route == rule.Route {
			return d.Errf("another rule is for the same tenant and route %s", rule.Route)
		}
	}
	a.StaticRules = append(a.StaticRules, rule)
	return nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)
)
