package cases_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// Log lines about knowledge.
const (
	alone    = "so it decides alone, within its own share"
	together = "this gateway decides through Redis, together with the others"
)

// stored returns all that Redis holds of a bucket.
func stored(t *testing.T, redis *servertest.RedisServer, key string) map[string]string {
	t.Helper()
	fields, err := redis.Client(t).HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.NotEmpty(t, fields, key)
	return fields
}

// TestS1IgnorantNewcomer starts a gateway that finds neither PostgreSQL nor stored
// rules beside one that has drained a token of a large bucket. The newcomer gives
// its part of the default, and what Redis holds stays.
func TestS1IgnorantNewcomer(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 100000, 1)`)
	file := gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL(database)+" {\nrefresh 1s\n}\ndefault 1/1000s burst 5\ninstances 2\nfallback deny\n}",
		gateway.Answers("rate_limit api"))
	healthy := gateway.Start(t, file)
	require.Equal(t, 99_999, healthy.Get("/", "shop-a").Remaining())
	before := stored(t, redis, "rl:{shop-a}:api")
	postgres.Stop(t)

	newcomer := gateway.Start(t, file)
	for _, left := range []int{1, 0} {
		got := newcomer.Get("/", "shop-a")
		require.Equal(t, []any{200, "local", 5, left}, []any{got.Status, got.Source(), got.Field("X-RateLimit-Limit"), got.Remaining()},
			"its part of the default")
	}
	require.Equal(t, http.StatusTooManyRequests, newcomer.Get("/", "shop-a").Status)
	require.Equal(t, 200, newcomer.Get("/", "another").Status)
	require.Equal(t, before, stored(t, redis, "rl:{shop-a}:api"))
	require.Equal(t, []string{"rl:{shop-a}:api"}, redis.Client(t).Keys(t.Context(), "*").Val(), "nothing else is written")
	got := healthy.Get("/", "shop-a")
	require.Equal(t, "redis", got.Source())
	require.GreaterOrEqual(t, got.Remaining(), 99_998, "and what it has refilled meanwhile")

	require.Equal(t, "rules_unknown", newcomer.Deciding())
	require.Equal(t, 1.0, newcomer.Metric("caddy_rate_limit_ignorant"))
	require.Contains(t, newcomer.AdminGet("/rate_limit/explain?tenant=shop-a&route=api"), `"source": "local"`)
	out, err := newcomer.Command("rate-limit", "status", "--address", newcomer.Admin).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "local, because of rules unknown")
	gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(newcomer.Log(), alone) })
	require.Equal(t, "shared", healthy.Deciding())
	require.Zero(t, healthy.Metric("caddy_rate_limit_ignorant"))

	postgres.Restart(t)
	gateway.Eventually(t, 20*time.Second, "it has learned the rules", func() bool { return newcomer.Get("/", "shop-a").Source() == "redis" })
	require.GreaterOrEqual(t, newcomer.Get("/", "shop-a").Remaining(), 99_900)
	gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(newcomer.Log(), together) })
	require.Equal(t, "shared", newcomer.Deciding())
	require.Zero(t, newcomer.Metric("caddy_rate_limit_ignorant"))
	require.Equal(t, []int{1, 1}, []int{strings.Count(newcomer.Log(), alone), strings.Count(newcomer.Log(), together)}, "once each")
	require.NotContains(t, healthy.Log(), alone)

	// Stored rules count as known.
	newcomer.Stop()
	postgres.Stop(t)
	newcomer.Start(file)
	got = newcomer.Get("/", "shop-a")
	require.Equal(t, []any{"redis", 100_000}, []any{got.Source(), got.Field("X-RateLimit-Limit")})
}

// regional is the Caddyfile of one of two gateways in a region.
func regional(redis, rules string) string {
	return strings.Replace(federated("eu", redis, rules), "default 100/s", "default 100/s\ninstances 2", 1)
}

// TestS2IgnorantRegion has a gateway that knows the rules but not its region's
// share, beside one that knows both and has taken a token.
func TestS2IgnorantRegion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state    string
		ignorant func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway.Process
		limit    int // that it tells of, and half of which it gives
	}{
		"unknown": {"share_unknown", func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway.Process {
			t.Helper()
			postgres.Exec(t, `CREATE ROLE gateway LOGIN; GRANT SELECT ON rate_limit_rule TO gateway`)
			return gateway.Start(t, regional(redis, strings.Replace(dsn, "postgres@", "gateway@", 1)))
		}, 1},
		"lapsed": {"share_lapsed", func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway.Process {
			t.Helper()
			link := servertest.NewProxy(t, postgres.Addr)
			g := gateway.Start(t, regional(redis, servertest.PostgresURL(link.Addr(), "")))
			gateway.Eventually(t, 60*time.Second, "the share is known", func() bool { return g.Get("/", "other").Source() == "redis" })
			link.Set(t, servertest.Fault{Refuse: true})
			gateway.Eventually(t, 60*time.Second, "the share has lapsed", func() bool { return g.Metric(`caddy_rate_limit_region_lapsed{region="eu"}`) == 1 })
			return g
		}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := servertest.Redis(t), servertest.Postgres(t)
			postgres.Exec(t, rulecache.Schema("", ""))
			postgres.Exec(t, regions.Schema(""))
			postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 1000, 1)`)
			healthy := gateway.Start(t, regional(redis.URL(), postgres.URL("")))
			gateway.Eventually(t, 30*time.Second, "the region has its share", func() bool { return healthy.Get("/", "other").Field("X-RateLimit-Limit") == 99 })
			require.Equal(t, 991, healthy.Get("/", "shop-a").Remaining())

			ignorant := test.ignorant(t, redis.URL(), postgres.URL(""), postgres)
			before := stored(t, redis, "rl:{shop-a}:api")
			got := ignorant.Get("/", "shop-a")
			require.Equal(t, []any{200, "local", test.limit}, []any{got.Status, got.Source(), got.Field("X-RateLimit-Limit")})
			require.LessOrEqual(t, ignorant.Passes(60, "shop-a"), test.limit/2, "its part of what would be in force")
			require.Equal(t, before, stored(t, redis, "rl:{shop-a}:api"))
			got = healthy.Get("/", "shop-a")
			require.Equal(t, "redis", got.Source())
			require.GreaterOrEqual(t, got.Remaining(), 990)
			require.Equal(t, test.state, ignorant.Deciding())
			require.Equal(t, 1.0, ignorant.Metric("caddy_rate_limit_ignorant"))
			require.Zero(t, healthy.Metric("caddy_rate_limit_ignorant"))
			require.NotContains(t, healthy.Log(), "region auto needs instances")
			gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Count(ignorant.Log(), alone) == 1 })
		})
	}
}

