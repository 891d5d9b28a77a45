package ratelimit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/regions"
)

// Region is the region that this gateway is in. Each region has a Redis of its
// own and gives a share of every limit: the capacity, rounded down but at least
// 1, and the refill of a token bucket; the window of a sliding window stays.
// Clients and headers see the share.
type Region struct {
	// The region's name, 1 to 64 characters of `A-Za-z0-9._-`. All its gateways,
	// and no others, have it. Required.
	Name string `json:"name,omitempty"`

	// The part of every limit that this region gives, from 0.01 to 1. Those of all
	// regions are to sum to 1, which nothing checks. Default: 1.
	Share *float64 `json:"share,omitempty"`

	// Whether the regions share each limit by the demand that they measure,
	// through tables beside the rules (`caddy rate-limit schema --regions`). The
	// shares in force never sum to more than 1. Not with a share. Default: false.
	Auto bool `json:"auto,omitempty"`

	// How often shares follow the demand, from 10 s to 24 h. One of the gateways
	// sees to it. Only with `auto`. Default: 2m.
	Rebalance caddy.Duration `json:"rebalance,omitempty"`

	// Whether this gateway never moves shares, because `caddy rate-limit regions
	// rebalance` does. Only with `auto`. Default: false.
	RebalanceOff bool `json:"rebalance_off,omitempty"`

	// How long the shares that were read last count while PostgreSQL cannot be
	// reached, from 10 s to 24 h; then this gateway gives its region's safe share, a
	// twentieth. A region that vanished keeps its share as long. Only with `auto`.
	// Default: 5m.
	Valid caddy.Duration `json:"valid,omitempty"`
}

// The bounds of a region's settings.
var (
	rebalanceBounds = block.Bounds[time.Duration]{Min: regions.MinRebalance, Max: regions.MaxRebalance}
	validBounds     = block.Bounds[time.Duration]{Min: regions.MinValid, Max: regions.MaxValid}
)

const (
	minShare = 0.01
	maxShare = 1

	// drainSlack is how long tokens that were taken from Redis may still be given,
	// and some more.
	drainSlack = 200 * time.Millisecond
)

func checkRegionName(field, name string) error {
	if name == "" {
		return fmt.Errorf("%s: a name is needed, such as eu", field)
	}
	if !limit.ValidRoute(name) {
		return fmt.Errorf("%s: %q is not a region's name: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", field, name, limit.MaxRouteLength)
	}
	return nil
}

// checkShare also refuses what is no number.
func checkShare(field string, share float64) error {
	if !(share >= minShare && share <= maxShare) {
		return fmt.Errorf("%s: %v is out of bounds: allowed are %v to %v", field, share, minShare, maxShare)
	}
	return nil
}

func (r *Region) check(withRules bool) error {
	errs := []error{
		checkRegionName("region.name", r.Name),
		rebalanceBounds.CheckSet("region.rebalance", time.Duration(r.Rebalance)),
		validBounds.CheckSet("region.valid", time.Duration(r.Valid)),
	}
	if r.Share != nil {
		errs = append(errs, checkShare("region.share", *r.Share))
	}
	switch {
	case r.Auto && r.Share != nil:
		errs = append(errs, errors.New("region.share: with auto the share is measured, and none may be given"))
	case r.Auto && !withRules:
		errs = append(errs, errors.New("region.auto: the shares are in tables beside the rules, so the option rules is needed"))
	case !r.Auto && (r.Rebalance != 0 || r.RebalanceOff || r.Valid != 0):
		errs = append(errs, errors.New("region: rebalance and valid are for auto, and have no meaning for a share that is given"))
	case r.Rebalance != 0 && r.RebalanceOff:
		errs = append(errs, errors.New("region.rebalance: it is off, and has no time"))
	}
	return errors.Join(errs...)
}

// provisionRegion takes the source of the shares.
func (a *App) provisionRegion(ctx caddy.Context) error {
	if a.Region == nil || !a.Region.Auto {
		if a.Region != nil && a.Region.Share != nil {
			a.share = *a.Region.Share
		}
		return nil
	}
	options := a.Region.options(a.Rules)
	source, release, err := takeShares(options)
	if err != nil {
		return fmt.Errorf("region: %w", err)
	}
	a.releases = append(a.releases, release)
	a.regions = source
	a.regionSettings = regions.Settings{
		Refresh:   time.Duration(a.Rules.Refresh),
		Rebalance: time.Duration(a.Region.Rebalance),
		Drain:     drainSlack,
		Store:     ruleStorage{storage: ctx.Storage(), key: "rate_limit/regions/" + a.Rules.options().StoreKey() + "-" + a.Region.Name + ".json"},
		Observe:   a.observeRegion,
	}
	if a.Region.RebalanceOff {
		a.regionSettings.Rebalance = -1
	}
	if a.Redis != nil {
		a.regionSettings.Drain += a.Redis.timeout()
	}
	return nil
}

// options returns what the tables of shares are found by: they stand in the
// schema of the rules.
func (r *Region) options(rules *Rules) regions.Options {
	return regions.Options{DSN: rules.DSN, Expand: block.Expand, Schema: regions.SchemaOf(rules.Table), Region: r.Name, Valid: time.Duration(r.Valid)}
}

