package ratelimit

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// parseZone reads one zone of caddy-ratelimit's syntax:
//
//	zone <name> {
//		match {
//			<matchers>
//		}
//		key         <text with placeholders>
//		window      <duration>
//		events      <n>
//		ipv4_prefix <bits>
//		ipv6_prefix <bits>
//		algorithm   token_bucket|sliding_window_log|sliding_window_counter
//		burst       <n>
//	}
//
// Several match blocks are alternatives.
func (h *Handler) parseZone(d *caddyfile.Dispenser) error {
	name, err := oneArg(d)
	if err != nil {
		return err
	}
	if name == "" {
		return d.Err("a zone needs a name")
	}
	if h.RateLimits[name] != nil {
		return d.Errf("the zone %s stands here twice", name)
	}
	z := new(Zone)
	orUnset := func(b bounds[int]) bounds[int] { return bounds[int]{0, b.max} }
	err = parseBlock(d, map[string]option{
		"match":       {parse: z.parseMatch, repeats: true},
		"key":         {parse: z.parseKey},
		"window":      {parse: duration(&z.Window, windowBounds)},
		"events":      {parse: integer(&z.MaxEvents, eventsBounds)},
		"ipv4_prefix": {parse: integer(&z.IPv4Prefix, orUnset(ipv4PrefixBounds))},
		"ipv6_prefix": {parse: integer(&z.IPv6Prefix, orUnset(ipv6PrefixBounds))},
		"algorithm":   {parse: word(&z.Algorithm, algorithmWords()...).read},
		"burst":       {parse: integer(&z.Burst, eventsBounds)},
	})
	if err != nil {
		return err
	}
	if z.Window == 0 || z.MaxEvents == 0 {
		return d.Errf("the zone %s needs both a window and events", name)
	}
	if h.RateLimits == nil {
		h.RateLimits = map[string]*Zone{}
	}
	h.RateLimits[name] = z
	return nil
}

func algorithmWords() []string {
	return []string{limit.TokenBucket.String(), limit.SlidingWindowLog.String(), limit.SlidingWindowCounter.String()}
}

func (z *Zone) parseMatch(d *caddyfile.Dispenser) error {
	set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(d)
	if err != nil {
		return d.WrapErr(err)
	}
	z.MatcherSetsRaw = append(z.MatcherSetsRaw, set)
	return nil
}

// parseKey reads any text: an empty one is a key like another.
func (z *Zone) parseKey(d *caddyfile.Dispenser) (err error) {
	z.Key, err = oneArg(d)
	return err
}

func (h *Handler) parseJitter(d *caddyfile.Dispenser) error {
	value, err := oneArg(d)
	if err != nil {
		return err
	}
	if h.Jitter, err = strconv.ParseFloat(value, 64); err != nil {
		return d.Errf("jitter: %q is not a number such as 0.2", value)
	}
	return located(d, checkJitter(h.Jitter))
}

// parseDistributed reads what has no effect here, but must be well written.
func (h *Handler) parseDistributed(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	h.Distributed = new(Distributed)
	return parseBlock(d, map[string]option{
		"read_interval":  {parse: duration(&h.Distributed.ReadInterval, intervalBounds)},
		"write_interval": {parse: duration(&h.Distributed.WriteInterval, intervalBounds)},
		"purge_age":      {parse: duration(&h.Distributed.PurgeAge, intervalBounds)},
	})
}

// parseStorage keeps the name of the storage and passes over the rest: the
// module does not have to be there, because nothing is stored in it.
func (h *Handler) parseStorage(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	raw, err := json.Marshal(map[string]string{"module": d.Val()})
	if err != nil {
		return d.WrapErr(err)
	}
	h.StorageRaw = raw
	d.NextSegment()
	return nil
}

// intervalBounds are those of settings that have no effect.
var intervalBounds = bounds[time.Duration]{0, limit.MaxWindow}
