package ratelimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
)

// Compat is what a handler reads of mholt/caddy-ratelimit's own configuration. A
// zone is a limit whose route is the zone's name and whose tenant is the key.
type Compat struct {
	// The zones by their names. A request is held to every zone that it matches,
	// all or nothing: one that is refused takes nothing from any. Not together
	// with routes, tenant, guest, unknown or limits. Default: none.
	RateLimits map[string]*Zone `json:"rate_limits,omitempty"`

	// How much longer than needed a refused client may be told to wait, as a part
	// of the wait, from 0 to 100: 0.2 adds up to 20 %, at random, so that clients
	// do not all come back at once. Default: 0; Retry-After is exact.
	Jitter float64 `json:"jitter,omitempty"`

	// Whether the handler counts nothing for the metrics. Default: false.
	DisableMetrics bool `json:"disable_metrics,omitempty"`

	// Has no effect: memory is bounded by the app's `max_keys`, and nothing has to
	// be swept. Default: none.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// Has no effect: where the app names a Redis, all gateways share it, and where
	// it names none, each gateway counts alone. Default: none.
	Distributed *Distributed `json:"distributed,omitempty"`

	// Has no effect, like `distributed`. Default: none.
	StorageRaw json.RawMessage `json:"storage,omitempty"`
}

// Zone is one limit in caddy-ratelimit's words.
type Zone struct {
	// Which requests the zone limits. Default: all.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// Who is limited: a text with placeholders whose value names the bucket. All
	// requests for which it is blank share one bucket. Default: blank.
	Key string `json:"key,omitempty"`

	// How long an event counts, from 1 ms to 10 years. Required.
	Window caddy.Duration `json:"window,omitempty"`

	// How many events the window may hold, from 1 to 2147483647; under
	// `sliding_window_log`, to 100000. Required.
	MaxEvents int `json:"max_events,omitempty"`

	// How many bits of a key that is an IPv4 address count, from 1 to 32. Default:
	// 0; the key is taken as it is.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`

	// How many bits of a key that is an IPv6 address count, from 1 to 128.
	// Default: 0; the key is taken as it is.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// How the bucket counts where a rule does not say: `token_bucket`,
	// `sliding_window_log` or `sliding_window_counter`. Default: the handler's, and
	// `sliding_window_log` where it names none.
	Algorithm string `json:"algorithm,omitempty"`

	// How many events may come at once at the same rate, from 1 to 2147483647: the
	// capacity. Default: max_events.
	Burst int `json:"burst,omitempty"`
}