// TestS2ShareGivenBack has a request meet a limit when its config, the last with
// the region's share, is gone, but not the Redis.
func TestS2ShareGivenBack(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.Redis(t), servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema("", ""))
	postgres.Exec(t, regions.Schema(""))
	postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'late', 1000, 1)`)
	arrived, leave := make(chan struct{}, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(leave) })
	defer release()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-leave
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			conn.Close()
		}
	})
	file := func(region string) string {
		return gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 1s\n}\nrules "+postgres.URL("")+"\ndefault 100/s\ninstances 2\nregion eu "+region+"\n}", `
		@late path /late
		handle @late {
			rate_limit late
			header >X-Source {http.rate_limit.source}
			respond "ok"
		}
		reverse_proxy `+to+`
		handle_errors {
			rate_limit late
			header >X-Source {http.rate_limit.source}
			respond "late"
		}`)
	}
	g := gateway.Start(t, file("auto"))
	gateway.Eventually(t, 30*time.Second, "the share is known", func() bool { return g.Get("/late", "shop-a").Field("X-RateLimit-Limit") == 992 })
	answer := make(chan gateway.Reply, 1)
	go func() { answer <- g.Get("/", "shop-a") }()
	<-arrived
	g.Reload(file("0.99"))
	require.Equal(t, "redis", g.Get("/late", "shop-a").Source())
	before := stored(t, redis, "rl:{shop-a}:late")
	release()
	got := <-answer
	require.Equal(t, []string{"late", "local"}, []string{got.Body, got.Source()})
	require.Equal(t, before, stored(t, redis, "rl:{shop-a}:late"))
	require.Equal(t, 990, g.Get("/late", "shop-a").Field("X-RateLimit-Limit"))
}

// TestS4FirstAnswers asks a gateway from the moment on in which it listens, whose
// PostgreSQL is slow: a tenant that is denied gets no other answer.
func TestS4FirstAnswers(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, mode) VALUES ('shop-a', 'api', 1, 1, 'deny')`)
	link := servertest.NewProxy(t, postgres.Addr)
	link.Set(t, servertest.Fault{ReplyDelay: 20 * time.Millisecond})
	for range 3 {
		g := gateway.New(t)
		statuses := make(chan int, 1)
		go func() {
			for {
				if got, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"shop-a"}}); err == nil {
					statuses <- got.Status
					return
				}
				time.Sleep(time.Millisecond) // until somebody listens
			}
		}()
		g.Start(gateway.Site("rate_limit {\nredis "+redis.URL()+"\nrules "+servertest.PostgresURL(link.Addr(), database)+"\ndefault 100/s\n}", gateway.Answers("rate_limit api")))
		require.Equal(t, http.StatusForbidden, <-statuses)
		g.Stop()
	}
}

