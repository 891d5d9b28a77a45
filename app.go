package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/fleet"
	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

func init() {
	caddy.RegisterModule(new(App))

	// The client prints each failed attempt to connect, past every log that the
	// operator has set up. What they need to know is logged by observeRedis.
	logging.Disable()
}

const appName = "rate_limit"

// App holds what all handlers of a config share: the Redis that keeps the
// buckets, the PostgreSQL that keeps the rules, and what happens when either is
// out of reach. Without both, limits are kept in memory.
type App struct {
	// The Redis that holds the buckets of all gateways. Default: none; every
	// gateway limits by itself, in memory.
	Redis *Redis `json:"redis,omitempty"`

	// The PostgreSQL table that holds the rules. Default: none; the static rules
	// and the limits of the handlers count.
	Rules *Rules `json:"rules,omitempty"`

	// Rules that stand in the configuration. A rule for the same pair in
	// PostgreSQL comes first. Default: none.
	StaticRules []StaticRule `json:"static_rules,omitempty"`

	// The limit that counts where neither a rule nor the handler's own limit is
	// found. Default: none; such a handler is refused at load.
	Default *Limit `json:"default,omitempty"`

	// How many gateways share the limits, from 1 to 100,000. While Redis cannot
	// answer, each of them gives this part of every limit. With `instances_auto`,
	// the number that counts until they have counted themselves, and required.
	// Default: 1.
	Instances *int `json:"instances,omitempty"`

	// Whether the gateways count themselves, by a heartbeat that each keeps in
	// Redis: a gateway that joins counts at once, one that is gone for 5 s and not
	// back within 10 s counts no more, and during an outage the last number stays.
	// All gateways should have it or none, because those without it are not
	// counted. Redis is required. Default: false.
	InstancesAuto bool `json:"instances_auto,omitempty"`

	// What happens to a request while Redis cannot answer: `local` limits in this
	// gateway's memory with its share, `allow` lets everything pass, `deny`
	// answers 429. Default: `local`.
	Fallback string `json:"fallback,omitempty"`

	// Which headers tell clients about their limit: `legacy`, `ietf`, `both` or
	// `off`; a handler may say otherwise. Default: `legacy`.
	Headers string `json:"headers,omitempty"`

	// What X-RateLimit-Reset holds: `delta`, the seconds until the bucket is
	// full, or `epoch`, the Unix time of that moment by this gateway's clock, in
	// seconds. Default: `delta`.
	Reset string `json:"reset,omitempty"`

	// Which plan each tenant has, where the table of tenants does not say. Rules for a
	// plan have the tenant `~` and its name. Default: none.
	Plans []TenantPlan `json:"plans,omitempty"`

	// How many buckets this gateway keeps in memory at most, from 1 to
	// 1,000,000,000. Beyond it, those that are full again soonest are forgotten.
	// Default: 1000000.
	MaxKeys int `json:"max_keys,omitempty"`

	// The key of the HMAC that hashes guests' addresses, the same on every gateway.
	// Without it, the four billion addresses of IPv4 could be tried out on a hash.
	// Required where a handler has `guest` set to `ip` and Redis is used. Default:
	// a random one for this process.
	GuestSecret string `json:"guest_secret,omitempty"`

	// The region that this gateway is in, where there are several and each gives a
	// share of every limit. Default: none, the whole of each.
	Region *Region `json:"region,omitempty"`

	logger   *zap.Logger
	limiter  limit.Limiter
	memory   *memory
	client   *redisbucket.Client // nil without Redis
	source   *rulecache.Source   // nil without PostgreSQL
	settings rulecache.Settings
	trigger  *runningTrigger // nil without one
	fleet    *fleet.Heartbeat
	static   *rulecache.Snapshot
	fallback *limit.Rule // from Default
	metrics  *metrics
	refusals *refusals
	events   *eventQueue
	origin   *caddy.Context        // of what the app tells
	layouts  map[string]*layout    // of the routes
	limits   map[string]limit.Rule // of the routes, as their first handler has them
	strays   strays
	bans     bans

	share          float64         // of every rule, 0: all of it
	regions        *regions.Source // nil where the share is not measured
	regionSettings regions.Settings

	handlers []*Handler // in the order in which they were provisioned
	releases []func() error
	stops    []func() // of what requests use
}

// CaddyModule returns the module's ID and how to make one.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: appName, New: func() caddy.Module { return new(App) }}
}

// Provision checks the settings and takes from the pools what the config talks
// to and remembers. It touches neither the network nor what a running config uses.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	a.layouts, a.limits = map[string]*layout{}, map[string]limit.Rule{}
	if err := a.expand(); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	a.warnOfInstances()
	var err error
	if a.static, err = staticSnapshot(a.StaticRules, a.Plans); err != nil {
		return err
	}
	if a.fallback, err = a.Default.rule("default"); err != nil {
		return err
	}
	// Under the handler's name, where those who come from caddy-ratelimit look for it.
	a.refusals = newRefusals(ctx.Logger(new(Handler)))
	if err := a.provisionEvents(ctx); err != nil {
		return err
	}
	if err := a.provisionRules(ctx); err != nil {
		return err
	}
	if err := a.provisionRegion(ctx); err != nil {
		return err
	}
	if err := a.provisionLimiter(); err != nil {
		return err
	}
	if a.metrics, err = registerMetrics(ctx.GetMetricsRegistry(), a); err == nil {
		a.releases = append(a.releases, a.metrics.release)
	}
	return err
}

