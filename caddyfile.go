package ratelimit

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/block"
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
	warnOfPlaces(h, fmt.Sprintf("%s:%d", h.File(), line), handler)
	return h.NewRoute(matcher, handler), nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	rate_limit [<matcher>] [<route>...] {
//		tenant      <text with placeholders> [hashed]
//		guest       deny|allow|ip
//		ipv4_prefix <bits>
//		ipv6_prefix <bits>
//		unknown     default|guest|deny
//		limit       <n>/<unit> [burst <n>] [on <route>]
//		algorithm   token_bucket|sliding_window_log|sliding_window_counter
//		cost        <n>|<placeholder>
//		prefetch    0|<n>|auto
//		shards      <n>
//		concurrent  <n> [on <route>]
//		shadow
//		headers     legacy|ietf|both|off
//		log_key
//		log_all
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
	if err := checkForeign(h.Routes); err != nil {
		return d.WrapErr(err)
	}
	for _, route := range h.Routes {
		if err := checkRouteArg(d, route); err != nil {
			return err
		}
	}
	keys := 0
	err := block.Parse(d, map[string]block.Option{
		"tenant":          {Parse: h.parseTenant},
		"guest":           {Parse: block.Word(&h.Guest, guestDeny, guestAllow, guestIP)},
		"ipv4_prefix":     {Parse: block.Integer(&h.IPv4Prefix, ipv4PrefixBounds)},
		"ipv6_prefix":     {Parse: block.Integer(&h.IPv6Prefix, ipv6PrefixBounds)},
		"unknown":         {Parse: block.Word(&h.Unknown, unknownDefault, unknownGuestWord, unknownDeny)},
		"plan":            {Parse: block.Text(&h.Plan)},
		"cost":            {Parse: h.parseCost, Repeats: true},
		"charge":          {Parse: h.parseCharge, Repeats: true},
		"unread":          {Parse: h.parseUnread},
		"ban":             {Parse: h.parseBan},
		"concurrent":      {Parse: h.parseConcurrent, Repeats: true},
		"shadow":          {Parse: block.Flag(&h.Shadow)},
		"limit":           {Parse: h.parseLimit, Repeats: true},
		"algorithm":       {Parse: block.Word(&h.Algorithm, algorithmWords()...)},
		"headers":         {Parse: block.Word(&h.Headers, headersLegacy, headersIETF, headersBoth, headersOff)},
		"log_key":         {Parse: h.parseLogKey(&keys), Repeats: true},
		"log_all":         {Parse: block.Flag(&h.LogAll)},
		"prefetch":        {Parse: h.parsePrefetch},
		"shards":          {Parse: block.Integer(&h.Shards, shardBounds)},
		"zone":            {Parse: h.parseZone, Repeats: true},
		"jitter":          {Parse: h.parseJitter},
		"sweep_interval":  {Parse: block.Duration(&h.SweepInterval, intervalBounds)},
		"disable_metrics": {Parse: block.Flag(&h.DisableMetrics)},
		"distributed":     {Parse: h.parseDistributed},
		"storage":         {Parse: h.parseStorage},
	})
	if err != nil {
		return err
	}
	if keys > 1 && len(h.RateLimits) == 0 {
		return d.Err("the option log_key is given twice")
	}
	if err := h.afterBlock(d); err != nil {
		return err
	}
	return block.Located(d, h.checkMixed())
}

func algorithmWords() []string {
	return []string{limit.TokenBucket.String(), limit.SlidingWindowLog.String(), limit.SlidingWindowCounter.String()}
}

// parseLogKey also counts, because caddy-ratelimit accepts the option twice.
func (h *Handler) parseLogKey(count *int) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		*count++
		return block.Flag(&h.LogKey)(d)
	}
}

// foreignRate is a rate as the module ratelimit of RussellLuo/caddy-ext has it.
var foreignRate = regexp.MustCompile(`^([0-9]+)r/([smh])$`)

// checkForeign refuses that module's syntax, and says what to write instead.
func checkForeign(args []string) error {
	for i, arg := range args {
		rate := foreignRate.FindStringSubmatch(arg)
		if rate == nil || i == 0 {
			continue
		}
		key := args[i-1]
		if key == "{remote.host}" || key == "{remote.ip}" {
			key = "{remote_host}"
		}
		return fmt.Errorf("%s %s is the syntax of another module (RussellLuo/caddy-ext): write `rate_limit { tenant %s; limit %s/%s }`, each option on a line of its own",
			block.Clipped(args[i-1]), arg, block.Clipped(key), rate[1], rate[2])
	}
	return nil
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
	if err := errors.Join(checkPlaceholders(h.Tenant), checkApart(h.Tenant)); err != nil {
		return d.Errf("tenant: %w", err)
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
	value, err := block.OneArg(d)
	if err != nil {
		return err
	}
	h.Prefetch = Prefetch(value)
	_, err = h.Prefetch.rule()
	return block.Located(d, err)
}

// parseLimit reads `limit <rate> [burst <n>] [[on] <route>]`.
func (h *Handler) parseLimit(d *caddyfile.Dispenser) error {
	capacity, refill, err := block.Rate(d)
	if err != nil {
		return err
	}
	own := Limit{Capacity: capacity, RefillPerSecond: refill}
	if own.Route, err = h.parseOn(d); err != nil {
		return err
	}
	for _, other := range h.Limits {
		if other.Route == own.Route {
			return d.Err("the option limit is given twice for the same route")
		}
	}
	h.Limits = append(h.Limits, own)
	return nil
}

// parseOn reads the end of an option that is for one route of the directive: `on
// <route>`, or nothing where it is for all. Without `on`, the route alone is
// accepted, too.
func (h *Handler) parseOn(d *caddyfile.Dispenser) (route string, err error) {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return "", nil
	}
	if args[0] == "on" && (len(args) > 1 || !slices.Contains(h.routes(), "on")) {
		args = args[1:]
	}
	switch {
	case len(args) == 0:
		return "", d.Errf("on needs a route of this directive: allowed are %s", strings.Join(h.routes(), ", "))
	case !slices.Contains(h.routes(), args[0]):
		return "", d.Errf("%q is not a route of this directive: allowed are %s%s", block.Clipped(args[0]), strings.Join(h.routes(), ", "),
			limit.DidYouMean(args[0], append([]string{"burst"}, h.routes()...)...))
	case len(args) > 1:
		return "", d.Errf("%q stands after the route: an option is for one route, or for all", block.Clipped(args[1]))
	}
	return args[0], nil
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
