package redisbucket

import (
	"strconv"

	"github.com/caddygate/ratelimit/limit"
)

// DefaultPrefix is what keys begin with where no prefix is given.
const DefaultPrefix = "rl"

// noName stands for an empty tenant: an empty hash tag is none, and would
// scatter one call's keys. No escaped name contains a tilde.
const noName = "~"

// The suffixes of the algorithms that store another type than the token bucket.
const (
	logSuffix     = ":log"
	counterSuffix = ":win"
)

// keyText returns the Redis key of a bucket: `rl:{shop-a}:create-order`, whose
// hash tag puts all routes of a tenant in one slot, and for shard i of it
// `rl:shop-a:create-order:i`, which spreads the shards. A sliding window adds
// its suffix.
func keyText(prefix string, key limit.Key, algorithm limit.Algorithm) string {
	tenant := key.Tenant
	if tenant == "" {
		tenant = noName
	}
	suffix := algorithmSuffix(algorithm)
	if key.Shard == 0 {
		return prefix + ":{" + tenant + "}:" + key.Route + suffix
	}
	return prefix + ":" + tenant + ":" + key.Route + ":" + strconv.Itoa(int(key.Shard)-1) + suffix
}

func algorithmSuffix(algorithm limit.Algorithm) string {
	switch algorithm {
	case limit.SlidingWindowLog:
		return logSuffix
	case limit.SlidingWindowCounter:
		return counterSuffix
	default:
		return ""
	}
}
