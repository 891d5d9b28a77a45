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

// appendKey appends the Redis key of a bucket: `rl:{shop-a}:create-order`, whose
// hash tag puts all routes of a tenant in one slot, and for shard i of it
// `rl:shop-a:create-order:i`, which spreads the shards. A sliding window adds
// its suffix.
func appendKey(name []byte, prefix string, key limit.Key, algorithm limit.Algorithm) []byte {
	tenant := key.Tenant
	if tenant == "" {
		tenant = noName
	}
	name = append(append(name, prefix...), ':')
	if key.Shard == 0 {
		name = append(append(append(name, '{'), tenant...), "}:"...)
		name = append(name, key.Route...)
	} else {
		name = append(append(name, tenant...), ':')
		name = append(append(name, key.Route...), ':')
		name = strconv.AppendUint(name, uint64(key.Shard)-1, 10)
	}
	return append(name, algorithmSuffix(algorithm)...)
}

// keyText returns the Redis key of a bucket as a text.
func keyText(prefix string, key limit.Key, algorithm limit.Algorithm) string {
	return string(appendKey(nil, prefix, key, algorithm))
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
