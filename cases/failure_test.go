package cases_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/redisbucket"
)

// viaProxy is a gateway whose Redis is behind the proxy.
func viaProxy(proxy *servertest.Proxy, options, directive string) string {
	return gateway.Site("rate_limit {\nredis redis://"+proxy.Addr()+" {\n"+options+"\n}\n}", gateway.Answers(directive))
}

func redisAndProxy(t *testing.T) (*servertest.RedisServer, *servertest.Proxy) {
	t.Helper()
	redis := servertest.Redis(t)
	return redis, servertest.NewProxy(t, redis.Addr)
}

// TestT1Budget holds replies far longer than a request may wait. A deadline that
// allows for a busy machine would let a small fault through, so that the best of
// three is held to a tight one.
func TestT1Budget(t *testing.T) {
	t.Parallel()
	_, proxy := redisAndProxy(t)
	for name, test := range map[string]struct {
		address string
		fault   servertest.Fault
	}{
		"replies come after 5 s": {proxy.Addr(), servertest.Fault{ReplyDelay: 5 * time.Second}},
		"replies never come":     {proxy.Addr(), servertest.Fault{Silent: true}},
		"SYNs are dropped":       {servertest.BlackHole(t), servertest.Fault{}},
	} {
		proxy.Set(t, servertest.Fault{})
		prefix := strings.ReplaceAll(name, " ", "-")
		g := gateway.Start(t, gateway.Site("rate_limit {\nredis redis://"+test.address+" {\nkey_prefix "+prefix+"\n}\n}", gateway.Answers("rate_limit a {\n"+slow(10)+"\n}")))
		if test.address == proxy.Addr() {
			gateway.Eventually(t, 10*time.Second, "redis answers", func() bool { return g.Get("/", "warm").Source() == "redis" })
		}
		proxy.Set(t, test.fault)
		best := time.Hour
		for range 3 {
			got := g.Get("/", "t1")
			require.Equal(t, []any{200, "local"}, []any{got.Status, got.Source()}, name)
			require.Less(t, got.Took, 250*time.Millisecond, name)
			best = min(best, got.Took)
			t.Logf("%s: answered after %v", name, got.Took)
		}
		require.Less(t, best, 60*time.Millisecond, name)
	}
}

