package cases_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

func TestF2ReloadStormInAnOutage(t *testing.T) {
	t.Parallel()
	config := gateway.Site("rate_limit {\nredis redis://"+servertest.FreeAddr(t)+"\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}"))
	g := gateway.Start(t, config)
	passed := 0
	for range 20 {
		passed += g.Passes(1, "t1")
		g.Reload(config)
	}
	require.Equal(t, 5, passed)
}

func TestF4Shares(t *testing.T) {
	t.Parallel()
	address := servertest.FreeAddr(t)
	config := func(instances int) string {
		return gateway.Site(fmt.Sprintf("rate_limit {\nredis redis://%s\ninstances %d\nrule * ten 1/1000s burst 10\nrule * two 1/1000s burst 2\n}", address, instances),
			"route /ten {\nrate_limit ten\nrespond ok\n}\nroute /two {\nrate_limit two\nrespond ok\n}")
	}
	g := gateway.Start(t, config(3))
	first := g.Get("/ten", "t1")
	require.Equal(t, []int{10, 2}, []int{first.Field("X-RateLimit-Limit"), first.Remaining()})
	require.Equal(t, []int{200, 429}, []int{g.Get("/two", "t1").Status, g.Get("/two", "t1").Status}, "a share of at least 1")
	g.Reload(config(6))
	require.Equal(t, 0, g.Get("/ten", "t1").Remaining(), "the balance of 2 is cut to the share of 1")
	require.Equal(t, 429, g.Get("/ten", "t1").Status)
	for _, instances := range []int{0, -1} {
		status, text := g.Load(config(instances))
		require.Equal(t, 400, status)
		require.Contains(t, text, "instances")
	}
}

// TestF5ErrorShapes has Redis answer scripts with all that is no decision. The
// breaker is off, so that each request meets it.
func TestF5ErrorShapes(t *testing.T) {
	t.Parallel()
	const decision = "*4\r\n:1\r\n:1\r\n:0\r\n:1000000\r\n"
	fake := servertest.FakeRedis(t, []byte(decision))
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+fake.URL()+" {\nbreaker off\n}\n}", gateway.Answers("rate_limit a {\n"+slow(2)+"\n}")))
	decides := func() bool { return g.Get("/", "t1").Source() == "redis" }
	gateway.Eventually(t, 10*time.Second, "redis answers", decides)
	failed := func() (n int) {
		for _, count := range g.RedisErrors() {
			n += int(count)
		}
		return n
	}
	meet := func(name, shape string) {
		fake.AnswerScripts([]byte(shape))
		before, asked := failed(), fake.Calls("EVAL", "EVALSHA")
		for _, want := range []int{200, 200, 429} {
			got := g.Get("/", name)
			require.Equal(t, []any{want, "local", 2}, []any{got.Status, got.Source(), got.Field("X-RateLimit-Limit")}, name)
		}
		require.Equal(t, 3, failed()-before, "%s: failures are counted", name)
		require.Greater(t, fake.Calls("EVAL", "EVALSHA"), asked, "%s: redis was asked", name)
	}
	for name, shape := range map[string]string{
		"never": "", "nil": "$-1\r\n", "nil list": "*-1\r\n", "empty list": "*0\r\n", "one element": "*1\r\n:1\r\n",
		"strings": "*4\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n1\r\n", "error": "-ERR x\r\n", "ok": "+OK\r\n",
		"half": "*4\r\n:1\r\n:1", "garbage": "\x16\x03\x01 garbage\r\n", "huge list": "*99999999999\r\n",
		"loading": "-LOADING Redis is loading the dataset in memory\r\n", "noauth": "-NOAUTH Authentication required.\r\n",
		"misconf": "-MISCONF Redis is configured to save RDB snapshots\r\n", "clusterdown": "-CLUSTERDOWN The cluster is down\r\n",
		"masterdown": "-MASTERDOWN Link with MASTER is down\r\n", "readonly": "-READONLY You can't write against a read only replica.\r\n",
	} {
		meet(name, shape)
	}
	fake.AnswerScripts([]byte(decision))
	gateway.Eventually(t, 10*time.Second, "redis answers again", decides)
	fake.CutAfterScripts()
	meet("half and cut", "*4\r\n:1\r\n:1")
}

// TestF6ReadOnly makes another Redis the master, which only new connections reach.
func TestF6ReadOnly(t *testing.T) {
	t.Parallel()
	redis, proxy := redisAndProxy(t)
	successor := servertest.Redis(t)
	g := gateway.Start(t, viaProxy(proxy, "timeout 1s", "rate_limit a {\n"+slow(10_000)+"\n}"))
	require.Equal(t, "redis", g.Get("/", "t1").Source())
	host, port, err := net.SplitHostPort(successor.Addr)
	require.NoError(t, err)
	require.NoError(t, redis.Client(t).ReplicaOf(t.Context(), host, port).Err())
	proxy.SetUpstream(successor.Addr)
	onSuccessor := successor.Client(t)
	began := time.Now()
	gateway.Eventually(t, 20*time.Second, "the new master decides", func() bool {
		got := g.Get("/", "t1")
		require.Equal(t, 200, got.Status)
		return got.Source() == "redis" && onSuccessor.Exists(t.Context(), "rl:{t1}:a").Val() == 1
	})
	t.Logf("the new master decided after %v, after %v", time.Since(began), g.RedisErrors())
	require.NotEmpty(t, g.RedisErrors(), "the old master was asked")
	for range 20 {
		require.Equal(t, "redis", g.Get("/", "t1").Source())
	}
}

