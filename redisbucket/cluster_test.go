package redisbucket

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// TestO5SlotsMove moves the slot of a bucket, and asks while it moves, when the
// key is still where it was, when it is not, and when it is elsewhere for good.
func TestO5SlotsMove(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	r := rule(t, 100, 0.001)
	left := int64(100)
	tenant, fresh := "t1", "fresh"
	slot := int(slotOf([]byte("{" + tenant + "}")))
	requireNext := func(when string) {
		t.Helper()
		d, err := c.Take(t.Context(), of(r, tenant))
		require.NoError(t, err, when)
		left--
		require.Equal(t, left, d.First.Remaining, when)
	}
	requireNext("before")
	from := c.cluster.MasterOf(t, slot)
	at := slices.Index(c.cluster.Servers, from)
	to := c.cluster.Servers[(at+1)%3]
	c.cluster.BeginMove(t, slot, to)
	requireNext("the key is where it was")
	for i, route := range []string{"b", "c", "b"} { // new in a slot that moves: ASK
		req := of(r, tenant)
		req.Buckets[0].Key.Route = route
		d, err := c.Take(t.Context(), req)
		require.NoError(t, err, i)
		require.EqualValues(t, 1, d.Granted)
	}
	require.NoError(t, c.Reset(t.Context(), limit.Key{Tenant: tenant, Route: "c"}))
	req := of(r, tenant)
	req.Buckets = append(req.Buckets, limit.Bucket{Key: limit.Key{Tenant: tenant, Route: "b"}, Rule: r})
	_, err := c.Take(t.Context(), req)
	require.Equal(t, "tryagain", Reason(err), "one key is here, the other there")
	c.cluster.Move(t, slot, to)
	requireNext("moved")
	require.Eventually(t, func() bool {
		before := from.CommandCalls(t, "evalsha")
		_, err := c.Take(t.Context(), of(r, tenant))
		left--
		return err == nil && from.CommandCalls(t, "evalsha") == before
	}, 10*time.Second, 20*time.Millisecond, "the view follows")
	requireNext("after")
	for _, node := range c.client.Status().Nodes {
		require.Equal(t, "closed", node.Breaker, node.Address)
	}
	d, err := c.Take(t.Context(), of(r, fresh))
	require.NoError(t, err)
	require.EqualValues(t, 99, d.First.Remaining)
}

// tenants are n names.
func tenants(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	return names
}

// masters are the tenants by the address of their master.
func (c *clustered) masters(names []string) map[string][]string {
	v := c.client.view.Load()
	by := map[string][]string{}
	for _, name := range names {
		host := v.at(slotOf([]byte("{" + name + "}"))).address.host
		by[host] = append(by[host], name)
	}
	return by
}

// undecided are the tenants whose requests Redis does not decide, with the reasons.
func (c *clustered) undecided(t *testing.T, names []string) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	r := rule(t, 1_000_000, 1)
	for _, name := range names {
		req := of(r, name)
		req.Deadline = time.Now().Add(patience)
		if _, err := c.Take(t.Context(), req); err != nil {
			reasons[name] = Reason(err)
		}
	}
	return reasons
}

// TestO5MasterKilled kills a master: only its tenants are undecided, until its
// replica is the master, and from then on nobody.
func TestO5MasterKilled(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{Replicas: 1})
	names := tenants(50)
	require.Empty(t, c.undecided(t, names))
	victim := c.cluster.Servers[0]
	lost := c.masters(names)[victim.Addr]
	require.NotEmpty(t, lost)
	killed := time.Now()
	victim.Kill(t)
	for {
		reasons := c.undecided(t, names)
		for name, reason := range reasons {
			require.Contains(t, lost, name, "only tenants of the dead master: %s", reason)
		}
		if len(reasons) == 0 {
			break
		}
		require.Less(t, time.Since(killed), 30*time.Second, "%v", reasons)
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d of %d tenants were undecided, for %v with a node timeout of 1s", len(lost), len(names), time.Since(killed).Round(10*time.Millisecond))
	require.NotContains(t, slices.Collect(maps.Keys(c.masters(names))), victim.Addr)
	require.Eventually(t, func() bool {
		c.client.mu.Lock()
		defer c.client.mu.Unlock()
		return c.client.nodes[victim.Addr] == nil
	}, 20*time.Second, 10*time.Millisecond, "the dead one is let go")
	victim.Restart(t)
	c.cluster.AwaitHealthy(t)
	require.Empty(t, c.undecided(t, names))
}