// TestT3Dialling makes each connection take longer than a request may wait: Redis
// could decide nothing if requests waited for one. A busy machine is late now and
// then without a fault.
func TestT3Dialling(t *testing.T) {
	t.Parallel()
	redis, proxy := redisAndProxy(t)
	proxy.Set(t, servertest.Fault{ConnectDelay: 10 * time.Millisecond})
	g := gateway.Start(t, viaProxy(proxy, "timeout 5ms", "rate_limit a {\n"+slow(10_000)+"\n}"))
	for _, when := range []string{"at start", "after CLIENT KILL"} {
		began, decided := time.Now(), 0
		gateway.Eventually(t, 20*time.Second, when+": redis decides at least 45 of 50 requests in a row", func() bool {
			decided = 0
			for range 50 {
				if g.Get("/", "t1").Source() == "redis" {
					decided++
				}
			}
			return decided >= 45
		})
		t.Logf("%s: redis decided %d of 50 after %v", when, decided, time.Since(began))
		require.NoError(t, redis.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	}
}

// TestT4Waiting has more requests come at once than there is time for, while each
// reply takes most of it: nobody waits longer, and a metric tells why Redis did
// not decide.
func TestT4Waiting(t *testing.T) {
	t.Parallel()
	_, proxy := redisAndProxy(t)
	g := gateway.Start(t, viaProxy(proxy, "timeout 5ms\nbreaker off", "rate_limit a {\n"+slow(1000)+"\n}"))
	gateway.Eventually(t, 10*time.Second, "redis answers", func() bool { return g.Get("/", "warm").Source() == "redis" })
	failed := func() (n int) {
		for _, count := range g.RedisErrors() {
			n += int(count)
		}
		return n
	}
	before := failed()
	proxy.Set(t, servertest.Fault{ReplyDelay: 4 * time.Millisecond})
	replies := make([]gateway.Reply, 40)
	var wait sync.WaitGroup
	for i := range replies {
		wait.Go(func() { replies[i] = g.Get("/", "t1") })
	}
	wait.Wait()
	local, longest := 0, time.Duration(0)
	for _, got := range replies {
		require.Equal(t, 200, got.Status)
		require.Contains(t, []string{"redis", "local"}, got.Source())
		longest = max(longest, got.Took)
		if got.Source() == "local" {
			local++
		}
	}
	t.Logf("the longest took %v; %d of %d local, after %v", longest, local, len(replies), g.RedisErrors())
	require.Less(t, longest, time.Second)
	require.Equal(t, local, failed()-before, "each that Redis did not decide has its reason")
}

func TestF1Breaker(t *testing.T) {
	t.Parallel()
	const open = redisbucket.DefaultBreakerOpen / 2 // at least: it is up to a tenth shorter
	redis, proxy := redisAndProxy(t)
	g := gateway.Start(t, viaProxy(proxy, "timeout 200ms", "rate_limit a {\n"+slow(1000)+"\n}"))
	gateway.Eventually(t, 10*time.Second, "redis answers", func() bool { return g.Get("/", "warm").Source() == "redis" })
	calls := func() int { return proxy.Commands("EVALSHA", "EVAL") }
	atOnce := func(n int, tenant string) (slowest time.Duration) {
		var mu sync.Mutex
		var wait sync.WaitGroup
		for range n {
			wait.Go(func() {
				got := g.Get("/", tenant)
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, got.Took)
				if got.Status != 200 {
					t.Errorf("status %d", got.Status)
				}
			})
		}
		wait.Wait()
		return slowest
	}
	proxy.Set(t, servertest.Fault{SilentFor: []string{"EVALSHA", "EVAL"}})
	before := calls()
	g.Passes(4, "t1")
	fifth := time.Now()
	g.Passes(1, "t1")
	require.Equal(t, 5, calls()-before, "each of the first five is tried")
	before = calls()
	t.Logf("while open, the slowest of 100 at once took %v", atOnce(100, "t1"))
	require.LessOrEqual(t, calls()-before, int(time.Since(fifth)/open), "none while the breaker is open")
	require.Equal(t, 1.0, g.BreakerOpen())

	time.Sleep(1100 * time.Millisecond)
	before, began := calls(), time.Now()
	atOnce(100, "t1")
	probes := calls() - before
	require.Positive(t, probes)
	require.LessOrEqual(t, probes, 1+int(time.Since(began)/open), "one probe each time")

	proxy.Set(t, servertest.Fault{})
	gateway.Eventually(t, 20*time.Second, "the breaker closes", func() bool { return g.Get("/", "t3").Source() == "redis" })
	g.Reload(viaProxy(proxy, "timeout 10s", "rate_limit a {\n"+slow(1000)+"\n}")) // as a busy machine needs
	require.Equal(t, "redis", g.AfterReload(http.Header{"X-Api-Key": {"t2"}}).Source())
	atOnce(100, "t2")
	tokens, err := redis.Client(t).HGet(t.Context(), "rl:{t2}:a", "tokens").Float64()
	require.NoError(t, err)
	require.InDelta(t, 101, 1000-tokens, 0.5, "all are taken in Redis")
}

// TestF3Flapping takes Redis away and gives it back every 3 s. Each of the two
// buckets gives what it holds and no more.
func TestF3Flapping(t *testing.T) {
	t.Parallel()
	_, proxy := redisAndProxy(t)
	g := gateway.Start(t, viaProxy(proxy, "timeout 100ms", "rate_limit a {\n"+slow(20)+"\n}"))
	gateway.Eventually(t, 10*time.Second, "redis answers", func() bool { return g.Get("/", "warm").Source() == "redis" })
	passed, decided := 0, map[string]int{}
	const flap = 3 * time.Second
	refusing := false
	for began := time.Now(); time.Since(began) < 10*flap; time.Sleep(250 * time.Millisecond) {
		if refuse := int(time.Since(began)/flap)%2 == 0; refuse != refusing {
			refusing = refuse
			proxy.Set(t, servertest.Fault{Refuse: refuse})
		}
		got := g.Get("/", "t1")
		require.Contains(t, []int{200, 429}, got.Status)
		decided[got.Source()]++
		if got.Status == 200 {
			passed++
		}
	}
	proxy.Set(t, servertest.Fault{})
	t.Logf("%d passed of a limit of 20, decided by %v", passed, decided)
	require.LessOrEqual(t, passed, 40)
	require.Positive(t, decided["redis"], "between two outages Redis decides")
	require.Positive(t, decided["local"])
	lost := 5 // a token whose reply is cut off, at each of the outages
	require.GreaterOrEqual(t, passed, min(20, decided["redis"])+min(20, decided["local"])-lost)
	gateway.Eventually(t, 20*time.Second, "redis answers again", func() bool { return g.Get("/", "t2").Source() == "redis" })
}

