package ratelimit

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// What outlives a reload. A key names what is talked to or remembered and every
// setting that shapes the connection to it. What is pooled holds no logger,
// context or registry of the config that made it.
var (
	nodes   = caddy.NewUsagePool() // Redis clients with their breakers
	stores  = caddy.NewUsagePool() // buckets in memory
	sources = caddy.NewUsagePool() // rules
)

func takeNode(options redisbucket.Options) (*redisbucket.Node, func() error, error) {
	return take(nodes, options.PoolKey(), func() (*redisbucket.Node, error) { return redisbucket.NewNode(options) })
}

func takeStore(identity string) (*localbucket.Store, func() error, error) {
	return take(stores, identity, func() (*localbucket.Store, error) { return localbucket.NewStore(), nil })
}

func takeSource(options rulecache.Options) (*rulecache.Source, func() error, error) {
	return take(sources, options.PoolKey(), func() (*rulecache.Source, error) { return rulecache.NewSource(options) })
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
