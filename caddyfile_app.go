package ratelimit

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

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
		"guest_secret": {parse: a.parseGuestSecret},
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

// checkRuleArgs finds what is missing of a rule's tenant, route and rate.
func checkRuleArgs(args []string) error {
	for i, arg := range args[:min(len(args), 2)] {
		if _, _, err := limit.ParseRate(arg); err != nil {
			continue
		}
		place, missing := "tenant", "* *"
		if i == 1 {
			place, missing = "route", args[0]+" *"
		}
		return fmt.Errorf("rule needs a tenant, a route and a rate, and the rate %s stands in the place of the %s: for all, write `rule %s %s`",
			arg, place, missing, arg)
	}
	if len(args) < 3 {
		return errors.New("rule needs a tenant, a route and a rate, such as `rule shop-a create-order 100/s`")
	}
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
	args := d.RemainingArgs()
	if err := checkRuleArgs(args); err != nil {
		return d.WrapErr(err)
	}
	for range args[2:] {
		d.Prev()
	}
	rule.Tenant, rule.Route = args[0], args[1]
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
			return d.WrapErr(limit.UnknownWord("word", name, "burst", "algorithm", "mode", "prefetch", "shards"))
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

func (a *App) parseGuestSecret(d *caddyfile.Dispenser) error {
	if err := anyText(&a.GuestSecret)(d); err != nil {
		return err
	}
	if globalPlaceholder.MatchString(a.GuestSecret) {
		return nil // checked when its value is known
	}
	return located(d, checkGuestSecret("guest_secret", a.GuestSecret))
}

// parseRules reads the block of `rules`.
func (a *App) parseRules(d *caddyfile.Dispenser) error {
	r := new(Rules)
	a.Rules = r
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Err("rules needs one URL, such as postgres://user@127.0.0.1/gateway")
	}
	r.DSN = args[0]
	if !globalPlaceholder.MatchString(r.DSN) { // else checked when its value is known
		if err := (rulecache.Options{DSN: r.DSN}).Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return parseBlock(d, map[string]option{
		"table":     {parse: anyText(&r.Table)},
		"refresh":   {parse: duration(&r.Refresh, refreshBounds)},
		"channel":   {parse: anyText(&r.Channel)},
		"listen":    {parse: r.parseListen},
		"max_rules": {parse: integer(&r.MaxRules, maxRulesBounds)},
		"trigger":   {parse: r.parseTrigger},
	})
}

func (r *Rules) parseListen(d *caddyfile.Dispenser) error {
	var value string
	if err := word(&value, "on", "off").read(d); err != nil {
		return err
	}
	listen := value == "on"
	r.Listen = &listen
	return nil
}

// Interface guards
var _ caddyfile.Unmarshaler = (*App)(nil)
