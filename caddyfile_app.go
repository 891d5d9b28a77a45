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

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// parseGlobalOption makes the app.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next()
		return nil, d.Err("the global option rate_limit is given twice")
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
//		rule      <tenant>|~guest|* <route>|* <n>/<unit> [burst <n>] [algorithm <word>] [mode enforce|shadow|unlimited|deny] [prefetch 0|<n>|auto] [shards <n>] [concurrent <n>]
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
	return block.Parse(d, map[string]block.Option{
		"redis":        {Parse: a.parseRedis},
		"rules":        {Parse: a.parseRules},
		"rule":         {Parse: a.parseRule, Repeats: true},
		"plan":         {Parse: a.parsePlan, Repeats: true},
		"default":      {Parse: a.parseDefault},
		"instances":    {Parse: a.parseInstances},
		"fallback":     {Parse: a.parseFallback},
		"headers":      {Parse: block.Word(&a.Headers, headersLegacy, headersIETF, headersBoth, headersOff)},
		"reset":        {Parse: block.Word(&a.Reset, resetDelta, resetEpoch)},
		"max_keys":     {Parse: block.Integer(&a.MaxKeys, maxKeysBounds)},
		"guest_secret": {Parse: a.parseGuestSecret},
		"region":       {Parse: a.parseRegion},
	})
}

func (a *App) parseDefault(d *caddyfile.Dispenser) error {
	capacity, refill, err := block.Rate(d)
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
	if err := block.Text(&a.Fallback)(d); err != nil {
		return err
	}
	_, err := a.onFailure()
	return block.Located(d, err)
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
	if rule.Capacity, rule.RefillPerSecond, err = block.Rate(d); err != nil {
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
			return d.Errf("%s is given twice in a rule", name)
		case name == "algorithm":
			rule.Algorithm = d.Val()
		case name == "mode":
			rule.Mode = d.Val()
		case name == "prefetch":
			rule.Prefetch = Prefetch(d.Val())
		case name == "shards":
			var err error
			if rule.Shards, err = block.ParseInteger("shards", d.Val(), shardBounds); err != nil {
				return d.WrapErr(err)
			}
		case name == "concurrent":
			var err error
			if rule.Concurrent, err = parsePlaces(d.Val()); err != nil {
				return d.WrapErr(err)
			}
		default:
			return d.WrapErr(limit.UnknownWord("word", name, "burst", "algorithm", "mode", "prefetch", "shards", "concurrent"))
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
	if err := block.Text(&a.GuestSecret)(d); err != nil {
		return err
	}
	if block.HasPlaceholder(a.GuestSecret) {
		return nil // checked when its value is known
	}
	return block.Located(d, checkGuestSecret("guest_secret", a.GuestSecret))
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
	if !block.HasPlaceholder(r.DSN) { // else checked when its value is known
		if err := (rulecache.Options{DSN: r.DSN}).Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return block.Parse(d, map[string]block.Option{
		"table":     {Parse: block.Text(&r.Table)},
		"tenants":   {Parse: block.Text(&r.Tenants)},
		"refresh":   {Parse: block.Duration(&r.Refresh, refreshBounds)},
		"channel":   {Parse: block.Text(&r.Channel)},
		"listen":    {Parse: r.parseListen},
		"max_rules": {Parse: block.Integer(&r.MaxRules, maxRulesBounds)},
		"trigger":   {Parse: r.parseTrigger},
	})
}

func (r *Rules) parseListen(d *caddyfile.Dispenser) error {
	var value string
	if err := block.Word(&value, "on", "off")(d); err != nil {
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
		if block.HasPlaceholder(url) {
			continue // checked when its value is known
		}
		if err := (redisbucket.Options{URLs: []string{url}}).Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	var misplaced error // the first option for sentinels
	err := block.Parse(d, map[string]block.Option{
		"mode":              {Parse: r.parseMode},
		"sentinel_user":     {Parse: forSentinels(&r.SentinelUsername, &misplaced)},
		"sentinel_password": {Parse: forSentinels(&r.SentinelPassword, &misplaced)},
		"key_prefix":        {Parse: r.parseKeyPrefix},
		"timeout":           {Parse: block.Duration(&r.Timeout, timeoutBounds)},
		"dial_timeout":      {Parse: block.Duration(&r.DialTimeout, dialTimeoutBounds)},
		"linger":            {Parse: block.Duration(&r.Linger, block.Bounds[time.Duration]{Min: math.MinInt64, Max: math.MaxInt64})},
		"breaker":           {Parse: r.parseBreaker},
		"tls":               {Parse: r.parseTLS},
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
		return block.Text(dst)(d)
	}
}

func (r *Redis) parseKeyPrefix(d *caddyfile.Dispenser) error {
	if err := block.Text(&r.KeyPrefix)(d); err != nil {
		return err
	}
	if block.HasPlaceholder(r.KeyPrefix) {
		return nil // checked when its value is known
	}
	return block.Located(d, checkKeyPrefix("key_prefix", r.KeyPrefix))
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
	failures, err := block.ParseInteger("breaker", args[0], failureBounds)
	if err != nil {
		return d.WrapErr(err)
	}
	open, err := block.ParseDuration("breaker", args[1], openBounds)
	r.Breaker = &Breaker{Failures: failures, Open: caddy.Duration(open)}
	return block.Located(d, err)
}

// parseTLS reads the block of `tls`.
func (r *Redis) parseTLS(d *caddyfile.Dispenser) error {
	r.TLS = new(TLS)
	return block.TLS{CA: &r.TLS.CAFile, Cert: &r.TLS.CertFile, Key: &r.TLS.KeyFile, ServerName: &r.TLS.ServerName}.Parse(d)
}

// parseRegion reads `region <name> <share>` or `region <name> auto` with its block.
func (a *App) parseRegion(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Err("region takes a name and a share from 0.01 to 1, such as eu 0.7, or a name and auto")
	}
	r := &Region{Name: args[0]}
	a.Region = r
	if !block.HasPlaceholder(r.Name) { // else checked when its value is known
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
	return block.Parse(d, map[string]block.Option{
		"rebalance": {Parse: r.parseRebalance},
		"valid":     {Parse: block.Duration(&r.Valid, validBounds)},
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
	return block.Duration(&r.Rebalance, rebalanceBounds)(d)
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
