package cases_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// onCluster is the config of a gateway whose Redis is a cluster.
func onCluster(urls []string, options string) string {
	return gateway.Site("rate_limit {\nredis "+strings.Join(urls, " ")+" {\ntimeout 1s\n"+options+"\n}\n}", gateway.Answers("rate_limit a {\n"+slow(100_000)+"\n}"))
}

func onSentinels(s *servertest.RedisSentinels) string {
	return onCluster(s.URLs(), "mode sentinel "+servertest.MasterName)
}

// watch is what the clients of a gateway see while its Redis changes: each tenant
// asks again and again.
type watch struct {
	gateway *gateway.Process
	tenants []string
	done    chan struct{}
	wait    sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int
	sources  map[string]int
	since    map[string]time.Time     // when the fallback began to decide for a tenant
	away     map[string]time.Duration // how long it did
	slowest  time.Duration
}

func watching(t *testing.T, g *gateway.Process, tenants int) *watch {
	t.Helper()
	w := &watch{
		gateway: g, done: make(chan struct{}), statuses: map[int]int{}, sources: map[string]int{},
		since: map[string]time.Time{}, away: map[string]time.Duration{},
	}
	for i := range tenants {
		w.tenants = append(w.tenants, fmt.Sprintf("tenant-%d", i))
	}
	for worker := range 2 {
		w.wait.Go(func() {
			for i := worker; ; i += 2 {
				select {
				case <-w.done:
					return
				case <-time.After(2 * time.Millisecond):
				}
				w.ask(w.tenants[i%len(w.tenants)])
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

func (w *watch) ask(tenant string) {
	got, err := w.gateway.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {tenant}})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.statuses[0]++
		return
	}
	w.statuses[got.Status]++
	w.sources[got.Source()]++
	w.slowest = max(w.slowest, got.Took)
	began, away := w.since[tenant]
	switch decided := got.Source() == "redis"; {
	case decided && away:
		w.away[tenant] += time.Since(began)
		delete(w.since, tenant)
	case !decided && !away:
		w.since[tenant] = time.Now()
	}
}

func (w *watch) stop() {
	select {
	case <-w.done:
	default:
		close(w.done)
		w.wait.Wait()
	}
}

// settle waits until Redis decides for every tenant, and returns how long it did
// not for those for whom it did not, since the last call.
func (w *watch) settle(t *testing.T) map[string]time.Duration {
	t.Helper()
	gateway.Eventually(t, 60*time.Second, "Redis decides for every tenant", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.since) == 0
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	away := w.away
	w.away = map[string]time.Duration{}
	return away
}

// require ends the watch: nobody saw anything but 200, quickly.
func (w *watch) require(t *testing.T) {
	t.Helper()
	w.stop()
	t.Logf("in all: statuses %v, sources %v, slowest %v, errors %v", w.statuses, w.sources, w.slowest.Round(time.Millisecond), w.gateway.RedisErrors())
	require.Equal(t, []int{200}, slices.Collect(maps.Keys(w.statuses)), "%v", w.statuses)
}

// told is for a log: how many tenants were away, and how long.
func told(away map[string]time.Duration) string {
	if len(away) == 0 {
		return "no tenant was on the fallback"
	}
	times := slices.Sorted(maps.Values(away))
	return fmt.Sprintf("%d tenants were on the fallback, for %v to %v, %v in the middle", len(times),
		times[0].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), times[len(times)/2].Round(time.Millisecond))
}

// of returns the tenants of a master.
func (w *watch) of(t *testing.T, c *servertest.RedisCluster, master *servertest.RedisServer) map[string]bool {
	t.Helper()
	own := map[string]bool{}
	for _, tenant := range w.tenants {
		if c.MasterOfKey(t, "{"+tenant+"}") == master {
			own[tenant] = true
		}
	}
	return own
}

// TestO5ClusterMoves moves slots, kills a master, and promotes a replica, while 50
// tenants ask.
func TestO5ClusterMoves(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, servertest.ClusterOptions{Replicas: 1})
	g := gateway.Start(t, onCluster(c.URLs()[:3], ""))
	w := watching(t, g, 50)
	w.settle(t)

	moved := 0
	for _, tenant := range w.tenants[:10] {
		from := c.MasterOfKey(t, "{"+tenant+"}")
		to := c.Servers[(slices.Index(c.Servers, from)+1)%3]
		slot, err := c.Servers[0].Client(t).ClusterKeySlot(t.Context(), "{"+tenant+"}").Result()
		require.NoError(t, err)
		c.Move(t, int(slot), to)
		moved++
	}
	away := w.settle(t)
	t.Logf("%d slots moved: %s", moved, told(away))
	require.Less(t, len(away), 10, "moving costs a redirect")

	victim := c.Servers[0]
	own := w.of(t, c, victim)
	require.NotEmpty(t, own)
	victim.Kill(t)
	time.Sleep(500 * time.Millisecond)
	away = w.settle(t)
	t.Logf("a master killed, which had %d of 50 tenants: %s", len(own), told(away))
	for tenant, d := range away {
		require.True(t, own[tenant] || d < 500*time.Millisecond, "%s is not a tenant of the dead master and was away for %v", tenant, d)
	}
	victim.Restart(t)
	c.AwaitHealthy(t)
	w.settle(t)

	next := c.Servers[1]
	c.Failover(t, c.ReplicaOf(t, next))
	t.Logf("a replica promoted in good order: %s", told(w.settle(t)))
	w.require(t)
}

