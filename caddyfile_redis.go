package ratelimit

import (
	"math"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddygate/ratelimit/redisbucket"
)

// parseRedis reads the block of `redis`.
func (a *App) parseRedis(d *caddyfile.Dispenser) error {
	r := &Redis{URLs: d.RemainingArgs()}
	a.Redis = r
	if len(r.URLs) == 0 {
		return d.Err("redis needs a URL, such as redis://127.0.0.1:6379/0")
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
