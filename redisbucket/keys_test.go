package redisbucket

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestKeyLayout(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		key       limit.Key
		algorithm limit.Algorithm
	}{
		"rl:{shop-a}:create-order":     {limit.Key{Tenant: "shop-a", Route: "create-order"}, limit.TokenBucket},
		"rl:{shop-a}:create-order:log": {limit.Key{Tenant: "shop-a", Route: "create-order"}, limit.SlidingWindowLog},
		"rl:{shop-a}:create-order:win": {limit.Key{Tenant: "shop-a", Route: "create-order"}, limit.SlidingWindowCounter},
		"rl:shop-a:create-order:0":     {limit.Key{Tenant: "shop-a", Route: "create-order", Shard: 1}, 0},
		"rl:shop-a:create-order:15":    {limit.Key{Tenant: "shop-a", Route: "create-order", Shard: 16}, 0},
		"rl:{~}:create-order":          {limit.Key{Route: "create-order"}, 0},
	}
	for want, test := range tests {
		require.Equal(t, want, New(nil, "").RedisKey(test.key, test.algorithm))
	}
}

func TestK1Collisions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	parts := []string{"a", "b", ":", "|", "/", "%3A", " ", "\t", "}", "{", "{}", "{x}", "", "~guest", "~ip-00", "é", "\x00"}
	name := func() string {
		var text strings.Builder
		for range random.IntN(5) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		return text.String()
	}
	pairs, keys := map[[2]string]bool{}, map[string]bool{}
	for len(pairs) < 10_000 {
		pair := [2]string{name() + fmt.Sprint(random.IntN(100)), name()}
		pairs[pair] = true
		key := limit.Key{Tenant: limit.EscapeName(pair[0]), Route: limit.EscapeName(pair[1])}
		keys[keyText(DefaultPrefix, key, limit.TokenBucket)] = true
	}
	require.Len(t, keys, 10_000)
}

// TestK2Slots follows the rule of Redis Cluster for hash tags.
func TestK2Slots(t *testing.T) {
	t.Parallel()
	tag := func(key string) string {
		_, rest, found := strings.Cut(key, "{")
		inner, _, closed := strings.Cut(rest, "}")
		if !found || !closed || inner == "" {
			return key
		}
		return inner
	}
	for _, tenant := range []string{"a}b", "{x}", "}{", "{}", "", "{", "a{b}c", "é"} {
		escaped := limit.EscapeName(tenant)
		tags, shards := map[string]bool{}, map[string]bool{}
		for _, route := range []string{"a", "b"} {
			for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
				tags[tag(keyText(DefaultPrefix, limit.Key{Tenant: escaped, Route: route}, algorithm))] = true
			}
		}
		require.Len(t, tags, 1, "all keys of %q lie in one slot", tenant)
		for shard := range uint8(4) {
			shards[tag(keyText(DefaultPrefix, limit.Key{Tenant: escaped, Route: "a", Shard: shard + 1}, 0))] = true
		}
		require.Len(t, shards, 4, "the shards of %q are spread", tenant)
	}
}

func TestK7LongAndSecret(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 200<<10)
	names := []string{long + "a", long + "b", "a\x00b", "😀", strings.Repeat("😀", 1000)}
	for i := range 100 {
		names = append(names, strings.Repeat("prefix", 50)+fmt.Sprint(i))
	}
	keys := map[string]bool{}
	for _, name := range names {
		key := keyText(strings.Repeat("p", 32), limit.Key{Tenant: limit.EscapeName(name), Route: strings.Repeat("r", limit.MaxRouteLength)}, limit.SlidingWindowLog)
		require.Less(t, len(key), 256)
		keys[key] = true
	}
	require.Len(t, keys, len(names))
}