func TestFallbackAllowAndDeny(t *testing.T) {
	t.Parallel()
	address := servertest.FreeAddr(t)
	config := func(fallback string) string {
		return gateway.Site("rate_limit {\nredis redis://"+address+" {\nbreaker 5 30s\n}\nfallback "+fallback+"\n}", gateway.Answers("rate_limit a {\n"+slow(1)+"\n}"))
	}
	g := gateway.Start(t, config("allow"))
	for range 3 {
		got := g.Get("/", "t1")
		require.Equal(t, []any{200, "none", -1}, []any{got.Status, got.Source(), got.Remaining()})
	}
	require.EqualValues(t, 3, g.Metric(`caddy_rate_limit_requests_total{outcome="allowed",source="none",zone="a"}`))
	g.Reload(config("deny"))
	got := g.Get("/", "t1")
	require.Equal(t, []any{429, 30, -1}, []any{got.Status, got.Field("Retry-After"), got.Remaining()})
}

func TestO6Secrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"
	configs := map[string]string{
		"redis url":         "redis redis://user:" + secret + "@127.0.0.1:notaport/0",
		"redis scheme":      "redis http://user:" + secret + "@127.0.0.1/0",
		"redis query":       "redis redis://user:" + secret + "@127.0.0.1/0?max_retries=2",
		"redis escape":      "redis redis://user:" + secret + "%zz@127.0.0.1/0",
		"redis placeholder": "redis redis://:p{" + secret + "}x@127.0.0.1/0",
		"postgres port":     "rules postgres://user:" + secret + "@127.0.0.1:notaport/x",
		"postgres query":    "rules postgres://user:" + secret + "@127.0.0.1/x?pool_max_conns=2",
		"postgres dsn":      "rules \"host=127.0.0.1 password=" + secret + "\"",
	}
	good := gateway.Site("", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}"))
	g := gateway.Start(t, good)
	for name, line := range configs {
		status, text := g.Load(gateway.Site("debug\nrate_limit {\n"+line+"\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
		require.Equal(t, 400, status, name)
		require.NotContains(t, text, secret, name)
		t.Logf("%s: %s", name, text)
	}
	status, text := g.Load(gateway.Site("rate_limit {\nredis "+"redis://127.0.0.1/0?max_retries=2"+"\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
	require.Equal(t, 400, status)
	require.Contains(t, text, "max_retries")

	withEnv := gateway.New(t, "RL_REDIS=redis://user:"+secret+"@"+servertest.FreeAddr(t)+"/0",
		"RL_RULES=postgres://user:"+secret+"@"+servertest.FreeAddr(t)+"/x")
	withEnv.Start(gateway.Site("debug\nrate_limit {\nredis {env.RL_REDIS}\nrules {env.RL_RULES}\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
	withEnv.Passes(10, "t1")
	status, text = withEnv.Load(gateway.Site("debug\nrate_limit {\nredis {env.RL_REDIS}\nrules {env.RL_RULES}\n}", gateway.Answers("rate_limit a")))
	require.Equal(t, 400, status)
	gateway.Eventually(t, 10*time.Second, "the failures are logged", func() bool { return strings.Contains(withEnv.Log(), "PostgreSQL") })
	for where, text := range map[string]string{
		"status": withEnv.AdminGet("/rate_limit/status"), "explain": withEnv.AdminGet("/rate_limit/explain?tenant=t1&route=a"),
		"log": withEnv.Log(), "config": withEnv.AdminGet("/config/"), "metrics": withEnv.AdminGet("/metrics"), "reload": text,
	} {
		require.NotContains(t, text, secret, where)
	}
}

func TestUnsetPlaceholderIsRefused(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "respond ok"))
	status, text := g.Load(gateway.Site("rate_limit {\nredis {env.RL_IS_NOT_SET}\n}", "rate_limit a {\n"+slow(5)+"\n}"))
	require.Equal(t, 400, status)
	require.Contains(t, text, "redis.urls[0]")
	status, text = g.Load(gateway.Site("", "rate_limit a"))
	require.Equal(t, 400, status)
	require.Contains(t, text, "has no rule that every tenant falls back to")
}

// TestDrill kills, stops and restarts what the gateways need, under load, and
// counts what clients see.
func TestDrill(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, "5ms", "on")
	c.rule(t, "t1", "create-order", 20, 10)
	c.awaitRules(t, 1)
	var asked, passed, odd, dropped atomic.Int64
	var mu sync.Mutex
	var tooks []time.Duration
	done := make(chan struct{})
	var wait sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(done)
		wait.Wait()
	})
	defer end()
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
				}
				got, err := c.gateways[i%2].Try(http.MethodGet, "/orders", http.Header{"X-Api-Key": {"t1"}})
				if err != nil {
					dropped.Add(1)
					continue
				}
				asked.Add(1)
				switch got.Status {
				case 200:
					passed.Add(1)
				case 429:
				default:
					odd.Add(1)
				}
				mu.Lock()
				tooks = append(tooks, got.Took)
				mu.Unlock()
			}
		})
	}
	step := func(name string, act func()) {
		mu.Lock()
		tooks = tooks[:0]
		mu.Unlock()
		before, began := passed.Load(), time.Now()
		act()
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(tooks)
		t.Logf("%-22s %5.1f passed/s of 10 allowed, %d answers, p50 %v, slowest %v", name,
			float64(passed.Load()-before)/time.Since(began).Seconds(), len(tooks), tooks[len(tooks)/2].Round(time.Microsecond), tooks[len(tooks)-1].Round(time.Millisecond))
	}
	began := time.Now()
	step("all is well", func() {})
	goroutines, sockets := c.gateways[0].Goroutines(), len(clientsOf(t, c.redis))
	step("redis killed", func() { c.redis.Kill(t) })
	step("redis restarted", func() { c.redis.Restart(t) })
	step("redis stopped", func() { c.redis.Pause(t) })
	step("redis goes on", func() { c.redis.Resume(t) })
	step("postgres killed", func() { c.postgres.Kill(t) })
	step("postgres restarted", func() { c.postgres.Restart(t) })
	step("60 reloads", func() {
		for i := range 30 {
			g := c.gateways[i%2]
			config := g.AdminGet("/config/")
			status, text := g.Post("/load", "application/json", config)
			require.Equal(t, http.StatusOK, status, text)
			invalid := strings.Replace(config, `"routes":["create-order"]`, `"routes":["not a route"]`, 1)
			status, _ = g.Post("/load", "application/json", invalid)
			require.Equal(t, http.StatusBadRequest, status)
		}
	})
	gateway.Eventually(t, 10*time.Second, "no more goroutines than before", func() bool { return c.gateways[0].Goroutines() <= goroutines })
	gateway.Eventually(t, 10*time.Second, "no more connections than before", func() bool { return len(clientsOf(t, c.redis)) <= sockets })
	end()
	require.Zero(t, odd.Load(), "answers other than 200 and 429")
	allowed := 20 + 10*time.Since(began).Seconds()
	t.Logf("%d of %d passed, %.0f allowed by the limit", passed.Load(), asked.Load(), allowed)
	// Caddy itself loses connections that are in the queue of a listener which a
	// reload closes, with and without this module.
	t.Logf("%d connections were lost", dropped.Load())

	gateway.Eventually(t, 10*time.Second, "redis decides again", func() bool { return c.gateways[0].Get("/orders", "t2").Source() == "redis" })
}