// TestRollingRestart restarts all three masters of a cluster, one after another:
// as they are, and with their replicas taking over first.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	masters := 1
	if servertest.Thorough(t, "all three masters of a cluster instead of one") {
		masters = 3
	}
	for _, first := range []bool{false, true} {
		name := "as they are"
		if first {
			name = "with replicas taking over first"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servertest.Cluster(t, servertest.ClusterOptions{Replicas: 1, Args: []string{"--appendonly", "yes"}})
			g := gateway.Start(t, onCluster(c.URLs()[:3], ""))
			w := watching(t, g, 50)
			w.settle(t)
			for i, master := range c.Servers[:masters] {
				own := w.of(t, c, master)
				if first {
					c.Failover(t, c.ReplicaOf(t, master))
				}
				master.Restart(t)
				c.AwaitHealthy(t)
				away := w.settle(t)
				t.Logf("master %d, which had %d of 50 tenants: %s", i, len(own), told(away))
			}
			w.require(t)
		})
	}
}

// TestSentinelFailoversAtTheGateway changes the master three times in a row.
func TestSentinelFailoversAtTheGateway(t *testing.T) {
	t.Parallel()
	failovers := 1
	if servertest.Thorough(t, "three fail-overs instead of one") {
		failovers = 3
	}
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	g := gateway.Start(t, onSentinels(s))
	w := watching(t, g, 20)
	w.settle(t)
	for i := range failovers {
		before := s.Master()
		how := "killed"
		if i == 1 {
			how = "in good order"
			s.Failover(t)
		} else {
			before.Kill(t)
			s.AwaitMaster(t, before)
			before.Restart(t)
		}
		s.AwaitHealthy(t)
		t.Logf("fail-over %d, %s: %s", i, how, told(w.settle(t)))
		require.Equal(t, 0.0, g.Family("caddy_rate_limit_breaker_open")[`caddy_rate_limit_breaker_open{node="`+s.Master().Addr+`/0"}`])
	}
	w.require(t)
}

// TestUnknownMasterAtTheGateway cannot be told at load: it is one error in the log
// and a reason in the metric.
func TestUnknownMasterAtTheGateway(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	g := gateway.Start(t, onCluster(s.URLs(), "mode sentinel nobody"))
	for range 5 {
		got := g.Get("/", "t1")
		require.Equal(t, []any{200, "local"}, []any{got.Status, got.Source()})
	}
	require.Equal(t, map[string]float64{"unknown_master": 5}, g.RedisErrors())
	require.Equal(t, 1, strings.Count(g.Log(), "redis sentinels know no master of this name"))
}

// TestNewPassword changes the password under traffic, by a reload.
func TestNewPassword(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	client := redis.Client(t)
	user := func(rights ...any) {
		t.Helper()
		require.NoError(t, client.Do(t.Context(), append([]any{"acl", "setuser", "gateway"}, rights...)...).Err())
	}
	user("on", ">old-one", "~*", "+@all")
	config := func(password string) string {
		return onCluster([]string{"redis://gateway:" + password + "@" + redis.Addr}, "")
	}
	g := gateway.Start(t, config("old-one"))
	w := watching(t, g, 5)
	w.settle(t)
	user(">new-one")
	g.Reload(config("new-one"))
	w.settle(t)
	user("<old-one")
	require.NoError(t, client.ClientKillByFilter(t.Context(), "USER", "gateway").Err())
	time.Sleep(200 * time.Millisecond)
	t.Logf("after all connections were cut: %s", told(w.settle(t)))
	gateway.Eventually(t, 60*time.Second, "Redis has decided nearly always", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.sources["redis"] > 10*w.sources["local"]
	})
	w.stop()
	require.Zero(t, w.statuses[429]+w.statuses[500])
	require.NotContains(t, g.RedisErrors(), "noauth")
	require.NotContains(t, g.Log(), "one@")
}

// TestK2AtTheGateway has names that are no good as hash tags, shards, and two zones
// whose keys are in different slots: no call of a script meets two slots.
func TestK2AtTheGateway(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, servertest.ClusterOptions{})
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+strings.Join(c.URLs(), " ")+" {\ntimeout 1s\n}\n}", gateway.Answers(`
	route /several {
		rate_limit a b c {
			`+slow(10)+`
		}
	}
	route /shards {
		rate_limit d {
			shards 4
			`+slow(10)+`
		}
	}
	route /zones {
		rate_limit {
			headers legacy
			zone wide {
				key static
				window 1h
				events 100
			}
			zone narrow {
				key {header.X-Api-Key}
				window 1h
				events 3
			}
		}
	}`)))
	tenants := []string{"a}b", "{x}", "}{", "{}", "a b"}
	for _, tenant := range tenants {
		got := g.Get("/several", tenant)
		require.Equal(t, []any{200, "redis", 9}, []any{got.Status, got.Source(), got.Remaining()}, tenant)
	}
	passed := 0
	for range 14 {
		got := g.Get("/shards", "t1")
		require.Contains(t, []string{"redis", "remembered"}, got.Source())
		if got.Status == 200 {
			passed++
		}
	}
	require.Equal(t, 10, passed)
	for _, tenant := range tenants {
		for i, want := range []int{200, 200, 200, 429} {
			got := g.Get("/zones", tenant)
			require.Equal(t, want, got.Status, "%s %d", tenant, i)
			require.Contains(t, []string{"redis", "remembered"}, got.Source())
		}
	}
	require.Empty(t, g.RedisErrors())
	logged := 0
	for _, s := range c.Servers {
		client := s.Client(t)
		for _, key := range client.Keys(t.Context(), "rl:{static}:wide:log").Val() {
			logged += int(client.ZCard(t.Context(), key).Val())
		}
	}
	require.Equal(t, 3*len(tenants), logged, "what the narrow zone refuses costs the wide one nothing")
}