// shareOf returns the part of the bucket's rule that this region gives, 0 without
// regions.
func (s *ruleSet) shareOf(key limit.Key) float64 {
	if s.shares != nil {
		return s.shares.Of(key)
	}
	return s.share
}

// charge returns one for the bucket of this key under the rule, which gives this
// region's share of it.
func (s *ruleSet) charge(z *zone, key limit.Key, tenant string, rule limit.Rule) charge {
	return charge{zone: z, tenant: tenant, whole: rule.Capacity, bucket: limit.Bucket{Key: key, Rule: s.inForce(key, rule)}}
}

// inForce returns what this region gives of the rule of the bucket.
func (s *ruleSet) inForce(key limit.Key, rule limit.Rule) limit.Rule {
	if share := s.shareOf(key); share != 0 {
		return rule.Scale(share)
	}
	return rule
}

// countDemand notes what a request asks of its buckets. A cost over the whole
// limit is no demand: no share would grant it, and a client that makes it up must
// not draw all shares to its region.
func (a *App) countDemand(charges []charge, cost int64) {
	if a.regions == nil {
		return
	}
	for i := range charges {
		price := cost
		if due := charges[i].due; due != nil {
			price = due.price
		}
		if price <= charges[i].whole && !charges[i].isPlace() {
			a.regions.Count(charges[i].bucket.Key, price)
		}
	}
}

// observeRegion logs and tells what happens to the shares. Each change of state
// comes once.
func (a *App) observeRegion(event regions.Event) {
	a.tellRegion(event)
	fields := []zap.Field{
		zap.String("region", a.Region.Name),
		zap.Float64("share", event.Share),
		zap.Int("limits", event.Limits),
	}
	if event.Err != nil {
		fields = append(fields, zap.Error(event.Err))
	}
	if made := event.Changes; made != nil {
		fields = append(fields, zap.Int("moved", len(made.Limits)), zap.Int("waiting", made.Waiting))
	}
	level := zapcore.InfoLevel
	switch event.Kind {
	case regions.EventFailed, regions.EventUnknown, regions.EventJobFailed, regions.EventStoreFailed:
		level = zapcore.ErrorLevel
	case regions.EventLapsed, regions.EventStored:
		level = zapcore.WarnLevel
	default:
	}
	if event.Err != nil && strings.Contains(event.Err.Error(), "SQLSTATE 42") { // a table or a right is missing
		fields = append(fields, zap.String("hint", "the tables are made by `caddy rate-limit schema --regions`, and the gateway needs SELECT, INSERT, UPDATE and DELETE on them"))
	}
	a.logger.Log(level, "region: "+event.Kind.String(), fields...)
}

// The state of the region that metrics tell.
var (
	regionShareDesc = stateDesc("region_share", "The part of each limit that this region gives, of limits without a share of their own.", "region")
	regionAgeDesc   = stateDesc("region_share_age_seconds", "Seconds since the shares were last known to be those of the table.", "region")
	regionSafeDesc  = stateDesc("region_lapsed", "Whether the shares are too old to count and the safe share is in force: 1, or 0.", "region")
)

// collectRegion sends the state of the app's region.
func (a *App) collectRegion(gauge func(desc *prometheus.Desc, value float64, labels ...string)) {
	if a.Region == nil {
		return
	}
	if a.regions == nil {
		gauge(regionShareDesc, a.givenShare(), a.Region.Name)
		return
	}
	status := a.regions.Status()
	lapsed := 0.0
	if status.Lapsed {
		lapsed = 1
	}
	gauge(regionShareDesc, status.Share, a.Region.Name)
	gauge(regionAgeDesc, status.Age.Seconds(), a.Region.Name)
	gauge(regionSafeDesc, lapsed, a.Region.Name)
}

// givenShare returns the share that the configuration names, 1 where it names none.
func (a *App) givenShare() float64 {
	if a.share == 0 {
		return 1
	}
	return a.share
}

// The events of the region.
const (
	sharesChangedEvent   = "rate_limit_shares_changed"
	sharesFailedEvent    = "rate_limit_shares_failed"
	sharesRecoveredEvent = "rate_limit_shares_recovered"
	sharesLapsedEvent    = "rate_limit_shares_lapsed"
	sharesUnknownEvent   = "rate_limit_shares_unknown"
	sharesMovedEvent     = "rate_limit_shares_moved"
	sharesStuckEvent     = "rate_limit_shares_stuck"
)

// tellRegion tells of what happened to the shares.
func (a *App) tellRegion(event regions.Event) {
	data := map[string]any{"region": a.Region.Name, "share": event.Share}
	if event.Err != nil {
		data["error"] = event.Err.Error()
	}
	if name := regionEventName(event.Kind); name != "" {
		a.tellChange(name, data)
	}
}

func regionEventName(kind regions.EventKind) string {
	switch kind {
	case regions.EventShares:
		return sharesChangedEvent
	case regions.EventFailed:
		return sharesFailedEvent
	case regions.EventRecovered:
		return sharesRecoveredEvent
	case regions.EventLapsed:
		return sharesLapsedEvent
	case regions.EventUnknown, regions.EventStored:
		return sharesUnknownEvent
	case regions.EventMoved:
		return sharesMovedEvent
	case regions.EventJobFailed:
		return sharesStuckEvent
	default:
		return ""
	}
}