// TestSilentPostgresIsAwaitedOnce lets the first requests wait for rules until a
// second after the start, and never again, however many directives there are.
func TestSilentPostgresIsAwaitedOnce(t *testing.T) {
	t.Parallel()
	hole := servertest.BlackHole(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nrules "+servertest.PostgresURL(hole, "x")+"\ndefault 1/1000s burst 50\n}",
		"route {\nrate_limit a\nrate_limit b\nrate_limit c\nrespond ok\n}"))
	first, second := g.Get("/", "t1"), g.Get("/", "t1")
	t.Logf("the first took %v, the second %v", first.Took, second.Took)
	require.Equal(t, []int{200, 200}, []int{first.Status, second.Status})
	require.Less(t, first.Took, 2*time.Second, "one second, whatever the number of directives")
	require.Less(t, second.Took, 500*time.Millisecond)
}

// TestBreakerGauge shows an outage also where hardly anyone asks.
func TestBreakerGauge(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis redis://"+servertest.FreeAddr(t)+" {\nbreaker 1 100ms\n}\n}", gateway.Answers("rate_limit a {\n"+slow(50)+"\n}")))
	gateway.Eventually(t, 10*time.Second, "the breaker is open", func() bool {
		g.Get("/", "t1")
		return g.BreakerOpen() == 1
	})
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, 1.0, g.BreakerOpen(), "the time to try again has come, and nobody did")
}
