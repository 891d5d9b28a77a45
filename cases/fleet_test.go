package cases_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// fleet is gateways that count themselves, each with a way of its own to one Redis.
type fleet struct {
	t        *testing.T
	redis    *servertest.RedisServer
	proxies  []*servertest.Proxy
	gateways []*gateway.Process
}

// fleetFile is the Caddyfile of a gateway in a fleet, with a limit of 30.
func fleetFile(redis string, until int) string {
	return gateway.Site(fmt.Sprintf("rate_limit {\nredis redis://%s {\ntimeout 100ms\n}\ninstances auto %d\n}", redis, until),
		gateway.Answers("rate_limit a {\n"+slow(fleetLimit)+"\n}"))
}

const fleetLimit = 30

func startFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: servertest.Redis(t, "--save", "")}
	for range n {
		f.join()
	}
	f.await("all have joined", n)
	return f
}

func (f *fleet) join() {
	f.t.Helper()
	proxy := servertest.NewProxy(f.t, f.redis.Addr)
	f.proxies = append(f.proxies, proxy)
	f.gateways = append(f.gateways, gateway.Start(f.t, fleetFile(proxy.Addr(), 1)))
}

// leaves forgets a gateway that has ended.
func (f *fleet) leaves(i int) {
	f.gateways = append(f.gateways[:i:i], f.gateways[i+1:]...)
	f.proxies = append(f.proxies[:i:i], f.proxies[i+1:]...)
}

// await waits until all gateways know n.
func (f *fleet) await(what string, n int) {
	f.t.Helper()
	began := time.Now()
	for _, g := range f.gateways {
		gateway.Eventually(f.t, time.Minute, fmt.Sprintf("%s: %d are known", what, n), func() bool { return g.Instances() == n })
	}
	f.t.Logf("%s: %d known everywhere after %v", what, n, time.Since(began).Round(10*time.Millisecond))
}

// cut takes Redis away from some of the gateways, and gives it back.
func (f *fleet) cut(fault servertest.Fault, which ...int) {
	f.t.Helper()
	for _, i := range which {
		f.proxies[i].Set(f.t, fault)
	}
}

// admits asks each gateway for more than the whole limit and returns how many
// passed in all, none of them by Redis.
func (f *fleet) admits(what, tenant string) (all int) {
	f.t.Helper()
	var each []int
	for _, g := range f.gateways {
		gateway.Eventually(f.t, 10*time.Second, "the gateway has noticed", func() bool { return g.Get("/", "another").Source() == "local" })
		passed := 0
		for range fleetLimit + 5 {
			got := g.Get("/", tenant)
			require.Equal(f.t, "local", got.Source(), what)
			if got.Status == 200 {
				passed++
			}
		}
		each, all = append(each, passed), all+passed
	}
	f.t.Logf("%s: the fallback of %d gateways admits %v = %d, the limit is %d", what, len(each), each, all, fleetLimit)
	return all
}

var refuses = servertest.Fault{Refuse: true}

// TestInstancesAuto has gateways join, be cut off, die and leave.
func TestInstancesAuto(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.cut(refuses, 0, 1, 2)
	require.Equal(t, fleetLimit, f.admits("all are cut off", "t1"))
	f.cut(servertest.Fault{}, 0, 1, 2)
	for _, g := range f.gateways {
		gateway.Eventually(t, 20*time.Second, "redis decides again", func() bool { return g.Get("/", "t2").Source() == "redis" })
		require.Equal(t, 3, g.Instances(), "whoever is back first does not think that it is alone")
	}

	f.gateways[2].Kill()
	f.leaves(2)
	require.Equal(t, 3, f.gateways[0].Instances(), "one has died, and nobody knows it yet")
	f.await("one has died", 2)
	f.cut(refuses, 0, 1)
	require.Equal(t, fleetLimit, f.admits("one has died, the others are cut off", "t3"))

	f.cut(servertest.Fault{}, 0, 1)
	f.join()
	f.join()
	f.await("two join", 4)
	f.cut(refuses, 0, 1, 2, 3)
	require.Equal(t, 4*(fleetLimit/4), f.admits("two have joined", "t4"))
	f.cut(servertest.Fault{}, 0, 1, 2, 3)
}

// TestInstancesAutoOfOneCutOff: the others cannot tell a gateway that is cut off
// from a dead one. They count it for about 15 s more.
func TestInstancesAutoOfOneCutOff(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.cut(refuses, 2)
	gateway.Eventually(t, 20*time.Second, "it has noticed", func() bool { return f.gateways[2].Get("/", "another").Source() == "local" })
	f.cut(refuses, 0, 1)
	require.Equal(t, fleetLimit, f.admits("one was cut off before the others", "t1"))
	f.cut(servertest.Fault{}, 0, 1)
	for _, g := range f.gateways[:2] {
		gateway.Eventually(t, time.Minute, "it is given up", func() bool { return g.Instances() == 2 })
	}
	require.Equal(t, 3, f.gateways[2].Instances(), "who is cut off keeps the last number")
	f.cut(refuses, 0, 1)
	all := f.admits("one is cut off for long, then the others", "t2")
	require.LessOrEqual(t, all, fleetLimit+fleetLimit/3, "its share is on top")
	f.cut(servertest.Fault{}, 0, 1, 2)
	f.await("all are back", 3)
}

