package redisbucket

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

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
		req.Deadline = time.Now().Add(4 * patience)
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
