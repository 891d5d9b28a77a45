package redisbucket

import (
	"bytes"
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
	placesSuffix  = ":run"
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

// banSuffix ends the key of a bucket's ban, which is that of the bucket whatever its
// algorithm.
const banSuffix = ":ban"

// appendBanKey appends the Redis key of a bucket's ban.
func appendBanKey(name []byte, prefix string, key limit.Key) []byte {
	return append(appendKey(name, prefix, key, limit.TokenBucket), banSuffix...)
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
	case limit.Concurrency:
		return placesSuffix
	default:
		return ""
	}
}

// slotCount is how many hash slots a Redis Cluster has.
const slotCount = 16384

// slotOf returns the hash slot of a key, as the Redis Cluster specification says:
// CRC16 of what stands between the first { and the next }, if that is not empty,
// else of the whole key, modulo 16384.
func slotOf(key []byte) uint16 {
	if _, rest, found := bytes.Cut(key, []byte("{")); found {
		if tag, _, closed := bytes.Cut(rest, []byte("}")); closed && len(tag) > 0 {
			key = tag
		}
	}
	return crc16(key) % slotCount
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, most significant bit first, from 0.
// Eight shifts by one bit are put together, as no bit of the polynomial meets
// another one's.
func crc16(data []byte) (crc uint16) {
	for _, b := range data {
		x := crc>>8 ^ uint16(b)
		x ^= x >> 4
		crc = crc<<8 ^ x<<12 ^ x<<5 ^ x
	}
	return crc
}