// TestClusterOfOne is no cluster: the first thing that is said is that.
func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	seen := &observed{}
	client := seen.start(t, Options{URLs: []string{server.URL()}, Mode: ModeCluster})
	l := New(client, "")
	_, err := quick(l, rule(t, 10, 1))
	require.Equal(t, "no_cluster", Reason(err))
	require.Eventually(t, func() bool { return len(seen.get()) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, NoCluster, seen.get()[0].Kind)
	status := client.Status()
	require.Equal(t, []any{"open", "no_cluster", "cluster " + server.Addr}, []any{status.Breaker, status.LastReason, status.Address})
}

// TestReadSlots reads what servers say of themselves in their several ways.
func TestReadSlots(t *testing.T) {
	t.Parallel()
	row := func(first, last int64, host any, port int64) any {
		return []any{first, last, []any{host, port, "id", []any{}}, []any{"replica", int64(1), "id"}}
	}
	got, err := readSlots([]any{row(0, 5, "a", 1), row(6, 9, nil, 2), row(10, 11, "", 2), row(12, 12, "?", 3), row(13, 14, "a", 1), row(15, 16, "::1", 4)}, "me:7")
	require.NoError(t, err)
	require.Equal(t, []master{
		{"a:1", []slotRange{{0, 5}, {13, 14}}},
		{"me:2", []slotRange{{6, 9}, {10, 11}}},
		{"me:3", []slotRange{{12, 12}}},
		{"[::1]:4", []slotRange{{15, 16}}},
	}, got)
	for name, reply := range map[string]any{
		"no list": "x", "no row": []any{"x"}, "short": []any{[]any{int64(0), int64(1)}}, "no port": []any{[]any{int64(0), int64(1), []any{"a"}}},
		"backwards": []any{row(5, 4, "a", 1)}, "beyond": []any{row(0, slotCount, "a", 1)}, "negative": []any{row(-1, 4, "a", 1)}, "port 0": []any{row(0, 4, "a", 0)},
	} {
		_, err := readSlots(reply, "me:7")
		require.Equal(t, "reply", Reason(err), name)
	}
}

// TestRedirects reads where a reply sends to.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]redirect{
		"MOVED 3999 127.0.0.1:6381":     {host: "127.0.0.1:6381"},
		"MOVED 3999 :6381":              {host: "me:6381"},
		"ASK 3999 ::1:6381":             {host: "[::1]:6381", ask: true},
		"ASK 3999 host.example:6381":    {host: "host.example:6381", ask: true},
		"MOVED 3999":                    {},
		"MOVED 3999 nowhere":            {},
		"MOVED 3999 host:port":          {},
		"CLUSTERDOWN Hash slot is gone": {},
	} {
		got := redirectIn(followed(replyError(text), "me:7"))
		if want.host == "" {
			require.Nil(t, got, text)
			continue
		}
		require.Equal(t, []any{want.host, want.ask, text}, []any{got.host, got.ask, got.Error()})
		require.Equal(t, "moved", Reason(got))
	}
	require.Equal(t, 12739, int(slotOf([]byte("123456789"))), "the specification's own example: 0x31c3")
	require.Equal(t, slotOf([]byte("{user1000}.following")), slotOf([]byte("user1000")))
	require.NotEqual(t, slotOf([]byte("foo{}{bar}")), slotOf([]byte("bar")))
	require.Equal(t, slotOf([]byte("foo{{bar}}zap")), slotOf([]byte("{bar")))
}