// Distributed is how caddy-ratelimit's gateways tell each other what they
// counted. Here Redis does it, and nothing of this has an effect.
type Distributed struct {
	// Has no effect. Default: none.
	ReadInterval caddy.Duration `json:"read_interval,omitempty"`
	// Has no effect. Default: none.
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`
	// Has no effect. Default: none.
	PurgeAge caddy.Duration `json:"purge_age,omitempty"`
}

// The bounds of a zone, and of settings that have no effect.
var (
	eventsBounds   = block.Bounds[int]{Min: 1, Max: limit.MaxCapacity}
	windowBounds   = block.Bounds[time.Duration]{Min: time.Millisecond, Max: limit.MaxWindow}
	intervalBounds = block.Bounds[time.Duration]{Min: 0, Max: limit.MaxWindow}
)

const maxJitter = 100

// zonesByName checks the zones that have names and returns them in the order in
// which caddy-ratelimit asks them: the highest rate first, then by name.
func (h *Handler) zonesByName(ctx caddy.Context) ([]*zone, error) {
	zones := make([]*zone, 0, len(h.RateLimits))
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		z, err := h.newZone(ctx, name)
		if err != nil {
			return nil, err
		}
		zones = append(zones, z)
	}
	slices.SortStableFunc(zones, func(a, b *zone) int { return cmp.Compare(b.fallback.Refill, a.fallback.Refill) })
	return zones, nil
}

// newZone checks a zone that has a name and loads its matchers.
func (h *Handler) newZone(ctx caddy.Context, name string) (*zone, error) {
	field := fmt.Sprintf("rate_limits.%s", name)
	config := h.RateLimits[name]
	switch {
	case name == "":
		return nil, errors.New("rate_limits: a zone needs a name")
	case config == nil:
		return nil, fmt.Errorf("%s: the zone is empty: it needs a window and max_events", field)
	}
	defaults, err := h.zoneDefaults(config.Algorithm)
	if err != nil {
		return nil, fmt.Errorf("%s.%w", field, err)
	}
	rule, err := config.rule(field, defaults)
	if err != nil {
		return nil, err
	}
	key := h.zoneKey(name, config.Key)
	z := &zone{
		name: name, route: limit.EscapeName(name), key: &key, ipv4Prefix: config.IPv4Prefix, ipv6Prefix: config.IPv6Prefix,
		defaults: defaults, fallback: rule,
	}
	if len(config.MatcherSetsRaw) == 0 {
		return z, nil
	}
	loaded, err := ctx.LoadModule(config, "MatcherSetsRaw")
	if err != nil {
		return nil, fmt.Errorf("%s.match: loading matchers: %w", field, err)
	}
	if err := z.match.FromInterface(loaded); err != nil {
		return nil, fmt.Errorf("%s.match: loading matchers: %w", field, err)
	}
	return z, nil
}

// zoneKey reads a zone's key, and warns of what it cannot mean: caddy-ratelimit
// accepts any text.
func (h *Handler) zoneKey(zone, template string) keySource {
	if err := checkPlaceholders(template); err != nil {
		h.logger.Warn("the zone's key may never have a value", zap.String("zone", zone), zap.Error(err))
	}
	if err := checkApart(template); err != nil {
		h.logger.Warn("the zone's key is not clear", zap.String("zone", zone), zap.Error(err))
	}
	key := newKeySource(template, h.logger)
	key.joinLists()
	return key
}

// zoneDefaults returns what a rule of a zone does not name: a zone is a log,
// unless it or the handler says otherwise.
func (h *Handler) zoneDefaults(algorithm string) (limit.Rule, error) {
	defaults, err := h.ruleDefaults()
	if err != nil {
		return defaults, err
	}
	if h.Algorithm == "" {
		defaults.Algorithm = limit.SlidingWindowLog
	}
	if algorithm != "" {
		if defaults.Algorithm, err = limit.ParseAlgorithm(algorithm); err != nil {
			return defaults, fmt.Errorf("algorithm: %w", err)
		}
	}
	return defaults, nil
}

// rule checks the zone's numbers and returns them as a rule.
func (z *Zone) rule(field string, defaults limit.Rule) (limit.Rule, error) {
	err := errors.Join(
		eventsBounds.Check(field+".max_events", z.MaxEvents),
		windowBounds.Check(field+".window", time.Duration(z.Window)),
		eventsBounds.CheckSet(field+".burst", z.Burst),
		ipv4PrefixBounds.CheckSet(field+".ipv4_prefix", z.IPv4Prefix),
		ipv6PrefixBounds.CheckSet(field+".ipv6_prefix", z.IPv6Prefix),
	)
	if err != nil {
		return limit.Rule{}, err
	}
	wanted := defaults
	wanted.Capacity = int64(cmp.Or(z.Burst, z.MaxEvents))
	wanted.Refill = float64(z.MaxEvents) / time.Duration(z.Window).Seconds()
	if wanted.Algorithm == limit.SlidingWindowLog && wanted.Capacity > limit.MaxLogCapacity {
		return limit.Rule{}, fmt.Errorf("%s: %d events are too many for a log, which stores each: allowed are 1 to %d, and more with the algorithm %s",
			field, wanted.Capacity, limit.MaxLogCapacity, limit.SlidingWindowCounter)
	}
	rule, err := limit.NewRule(wanted)
	if err != nil {
		return limit.Rule{}, fmt.Errorf("%s: %w", field, err)
	}
	return rule, nil
}

// checkZoneOptions checks what stands beside the zones, and tells what has no
// effect.
func (h *Handler) checkZoneOptions() error {
	if err := errors.Join(h.checkMixed(), checkJitter(h.Jitter)); err != nil {
		return err
	}
	if h.SweepInterval < 0 {
		return fmt.Errorf("sweep_interval: %v is out of bounds: it must not be negative", time.Duration(h.SweepInterval))
	}
	if h.SweepInterval > 0 {
		h.logger.Info("sweep_interval has no effect: memory is bounded by the global option max_keys")
	}
	h.warnOfSharing()
	return nil
}

// warnOfSharing tells what becomes of the options that share what was counted.
func (h *Handler) warnOfSharing() {
	var options []string
	if h.Distributed != nil {
		options = append(options, "distributed")
	}
	if h.hasStorage() {
		options = append(options, "storage")
	}
	switch {
	case len(options) == 0:
	case h.app.Redis == nil:
		h.logger.Warn("the options are ignored, and each gateway counts alone: gateways share their limits through redis in the global option rate_limit",
			zap.Strings("options", options))
	default:
		h.logger.Warn("the options are ignored: all gateways share their limits through redis", zap.Strings("options", options))
	}
}

func (h *Handler) hasStorage() bool { return len(h.StorageRaw) > 0 && string(h.StorageRaw) != "null" }

// limitsNothing reports whether the handler has nothing but words of
// caddy-ratelimit, no zone, and no rule of another kind: that plugin lets all
// requests pass then.
func (h *Handler) limitsNothing() bool {
	theirs := h.RateLimits != nil || h.Jitter != 0 || h.SweepInterval != 0 || h.Distributed != nil || h.hasStorage() || h.DisableMetrics || h.LogKey
	ours := h.nativeField() != "" || h.Algorithm != "" || h.Cost != "" || h.Prefetch != "" || h.Shards != 0 || h.Shadow || h.Headers != "" || h.LogAll
	return len(h.RateLimits) == 0 && theirs && !ours && h.app.fallback == nil && !h.app.coversRoute(defaultRoute)
}

// checkMixed refuses a handler that is written in both syntaxes.
func (h *Handler) checkMixed() error {
	if field := h.nativeField(); len(h.RateLimits) > 0 && field != "" {
		return fmt.Errorf("%s: not together with zones in one rate_limit: a zone has its own name, key, window, events and prefixes", field)
	}
	return nil
}

// nativeField names a field that is set and has no meaning for zones, if any is.
func (h *Handler) nativeField() string {
	set := map[string]bool{
		"routes": len(h.Routes) > 0, "tenant": h.Tenant != "" || h.TenantHashed, "guest": h.Guest != "", "unknown": h.Unknown != "",
		"plan": h.Plan != "", "costs": len(h.Costs) > 0, "charge": len(h.Charge) > 0, "ban": h.Ban != nil, "limits": len(h.Limits) > 0,
		"ipv4_prefix": h.IPv4Prefix != 0, "ipv6_prefix": h.IPv6Prefix != 0,
	}
	for _, field := range slices.Sorted(maps.Keys(set)) {
		if set[field] {
			return field
		}
	}
	return ""
}

func checkJitter(jitter float64) error {
	if math.IsNaN(jitter) || jitter < 0 || jitter > maxJitter {
		return fmt.Errorf("jitter: %v is out of bounds: allowed are 0 to %d, and 0.2 means up to 20 %% more", jitter, maxJitter)
	}
	return nil
}

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
	name, err := block.OneArg(d)
	if err != nil {
		return err
	}
	if name == "" {
		return d.Err("a zone needs a name")
	}
	if h.RateLimits[name] != nil {
		return d.Errf("the zone %s is given twice", name)
	}
	z := new(Zone)
	orUnset := func(b block.Bounds[int]) block.Bounds[int] { return block.Bounds[int]{Min: 0, Max: b.Max} }
	err = block.Parse(d, map[string]block.Option{
		"match":       {Parse: z.parseMatch, Repeats: true},
		"key":         {Parse: z.parseKey},
		"window":      {Parse: block.Duration(&z.Window, windowBounds)},
		"events":      {Parse: block.Integer(&z.MaxEvents, eventsBounds)},
		"ipv4_prefix": {Parse: block.Integer(&z.IPv4Prefix, orUnset(ipv4PrefixBounds))},
		"ipv6_prefix": {Parse: block.Integer(&z.IPv6Prefix, orUnset(ipv6PrefixBounds))},
		"algorithm":   {Parse: block.Word(&z.Algorithm, algorithmWords()...)},
		"burst":       {Parse: block.Integer(&z.Burst, eventsBounds)},
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
	z.Key, err = block.OneArg(d)
	return err
}

func (h *Handler) parseJitter(d *caddyfile.Dispenser) error {
	value, err := block.OneArg(d)
	if err != nil {
		return err
	}
	if h.Jitter, err = strconv.ParseFloat(value, 64); err != nil {
		return d.Errf("jitter: %q is not a number such as 0.2", value)
	}
	return block.Located(d, checkJitter(h.Jitter))
}

// parseDistributed reads what has no effect here, but must be well written.
func (h *Handler) parseDistributed(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	h.Distributed = new(Distributed)
	return block.Parse(d, map[string]block.Option{
		"read_interval":  {Parse: block.Duration(&h.Distributed.ReadInterval, intervalBounds)},
		"write_interval": {Parse: block.Duration(&h.Distributed.WriteInterval, intervalBounds)},
		"purge_age":      {Parse: block.Duration(&h.Distributed.PurgeAge, intervalBounds)},
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