// TestInstancesAutoOverALossOfData restarts Redis empty, and takes it away again as
// soon as it has answered.
func TestInstancesAutoOverALossOfData(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for round := range 3 {
		f.redis.Restart(t)
		gateway.Eventually(t, 20*time.Second, "one gateway is back", func() bool {
			return f.redis.Client(t).ZCard(t.Context(), "rl:{~instances}").Val() > 0
		})
		f.cut(refuses, 0, 1, 2)
		require.Equal(t, fleetLimit, f.admits("Redis was empty and is gone", fmt.Sprint("t", round)))
		f.cut(servertest.Fault{}, 0, 1, 2)
	}
}

// TestInstancesAutoInAReloadStorm reloads one gateway often: it is neither counted
// twice nor ever missed.
func TestInstancesAutoInAReloadStorm(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2)
	client := f.redis.Client(t)
	for i := range 20 {
		f.gateways[0].Reload(fleetFile(f.proxies[0].Addr(), 1+i%3))
		require.Equal(t, int64(2), client.ZCard(t.Context(), "rl:{~instances}").Val())
		require.Equal(t, 2, f.gateways[0].Instances())
	}
	status, _ := f.gateways[0].Load(fleetFile(f.proxies[0].Addr(), 0))
	require.Equal(t, 400, status)
	require.Equal(t, int64(2), client.ZCard(t.Context(), "rl:{~instances}").Val(), "a config that is refused changes nothing")
	require.LessOrEqual(t, strings.Count(f.gateways[1].Log(), "the number of gateways has changed"), 2, "the other has seen nothing of it")

	static := strings.Replace(fleetFile(f.proxies[0].Addr(), 7), "instances auto 7", "instances 7", 1)
	f.gateways[0].Reload(static)
	require.Equal(t, int64(1), client.ZCard(t.Context(), "rl:{~instances}").Val(), "who does not count itself is not counted")
	require.Equal(t, 7, f.gateways[0].Instances())
	f.gateways[0].Reload(fleetFile(f.proxies[0].Addr(), 1))
	f.await("it counts itself again", 2)
	f.gateways[0].Stop()
	require.Equal(t, int64(1), client.ZCard(t.Context(), "rl:{~instances}").Val(), "it has left")
}

// TestF4SharesUntilKnown has never met Redis: the number of the config counts.
func TestF4SharesUntilKnown(t *testing.T) {
	t.Parallel()
	address := servertest.FreeAddr(t)
	config := func(until int) string {
		return gateway.Site(fmt.Sprintf("rate_limit {\nredis redis://%s\ninstances auto %d\n}", address, until), gateway.Answers("rate_limit a {\n"+slow(10)+"\n}"))
	}
	g := gateway.Start(t, config(3))
	require.Equal(t, 2, g.Get("/", "t1").Remaining())
	g.Reload(config(6))
	require.Equal(t, 0, g.Get("/", "t1").Remaining(), "the balance of 2 is cut to the share of 1")
	require.Equal(t, 429, g.Get("/", "t1").Status)
	require.Equal(t, 6, g.Instances())
	gateway.Eventually(t, 20*time.Second, "it is told", func() bool { return strings.Contains(g.Log(), "the gateways cannot be counted") })
	require.Equal(t, 1, strings.Count(g.Log(), "the gateways cannot be counted"))
}

// TestFleetDisagrees has two gateways with other rules than the third.
func TestFleetDisagrees(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2)
	proxy := servertest.NewProxy(t, f.redis.Addr)
	other := strings.Replace(fleetFile(proxy.Addr(), 1), "instances auto 1", "instances auto 1\nrule t1 a 5/s", 1)
	f.gateways = append(f.gateways, gateway.Start(t, other))
	f.await("one with other rules joins", 3)
	for _, g := range f.gateways {
		gateway.Eventually(t, 20*time.Second, "one disagrees", func() bool { return g.Metric("caddy_rate_limit_instances_disagree") == 1 })
		require.Equal(t, 3.0, g.Metric("caddy_rate_limit_instances_counted"))
		require.Less(t, g.Metric("caddy_rate_limit_heartbeat_age_seconds"), 20.0)
	}
	f.gateways[2].Reload(fleetFile(proxy.Addr(), 1))
	for _, g := range f.gateways {
		gateway.Eventually(t, 20*time.Second, "all agree", func() bool { return g.Metric("caddy_rate_limit_instances_disagree") == 0 })
	}
}