// TestF7NoScript has Redis forget the script, and restarts it with its data.
func TestF7NoScript(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", gateway.Answers("rate_limit a {\n"+slow(100)+"\n}")))
	ask := func(remaining int) {
		t.Helper()
		got := g.Get("/", "t1")
		require.Equal(t, []any{"redis", remaining}, []any{got.Source(), got.Remaining()})
	}
	flush := func() {
		client := redis.Client(t)
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
		require.NoError(t, client.Close()) // so that only the gateway's connections are counted
	}
	ask(99)
	flush()
	ask(98)
	connections := settledClients(t, redis)
	redis.Restart(t)
	gateway.Eventually(t, 20*time.Second, "the connections are there again", func() bool { return len(clientsOf(t, redis)) >= connections })
	ask(97)
	flush()
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if got := g.Get("/", "t1"); got.Status != 200 || got.Source() != "redis" {
				t.Errorf("status %d from %s", got.Status, got.Source())
			}
		})
	}
	wait.Wait()
	ask(46)
	require.Zero(t, g.BreakerOpen())
	require.Empty(t, g.RedisErrors())
	redis.Kill(t)
	require.Equal(t, "local", g.Get("/", "t1").Source())
	require.NotEmpty(t, g.RedisErrors(), "a failure would have been counted")
}

// settledClients returns how many connections Redis has once there are no more to come.
func settledClients(t *testing.T, redis *servertest.RedisServer) (count int) {
	t.Helper()
	since := time.Now()
	gateway.Eventually(t, 20*time.Second, "the connections are all there", func() bool {
		if now := len(clientsOf(t, redis)); now != count {
			count, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	return count
}

func TestF8FullRedis(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t, "--maxmemory-policy", "noeviction")
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", gateway.Answers("rate_limit a {\n"+slow(2)+"\n}")))
	require.Equal(t, "redis", g.Get("/", "t1").Source())
	client := redis.Client(t)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, want := range []int{200, 200, 429} {
		got := g.Get("/", "t2")
		require.Equal(t, []any{want, "local"}, []any{got.Status, got.Source()})
	}
	require.Equal(t, map[string]float64{"oom": 3}, g.RedisErrors())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	gateway.Eventually(t, 20*time.Second, "redis answers again", func() bool { return g.Get("/", "t3").Source() == "redis" })
}

// TestF9StartInAnOutage starts and reloads while Redis, PostgreSQL or both cannot
// be reached, and heals them.
func TestF9StartInAnOutage(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, "INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', 50, 1)")
	address, err := url.Parse(postgres.URL(database))
	require.NoError(t, err)
	refused, hole := servertest.Fault{Refuse: true}, servertest.Fault{Swallow: true}
	for name, faults := range map[string]struct{ redis, postgres *servertest.Fault }{
		"both refuse":              {&refused, &refused},
		"both are black holes":     {&hole, &hole},
		"redis is a black hole":    {&hole, nil},
		"postgres is a black hole": {nil, &hole},
		"redis refuses":            {&refused, nil},
		"postgres refuses":         {nil, &refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			toRedis, toPostgres := servertest.NewProxy(t, redis.Addr), servertest.NewProxy(t, address.Host)
			source, limit := "redis", 50
			if faults.redis != nil {
				toRedis.Set(t, *faults.redis)
				source = "local"
			}
			if faults.postgres != nil {
				toPostgres.Set(t, *faults.postgres)
				source, limit = "local", 5 // who does not know the rules decides alone (S1)
			}
			config := gateway.Site("rate_limit {\nredis redis://"+toRedis.Addr()+"/1 {\nkey_prefix "+strings.ReplaceAll(name, " ", "-")+"\n}\nrules "+
				servertest.PostgresURL(toPostgres.Addr(), database)+" {\nrefresh 1s\n}\ndefault 1/1000s burst 5\n}", gateway.Answers("rate_limit a"))
			g := gateway.New(t)
			for _, step := range []struct {
				name string
				do   func(string)
			}{{"start", g.Start}, {"reload", g.Reload}} {
				began := time.Now()
				step.do(config)
				got := g.Get("/", "t1")
				took := time.Since(began)
				t.Logf("%s: the first answer after %v, from %s", step.name, took, got.Source())
				require.Equal(t, 200, got.Status, step.name)
				require.Less(t, took, 20*time.Second, step.name)
				gateway.Eventually(t, 10*time.Second, step.name+": what can be reached counts", func() bool {
					got := g.Get("/", "t2")
					return got.Source() == source && g.Get("/", "t1").Field("X-RateLimit-Limit") == limit
				})
			}
			toRedis.Set(t, servertest.Fault{})
			toPostgres.Set(t, servertest.Fault{})
			gateway.Eventually(t, 20*time.Second, "all recover without a reload", func() bool {
				got := g.Get("/", "t1")
				return got.Source() == "redis" && got.Field("X-RateLimit-Limit") == 50
			})
		})
	}
}