// Start begins to talk to Redis and PostgreSQL. It waits a moment for Redis, so
// that the first requests find it, but neither has to be there.
func (a *App) Start() error {
	a.warnOfStrays()
	a.stops = append(a.stops, a.memory.bound(a.maxKeys()), a.refusals.start(), a.events.start(), a.watchRequests())
	if a.source != nil {
		a.stops = append(a.stops, a.source.Start(a.settings), a.watchRules())
	}
	if a.regions != nil {
		a.stops = append(a.stops, a.regions.Start(a.regionSettings))
	}
	if a.trigger != nil {
		a.trigger.start(a.source.Changed)
		a.stops = append(a.stops, a.trigger.stop)
	}
	if a.client != nil {
		stop := a.client.Start(a.observeRedis)
		a.stops = append(a.stops, a.startFleet(), stop, a.watchKnowledge(), a.watchPlaces())
		ctx, cancel := context.WithTimeout(context.Background(), warmTimeout)
		defer cancel()
		a.client.Warm(ctx)
	}
	return nil
}

// Stop does what others need before this config's modules are cleaned up: another
// config takes over, the storage keeps the rules, and the trigger is to end. What
// requests use goes on: Caddy stops apps in no order, and until all have stopped
// HTTP may serve.
func (a *App) Stop() error {
	if a.client != nil {
		nameSuccessor(a.client)
	}
	if a.trigger != nil {
		a.trigger.stop()
	}
	if a.source != nil {
		ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
		defer cancel()
		a.source.Keep(ctx)
	}
	return nil
}

// Cleanup ends what Start began, and gives back to the pools exactly what Provision
// took from them. Requests that are still running get answers from what is left.
func (a *App) Cleanup() error {
	for _, stop := range a.stops {
		stop()
	}
	a.stops = nil
	errs := make([]error, 0, len(a.releases))
	for _, release := range a.releases {
		errs = append(errs, release())
	}
	a.releases = nil
	return errors.Join(errs...)
}

// coversRoute reports whether a static rule is there for every tenant of the route.
func (a *App) coversRoute(route string) bool {
	_, found := rulecache.Find("", "", route, nil, a.static)
	return found
}

// provisionLimiter builds the chain of limiters.
func (a *App) provisionLimiter() error {
	identity := "alone"
	if a.Redis != nil {
		identity = a.Redis.keyPrefix() + "\x00" + a.Redis.options().Identity()
	}
	memory, release, err := takeMemory(identity)
	if err != nil {
		return err
	}
	a.releases = append(a.releases, release)
	a.memory = memory
	local := localbucket.New(memory.local, localbucket.Options{})
	if a.Redis == nil {
		a.limiter = local
		return nil
	}
	client, release, err := takeClient(a.Redis.options())
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	a.releases = append(a.releases, release)
	a.client = client
	if err := a.provisionFleet(identity); err != nil {
		return err
	}
	a.limiter, err = a.shared(local)
	return err
}

// shared returns the chain that shares limits through Redis: what stands before
// it, and what decides without it.
func (a *App) shared(local limit.Limiter) (limit.Limiter, error) {
	fallback, err := a.onFailure()
	if err != nil {
		return nil, err
	}
	inRedis := redisbucket.New(a.client, a.Redis.keyPrefix())
	remembered := &front.Memory{Next: inRedis, Store: a.memory.refusals}
	split := &front.Shards{Next: remembered}
	ahead := &front.Prefetch{Next: split, Store: a.memory.ahead, Instances: a.sharers}
	return &front.Failover{
		Primary:   ahead,
		Local:     local,
		Timeout:   a.Redis.timeout(),
		Instances: a.sharers,
		Fallback:  fallback,
		DenyFor:   a.Redis.openTime(),
		OnError:   countRedisError,
	}, nil
}

// provisionRules takes the source of the rules.
func (a *App) provisionRules(ctx caddy.Context) error {
	if a.Rules == nil {
		return nil
	}
	options := a.Rules.options()
	source, release, err := takeSource(options)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	a.releases = append(a.releases, release)
	a.source = source
	a.settings = a.Rules.settings()
	a.settings.Store = ruleStorage{storage: ctx.Storage(), key: "rate_limit/rules/" + options.StoreKey() + ".json"}
	a.settings.Observe = a.observeRules
	return a.provisionTrigger(ctx)
}

// onFailure returns what happens to requests that Redis cannot decide.
func (a *App) onFailure() (front.Fallback, error) {
	if a.Fallback == "" {
		return front.FallbackLocal, nil
	}
	fallback, err := front.ParseFallback(a.Fallback)
	if err != nil {
		return 0, fmt.Errorf("fallback: %w", err)
	}
	return fallback, nil
}

func (a *App) maxKeys() int {
	if a.MaxKeys == 0 {
		return defaultMaxKeys
	}
	return a.MaxKeys
}

const (
	defaultMaxKeys = 1_000_000

	// warmTimeout is how long Start waits for the first connection to Redis.
	warmTimeout = 250 * time.Millisecond

	// keepTimeout is how long Stop waits for the storage to keep the rules.
	keepTimeout = 2 * time.Second
)

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
