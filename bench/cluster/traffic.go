package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// route is what all requests are for.
	route = "create-order"
	// tenantCount is how many tenants there are.
	tenantCount = 100_000
	// hotCount is of how many tenants, the most frequent ones, accounts are kept.
	hotCount = 20
	// zipfExponent makes the first tenant send about a tenth of all requests.
	zipfExponent = 1.1
	// orderLength is after how many requests their order repeats.
	orderLength = 1 << 20
)

// mode is how a rule asks for its tokens.
type mode struct {
	name     string
	prefetch int32
	shards   uint8
}

var modes = [...]mode{ //nolint:gochecknoglobals // a table
	{"strict", limit.PrefetchOff, 1},
	{"prefetch auto", limit.PrefetchAuto, 1},
	{"prefetch 50", 50, 1},
	{"4 shards", limit.PrefetchOff, 4},
}

// traffic is who asks, in which order, and under which rules.
type traffic struct {
	buckets   [][]limit.Bucket // of each tenant, one
	order     []int32          // tenants, as they ask
	instances []uint8          // who is asked
	hot       int              // the first so many tenants have accounts
}

// zipfTraffic is 100,000 tenants of very unequal weight, at a number of requests
// per second in all. Of the hot ones every other is offered twice its limit, and
// the rest half of it; all others may have 100/s.
func zipfTraffic(perSecond float64, m mode) *traffic {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // each run is to have the same
	zipf := rand.NewZipf(random, zipfExponent, 1, tenantCount-1)
	t := newTraffic(hotCount)
	counts := make([]int, tenantCount)
	for i := range t.order {
		tenant := int32(zipf.Uint64())
		t.order[i], t.instances[i] = tenant, uint8(random.IntN(instanceCount))
		counts[tenant]++
	}
	for i := range tenantCount {
		refill := 100.0
		if i < hotCount {
			offered := perSecond * float64(counts[i]) / orderLength
			refill = offered * [2]float64{0.5, 2}[i%2]
		}
		t.add(i, tenantRule(refill, m))
	}
	return t
}

// evenTraffic is a few tenants that ask equally often, each for refill per second.
func evenTraffic(tenants int, refill float64, m mode) *traffic {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // each run is to have the same
	t := newTraffic(tenants)
	for i := range t.order {
		t.order[i], t.instances[i] = int32(random.IntN(tenants)), uint8(random.IntN(instanceCount))
	}
	for i := range tenants {
		t.add(i, tenantRule(refill, m))
	}
	return t
}

func newTraffic(hot int) *traffic {
	return &traffic{order: make([]int32, orderLength), instances: make([]uint8, orderLength), hot: hot}
}

func (t *traffic) add(tenant int, rule limit.Rule) {
	key := limit.Key{Tenant: fmt.Sprintf("tenant-%06d", tenant), Route: route}
	t.buckets = append(t.buckets, []limit.Bucket{{Key: key, Rule: rule}})
}

// tenantRule allows refill per second, and as much at once.
func tenantRule(refill float64, m mode) limit.Rule {
	capacity := max(1, int64(refill))
	return limit.Rule{
		Capacity: capacity, Refill: float64(capacity), WindowMillis: 1000, Algorithm: limit.TokenBucket,
		Mode: limit.Enforce, Prefetch: m.prefetch, Shards: m.shards,
	}
}