// TestS5CostAboveTheShare asks for more than a region's share holds, of a limit that
// allows it: it costs the whole share, and passes when that is full. What no region
// could give is refused for good.
func TestS5CostAboveTheShare(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	const handlers = "@two path /two\nrate_limit @two a b {\ncost {header.X-Cost}\n}\n@one path /one\nrate_limit @one api {\ncost {header.X-Cost}\n}\n" +
		"@shadow path /shadow\nrate_limit @shadow shadow {\nshadow\ncost {header.X-Cost}\n}"
	for name, more := range map[string]string{"redis": "redis " + redis.URL() + " {\ntimeout 5s\n}", "memory": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gateway.Start(t, gateway.Site("rate_limit {\nrule * b 20/1000s\ndefault 10/1000s\nregion eu 0.5\n"+more+"\n}", gateway.Answers(handlers)))
			ask := func(path, cost string) gateway.Reply {
				return g.Send(http.MethodGet, path, http.Header{"X-Api-Key": {"shop-a"}, "X-Cost": {cost}})
			}
			gateway.Eventually(t, 10*time.Second, "it is foreseen", func() bool { // HTTP serves a moment before the configuration is the active one
				return strings.Contains(g.AdminGet("/rate_limit/explain?tenant=shop-a&route=api&cost=8"), `"outcome": "granted"`)
			})
			for _, path := range []string{"/one", "/two"} {
				never := ask(path, "11")
				require.Equal(t, http.StatusTooManyRequests, never.Status)
				require.Empty(t, never.Header.Get("Retry-After"), "no region gives that")
				got := ask(path, "8")
				require.Equal(t, []int{http.StatusOK, 0}, []int{got.Status, got.Remaining()}, path)
				got = ask(path, "8")
				require.Equal(t, http.StatusTooManyRequests, got.Status)
				require.InDelta(t, 1000, got.Field("Retry-After"), 100, "until the share is full")
				if path == "/one" {
					continue
				}
				got = g.Send(http.MethodGet, "/two", http.Header{"X-Api-Key": {"shop-b"}, "X-Cost": {"3"}})
				require.Equal(t, []int{http.StatusOK, 2}, []int{got.Status, got.Remaining()}, "a cost within the shares is as it was")
			}
			require.Equal(t, http.StatusOK, ask("/shadow", "8").Status)
			require.Equal(t, 1.0, g.Metric(`caddy_rate_limit_requests_total{outcome="granted",source="`+map[string]string{"redis": "redis", "memory": "local"}[name]+`",zone="shadow"}`))
		})
	}
}

// TestS5JoiningRegion asks a region that joins, and so gives next to nothing yet, for
// most of a limit: it passes when what is given is there.
func TestS5JoiningRegion(t *testing.T) {
	t.Parallel()
	f := startFederation(t, "eu")
	f.awaitShare(t, "eu", "the first region has all there is", func(share float64) bool { return share > 0.99 })
	f.join(t, "us")
	got := f.gateways["us"].Get("/", "shop-a")
	t.Logf("us gives %d of 100", got.Field("X-RateLimit-Limit"))
	require.Contains(t, f.gateways["us"].Log(), "region auto needs instances")
	file := strings.Replace(federated("us", servertest.Redis(t).URL(), f.postgres.URL("")), "rate_limit api", "rate_limit api {\ncost 80\n}", 1)
	f.gateways["us"].Reload(file)
	got = f.gateways["us"].Get("/", "shop-b")
	require.Equal(t, []int{http.StatusOK, 0}, []int{got.Status, got.Remaining()}, "limit %s", got.Header.Get("X-RateLimit-Limit"))
}

// TestS5SteadyShares offers the same demand, 80 to 20, for half a minute. The shares
// find it, and stay there.
func TestS5SteadyShares(t *testing.T) {
	t.Parallel()
	atLeast := time.Duration(0)
	if servertest.Thorough(t, "half a minute of steady demand instead of until the shares have found it") {
		atLeast = 30 * time.Second
	}
	f := startFederation(t, "eu", "us")
	for _, name := range []string{"eu", "us"} {
		f.awaitShare(t, name, "both have a share", func(share float64) bool { return share > 0.4 && share < 0.6 })
	}
	targets, last, sum, looks := 0, 0, 0.0, 0
	began := time.Now()
	_, took := f.offer(t, map[string]int{"eu": 80, "us": 20}, func() bool {
		now := f.postgres.QueryInt(t, `SELECT targets[1] FROM rate_limit_region_share WHERE tenant_id = '*' AND route_id = '*'`)
		if last != 0 && now != last {
			targets++
			t.Logf("target %d after %v", now, time.Since(began).Round(time.Second))
		}
		last = now
		sum, looks = sum+f.share("eu")+f.share("us"), looks+1
		return time.Since(began) > atLeast && f.share("eu") > 0.72
	})
	t.Logf("%d targets in %v, shares sum to %.3f on average, eu has %.3f", targets, took, sum/float64(looks), f.share("eu"))
	require.LessOrEqual(t, targets, 2)
	require.InDelta(t, 0.8, f.share("eu"), 0.08)
}
