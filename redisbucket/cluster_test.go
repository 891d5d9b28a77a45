package redisbucket

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

// clustered is a started Limiter on a private cluster.
type clustered struct {
	*Limiter
	cluster *servertest.RedisCluster
	clients []*redis.Client // of every server
}

func onCluster(t *testing.T, o servertest.ClusterOptions) *clustered {
	t.Helper()
	cluster := servertest.Cluster(t, o)
	c := &clustered{cluster: cluster, Limiter: started(t, Options{URLs: cluster.URLs()[:2], TLS: TLS{CAFile: cluster.Certificate.CertFile}})}
	for _, server := range cluster.Servers {
		c.clients = append(c.clients, server.Client(t))
	}
	require.Len(t, c.client.Status().Nodes, 3)
	return c
}

// keys returns all keys of all masters.
func (c *clustered) keys(t *testing.T) (all []string) {
	t.Helper()
	for _, client := range c.clients[:3] {
		all = append(all, client.Keys(t.Context(), "*").Val()...)
	}
	return all
}

func (c *clustered) flush(t *testing.T) {
	t.Helper()
	for _, client := range c.clients[:3] {
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

// of is a request for one unit from a tenant's bucket.
func of(r limit.Rule, tenant string) limit.Request {
	req := ask(r)
	req.Buckets[0].Key.Tenant = limit.EscapeName(tenant)
	return req
}

// TestClusterLimiter holds the Limiter to the suite that every Limiter passes.
func TestClusterLimiter(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	limittest.Run(t, func(t *testing.T) limittest.Fixture {
		c.flush(t)
		return limittest.Fixture{
			Limiter: c, Source: limit.SourceRedis, Algorithms: limittest.AllAlgorithms(),
			Drift: 2 * time.Second, // all its servers are asked to make time pass
			Advance: func(t testing.TB, d time.Duration) {
				for _, client := range c.clients {
					advance(t, client, d)
				}
			},
		}
	})
}

// TestK2SlotsOfACluster: whatever a tenant is called, all keys of a call are in one slot,
// and shards are spread.
func TestK2SlotsOfACluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	r := rule(t, 10, 0.001)
	for _, tenant := range []string{"a}b", "{x}", "}{", "{}", "", "~", "a b"} {
		req := of(r, tenant)
		for _, route := range []string{"b", "c", "d"} {
			req.Buckets = append(req.Buckets, limit.Bucket{Key: limit.Key{Tenant: req.Buckets[0].Key.Tenant, Route: route}, Rule: r})
		}
		d, err := c.Take(t.Context(), req)
		require.NoError(t, err, tenant)
		require.EqualValues(t, 1, d.Granted, tenant)
		slots := map[uint16]bool{}
		for _, bucket := range req.Buckets {
			key := c.RedisKey(bucket.Key, 0)
			slots[slotOf([]byte(key))] = true
			require.EqualValues(t, c.clients[0].ClusterKeySlot(t.Context(), key).Val(), slotOf([]byte(key)), key)
			require.NoError(t, c.Reset(t.Context(), bucket.Key))
		}
		require.Len(t, slots, 1, tenant)
	}
	require.Empty(t, c.keys(t), "all are reset")
	slots := map[uint16]bool{}
	for shard := range uint8(4) {
		req := ask(r)
		req.Buckets[0].Key.Shard = shard + 1
		_, err := c.Take(t.Context(), req)
		require.NoError(t, err)
		slots[slotOf([]byte(c.RedisKey(req.Buckets[0].Key, 0)))] = true
	}
	require.GreaterOrEqual(t, len(slots), 2)
	for shard := range uint8(4) {
		require.NoError(t, c.Reset(t.Context(), limit.Key{Tenant: "t1", Route: "a", Shard: shard + 1}))
	}
	require.Empty(t, c.keys(t), "all shards are reset")
}

// TestClusterBatches has many tenants ask at once, so that calls hold several
// slots, also when no server knows the script.
func TestClusterBatches(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	r := rule(t, 5, 0.001)
	for round := range int64(3) {
		for _, client := range c.clients {
			require.NoError(t, client.ScriptFlush(t.Context()).Err())
		}
		var wait sync.WaitGroup
		for i := range 300 {
			wait.Go(func() {
				d, err := c.Take(context.Background(), of(r, "tenant-"+strconv.Itoa(i%150)))
				if err != nil || d.Granted != min(1, max(0, 5-2*round)) && round != 2 {
					t.Errorf("granted %d: %v", d.Granted, err)
				}
			})
		}
		wait.Wait()
	}
	for i := range 150 {
		d, err := c.Take(t.Context(), of(r, "tenant-"+strconv.Itoa(i)))
		require.NoError(t, err)
		require.Zero(t, d.Granted, "all five were taken, of which the sixth was refused")
	}
	calls, pipelined := 0, 0
	for _, server := range c.cluster.Servers {
		calls += server.CommandCalls(t, "evalsha")
		pipelined += server.CommandCalls(t, "eval")
	}
	require.Positive(t, pipelined)
	require.Less(t, pipelined, calls/4, "the text is sent once to each server, not for each slot")
	require.Equal(t, "closed", c.client.Status().Breaker)
}

// TestSeveralSlots takes from buckets that no single call can hold: all or, where
// one has nothing, none.
func TestSeveralSlots(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	request := func(count int64, capacities ...int64) limit.Request {
		req := limit.Request{Cost: 1, Count: count, Deadline: time.Now().Add(4 * patience)}
		for i, capacity := range capacities {
			req.Buckets = append(req.Buckets, limit.Bucket{Key: limit.Key{Tenant: "zone-" + strconv.Itoa(i), Route: "a"}, Rule: rule(t, capacity, 0.001)})
		}
		return req
	}
	for name, test := range map[string]struct {
		count   int64
		granted []int64 // of calls one after another
		left    []int64 // after them, from 100, 3, 7
	}{
		"one by one": {1, []int64{1, 1, 1, 0, 0}, []int64{97, 0, 4}},
		"as many":    {2, []int64{2, 1, 0}, []int64{97, 0, 4}},
		"look":       {0, []int64{0, 0}, []int64{100, 3, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			c.flush(t)
			for i, want := range test.granted {
				d, err := c.Take(t.Context(), request(test.count, 100, 3, 7))
				require.NoError(t, err)
				require.Equal(t, want, d.Granted, i)
				require.Len(t, d.Rest, 2)
				if test.count > 0 && want == 0 {
					require.Positive(t, d.At(1).RetryAfter, "the empty one says when it is not")
				}
			}
			d, err := c.Take(t.Context(), request(0, 100, 3, 7))
			require.NoError(t, err)
			for i, left := range test.left {
				require.Equal(t, left, d.At(i).Remaining, i)
			}
		})
	}
}

// TestH6SeveralSlotsApart: each bucket gives what it can, whatever the others can.
func TestH6SeveralSlotsApart(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	req := limit.Request{Cost: 1, Count: 2, Apart: true, Deadline: time.Now().Add(4 * patience)}
	for i, capacity := range []int64{100, 3, 1, 7} {
		key := limit.Key{Tenant: "zone-" + strconv.Itoa(i/2), Route: strconv.Itoa(i)}
		req.Buckets = append(req.Buckets, limit.Bucket{Key: key, Rule: rule(t, capacity, 0.001)})
	}
	for _, want := range [][]int64{{2, 2, 1, 2}, {2, 1, 0, 2}, {2, 0, 0, 2}, {2, 0, 0, 1}} {
		d, err := c.Take(t.Context(), req)
		require.NoError(t, err)
		for i, granted := range want {
			require.Equal(t, limit.Grant{Granted: granted, Source: limit.SourceRedis}, d.Grant(i), i)
		}
	}
}

// TestSeveralSlotsAtOnce: others come in between, and yet nothing is given twice.
func TestSeveralSlotsAtOnce(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	wide, narrow := rule(t, 1000, 0.001), rule(t, 20, 0.001)
	var mu sync.Mutex
	var wait sync.WaitGroup
	granted := int64(0)
	for range 100 {
		wait.Go(func() {
			d, err := c.Take(context.Background(), limit.Request{Cost: 1, Count: 1, Deadline: time.Now().Add(20 * patience), Buckets: []limit.Bucket{
				{Key: limit.Key{Tenant: "w", Route: "a"}, Rule: wide}, {Key: limit.Key{Tenant: "n", Route: "a"}, Rule: narrow},
			}})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			granted += d.Granted
		})
	}
	wait.Wait()
	require.EqualValues(t, 20, granted, "the narrow one is taken from first, so that the wide one loses nothing")
	d, err := c.Take(t.Context(), limit.Request{Cost: 1, Buckets: []limit.Bucket{{Key: limit.Key{Tenant: "w", Route: "a"}, Rule: wide}}})
	require.NoError(t, err)
	require.EqualValues(t, 980, d.First.Remaining)
}
