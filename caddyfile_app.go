package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
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

// parseRedis reads the block of `redis`.
func (a *App) parseRedis(d *caddyfile.Dispenser) error {
	r := &Redis{URLs: d.RemainingArgs()}
	a.Redis = r
	if len(r.URLs) == 0 {
		return d.Err("redis needs a URL, such as redis://127.0.0.1:6379/0")
	}
	for _, url := range r.URLs {
		if globalPlaceholder.MatchString(url) {
			continue // checked when its value is known
		}
		if err := (redisbucket.Options{URLs: []string{url}}).Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	var misplaced error // the first option for sentinels
	err := parseBlock(d, map[string]option{
		"mode":              {parse: r.parseMode},
		"sentinel_user":     {parse: forSentinels(&r.SentinelUsername, &misplaced)},
		"sentinel_password": {parse: forSentinels(&r.SentinelPassword, &misplaced)},
		"key_prefix":        {parse: r.parseKeyPrefix},
		"timeout":           {parse: duration(&r.Timeout, timeoutBounds)},
		"dial_timeout":      {parse: duration(&r.DialTimeout, dialTimeoutBounds)},
		"linger":            {parse: duration(&r.Linger, bounds[time.Duration]{math.MinInt64, math.MaxInt64})},
		"breaker":           {parse: r.parseBreaker},
		"tls":               {parse: r.parseTLS},
	})
	if err == nil && r.Mode != string(redisbucket.ModeSentinel) {
		return misplaced
	}
	return err
}

// parseMode reads `mode cluster` or `mode sentinel <master>`.
func (r *Redis) parseMode(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch {
	case len(args) == 1 && args[0] == string(redisbucket.ModeCluster):
	case len(args) == 2 && args[0] == string(redisbucket.ModeSentinel) && args[1] != "":
		r.Master = args[1]
	case len(args) > 0 && args[0] == string(redisbucket.ModeSentinel):
		return d.Err("mode sentinel takes the name that the sentinels have for the master, such as mymaster")
	default:
		return d.Err("mode takes cluster, or sentinel and the name of the master")
	}
	r.Mode = args[0]
	return nil
}

// forSentinels reads a text that only the mode sentinel allows, and keeps the
// error that tells so with its line.
func forSentinels(dst *string, misplaced *error) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if *misplaced == nil {
			*misplaced = d.Errf("%s is only for mode sentinel", d.Val())
		}
		return anyText(dst)(d)
	}
}

func (r *Redis) parseKeyPrefix(d *caddyfile.Dispenser) error {
	if err := anyText(&r.KeyPrefix)(d); err != nil {
		return err
	}
	if globalPlaceholder.MatchString(r.KeyPrefix) {
		return nil // checked when its value is known
	}
	return located(d, checkKeyPrefix("key_prefix", r.KeyPrefix))
}

// parseBreaker reads `breaker <failures> <open>` or `breaker off`.
func (r *Redis) parseBreaker(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 1 && args[0] == "off" {
		r.Breaker = &Breaker{Failures: breakerOff}
		return nil
	}
	if len(args) != 2 {
		return d.Err("breaker takes the failures in a row that open it and how long it stays open, such as 5 1s, or off")
	}
	failures, err := parseInteger("breaker", args[0], failureBounds)
	if err != nil {
		return d.WrapErr(err)
	}
	open, err := parseDuration("breaker", args[1], openBounds)
	r.Breaker = &Breaker{Failures: failures, Open: caddy.Duration(open)}
	return located(d, err)
}

// parseTLS reads the block of `tls`.
func (r *Redis) parseTLS(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	t := new(TLS)
	r.TLS = t
	return parseBlock(d, map[string]option{
		"ca":          {parse: anyText(&t.CAFile)},
		"cert":        {parse: anyText(&t.CertFile)},
		"key":         {parse: anyText(&t.KeyFile)},
		"server_name": {parse: anyText(&t.ServerName)},
	})
}

// parseRegion reads `region <name> <share>` or `region <name> auto` with its block.
func (a *App) parseRegion(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Err("region takes a name and a share from 0.01 to 1, such as eu 0.7, or a name and auto")
	}
	r := &Region{Name: args[0]}
	a.Region = r
	if !globalPlaceholder.MatchString(r.Name) { // else checked when its value is known
		if err := checkRegionName("region", r.Name); err != nil {
			return d.WrapErr(err)
		}
	}
	if args[1] != "auto" {
		share, err := parseShare(args[1])
		if err != nil {
			return d.WrapErr(err)
		}
		r.Share = &share
		if d.NextBlock(d.Nesting()) {
			return d.Err("a region with a share has no block: rebalance and valid are for auto")
		}
		return nil
	}
	r.Auto = true
	return parseBlock(d, map[string]option{
		"rebalance": {parse: r.parseRebalance},
		"valid":     {parse: duration(&r.Valid, validBounds)},
	})
}

func (r *Region) parseRebalance(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() == 1 && d.NextArg() {
		if d.Val() == "off" {
			r.RebalanceOff = true
			return nil
		}
		d.Prev()
	}
	return duration(&r.Rebalance, rebalanceBounds)(d)
}

func parseShare(text string) (float64, error) {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("region: %q is neither auto nor a share from %v to %v", text, minShare, maxShare)
	}
	return share, checkShare("region", share)
}

// Interface guards
var _ caddyfile.Unmarshaler = (*App)(nil)
