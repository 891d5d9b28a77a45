package ratelimit

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/fleet"
	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/internal/history"
	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// What outlives a reload. A key names what is talked to or remembered and every
// setting that shapes the connection to it. What is pooled holds no logger,
// context or registry of the config that made it.
var (
	clients = caddy.NewUsagePool() // of Redis, with their breakers
	stores  = caddy.NewUsagePool() // buckets in memory, and what stands before those in Redis
	sources = caddy.NewUsagePool() // rules
	shares  = caddy.NewUsagePool() // of regions
	fleets  = caddy.NewUsagePool() // what gateways know of each other, where they count themselves
)

func takeClient(options redisbucket.Options) (*redisbucket.Client, func() error, error) {
	return take(clients, options.PoolKey(), func() (*redisbucket.Client, error) { return redisbucket.NewClient(options) })
}

// memory is all that one gateway remembers about the buckets of one Redis and key
// prefix, or of none, and of what happened lately.
type memory struct {
	local    *localbucket.Store
	refusals *front.MemoryStore
	ahead    *front.PrefetchStore
	top      *hot.Top // that refused most
	shadow   *hot.Top // that would have
	asked    *hot.Top // of which one in askedSample is noted
	requests *history.Requests
	changes  *history.Events

	process    int64        // names it in buckets of places
	places     atomic.Int64 // the number of the last one
	departures departures
}

func takeMemory(identity string) (*memory, func() error, error) {
	return take(stores, identity, func() (*memory, error) {
		return &memory{
			local: localbucket.NewStore(), refusals: front.NewMemoryStore(), ahead: front.NewPrefetchStore(),
			top: hot.NewTop(time.Now), shadow: hot.NewTop(time.Now), asked: hot.NewTop(time.Now),
			requests: history.NewRequests(), changes: new(history.Events), process: newProcess(),
		}, nil
	})
}

// takeHeartbeat returns the heartbeat for the Redis and key prefix of an identity.
func takeHeartbeat(identity, prefix string) (*fleet.Heartbeat, func() error, error) {
	return take(fleets, identity, func() (*fleet.Heartbeat, error) { return fleet.New(prefix), nil })
}

// bound sets how many buckets each of the stores keeps at most, until release.
func (m *memory) bound(most int) (release func()) {
	releases := []func(){m.local.Bound(most), m.refusals.Bound(most), m.ahead.Bound(most)}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// Destruct has nothing to close. A request that comes later is still answered.
func (m *memory) Destruct() error {
	return errors.Join(m.local.Destruct(), m.refusals.Destruct(), m.ahead.Destruct())
}

func takeSource(options rulecache.Options) (*rulecache.Source, func() error, error) {
	return take(sources, options.PoolKey(), func() (*rulecache.Source, error) { return rulecache.NewSource(options) })
}

func takeShares(options regions.Options) (*regions.Source, func() error, error) {
	return take(shares, options.PoolKey(), func() (*regions.Source, error) { return regions.NewSource(options) })
}

// nameSuccessor lets another client of the same Redis act for client once that is
// stopped: that of the config which is taking over.
func nameSuccessor(client *redisbucket.Client) {
	clients.Range(func(_, value any) bool {
		other := value.(*redisbucket.Client)
		if other == client || other.Identity() != client.Identity() {
			return true
		}
		client.SucceedBy(other)
		return false
	})
}

// take returns the pool's value for key, made if it is not there, and the one
// function that gives it back. Who took nothing has nothing to give back: a
// config that failed half-way must not release what a running one holds.
func take[T caddy.Destructor](pool *caddy.UsagePool, key string, build func() (T, error)) (T, func() error, error) {
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return build() })
	if err != nil {
		var none T
		return none, nil, err
	}
	release := func() error {
		_, err := pool.Delete(key)
		return err
	}
	return value.(T), release, nil
}
