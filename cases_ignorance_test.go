package ratelimit_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// Log lines about knowledge.
const (
	alone    = "this gateway decides by itself"
	together = "the gateways decide together"
)

// stored returns all that Redis holds of a bucket.
func stored(t *testing.T, redis *servertest.RedisServer, key string) map[string]string {
	t.Helper()
	fields, err := redis.Client(t).HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.NotEmpty(t, fields, key)
	return fields
}

// deciding is what the status tells of by whom is decided.
func (g *gateway) deciding() string {
	g.t.Helper()
	var status struct {
		Deciding string `json:"deciding"`
	}
	require.NoError(g.t, json.Unmarshal([]byte(g.adminGet("/rate_limit/status")), &status))
	return status.Deciding
}

// TestS1IgnorantNewcomer starts a gateway that finds neither PostgreSQL nor stored
// rules beside one that has drained a token of a large bucket. The newcomer gives
// its part of the default, and what Redis holds stays.
func TestS1IgnorantNewcomer(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 100000, 1)`)
	file := site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL(database)+" {\nrefresh 1s\n}\ndefault 1/1000s burst 5\ninstances 2\nfallback deny\n}",
		answers("rate_limit api"))
	healthy := startGateway(t, file)
	require.Equal(t, 99_999, healthy.get("/", "shop-a").remaining())
	before := stored(t, redis, "rl:{shop-a}:api")
	postgres.Stop(t)

	newcomer := startGateway(t, file)
	for _, left := range []int{1, 0} {
		got := newcomer.get("/", "shop-a")
		require.Equal(t, []any{200, "local", 5, left}, []any{got.status, got.source(), got.field("X-RateLimit-Limit"), got.remaining()},
			"its part of the default")
	}
	require.Equal(t, http.StatusTooManyRequests, newcomer.get("/", "shop-a").status)
	require.Equal(t, 200, newcomer.get("/", "another").status)
	require.Equal(t, before, stored(t, redis, "rl:{shop-a}:api"))
	require.Equal(t, []string{"rl:{shop-a}:api"}, redis.Client(t).Keys(t.Context(), "*").Val(), "nothing else is written")
	got := healthy.get("/", "shop-a")
	require.Equal(t, "redis", got.source())
	require.GreaterOrEqual(t, got.remaining(), 99_998, "and what it has refilled meanwhile")

	require.Equal(t, "rules_unknown", newcomer.deciding())
	require.Equal(t, 1.0, newcomer.metric("caddy_rate_limit_ignorant"))
	require.Contains(t, newcomer.adminGet("/rate_limit/explain?tenant=shop-a&route=api"), `"source": "local"`)
	out, err := newcomer.command("rate-limit", "status", "--address", newcomer.admin).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "local, because of rules unknown")
	eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(newcomer.log(), alone) })
	require.Equal(t, "shared", healthy.deciding())
	require.Zero(t, healthy.metric("caddy_rate_limit_ignorant"))

	postgres.Restart(t)
	eventually(t, 20*time.Second, "it has learned the rules", func() bool { return newcomer.get("/", "shop-a").source() == "redis" })
	require.GreaterOrEqual(t, newcomer.get("/", "shop-a").remaining(), 99_900)
	eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(newcomer.log(), together) })
	require.Equal(t, "shared", newcomer.deciding())
	require.Zero(t, newcomer.metric("caddy_rate_limit_ignorant"))
	require.Equal(t, []int{1, 1}, []int{strings.Count(newcomer.log(), alone), strings.Count(newcomer.log(), together)}, "once each")
	require.NotContains(t, healthy.log(), alone)

	// Stored rules count as known.
	newcomer.stop()
	postgres.Stop(t)
	newcomer.start(file)
	got = newcomer.get("/", "shop-a")
	require.Equal(t, []any{"redis", 100_000}, []any{got.source(), got.field("X-RateLimit-Limit")})
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
		ignorant func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway
		limit    int // that it tells of, and half of which it gives
	}{
		"unknown": {"share_unknown", func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway {
			t.Helper()
			postgres.Exec(t, `CREATE ROLE gateway LOGIN; GRANT SELECT ON rate_limit_rule TO gateway`)
			return startGateway(t, regional(redis, strings.Replace(dsn, "postgres@", "gateway@", 1)))
		}, 1},
		"lapsed": {"share_lapsed", func(t *testing.T, redis, dsn string, postgres *servertest.PostgresServer) *gateway {
			t.Helper()
			link := servertest.NewProxy(t, postgres.Addr)
			g := startGateway(t, regional(redis, servertest.PostgresURL(link.Addr(), "")))
			eventually(t, 60*time.Second, "the share is known", func() bool { return g.get("/", "other").source() == "redis" })
			link.Set(t, servertest.Fault{Refuse: true})
			eventually(t, 60*time.Second, "the share has lapsed", func() bool { return g.metric(`caddy_rate_limit_region_lapsed{region="eu"}`) == 1 })
			return g
		}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := servertest.Redis(t), servertest.Postgres(t)
			postgres.Exec(t, rulecache.Schema("", ""))
			postgres.Exec(t, regions.Schema(""))
			postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 1000, 1)`)
			healthy := startGateway(t, regional(redis.URL(), postgres.URL("")))
			eventually(t, 30*time.Second, "the region has its share", func() bool { return healthy.get("/", "other").field("X-RateLimit-Limit") == 99 })
			require.Equal(t, 991, healthy.get("/", "shop-a").remaining())

			ignorant := test.ignorant(t, redis.URL(), postgres.URL(""), postgres)
			before := stored(t, redis, "rl:{shop-a}:api")
			got := ignorant.get("/", "shop-a")
			require.Equal(t, []any{200, "local", test.limit}, []any{got.status, got.source(), got.field("X-RateLimit-Limit")})
			require.LessOrEqual(t, ignorant.passes(60, "shop-a"), test.limit/2, "its part of what would be in force")
			require.Equal(t, before, stored(t, redis, "rl:{shop-a}:api"))
			got = healthy.get("/", "shop-a")
			require.Equal(t, "redis", got.source())
			require.GreaterOrEqual(t, got.remaining(), 990)
			require.Equal(t, test.state, ignorant.deciding())
			require.Equal(t, 1.0, ignorant.metric("caddy_rate_limit_ignorant"))
			require.Zero(t, healthy.metric("caddy_rate_limit_ignorant"))
			require.NotContains(t, healthy.log(), "instances is missing")
			eventually(t, 10*time.Second, "it is said", func() bool { return strings.Count(ignorant.log(), alone) == 1 })
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
		return site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 1s\n}\nrules "+postgres.URL("")+"\ndefault 100/s\ninstances 2\nregion eu "+region+"\n}", `
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
	g := startGateway(t, file("auto"))
	eventually(t, 30*time.Second, "the share is known", func() bool { return g.get("/late", "shop-a").field("X-RateLimit-Limit") == 992 })
	answer := make(chan reply, 1)
	go func() { answer <- g.get("/", "shop-a") }()
	<-arrived
	g.reload(file("0.99"))
	require.Equal(t, "redis", g.get("/late", "shop-a").source())
	before := stored(t, redis, "rl:{shop-a}:late")
	release()
	got := <-answer
	require.Equal(t, []string{"late", "local"}, []string{got.body, got.source()})
	require.Equal(t, before, stored(t, redis, "rl:{shop-a}:late"))
	require.Equal(t, 990, g.get("/late", "shop-a").field("X-RateLimit-Limit"))
}

// exits is how often TestS3GoodBye stops a gateway: Caddy stops its apps in an order
// of chance. RATELIMIT_EXITS says otherwise; 20 are enough to be sure.
func exits(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("RATELIMIT_EXITS"))
	if err != nil {
		return 4
	}
	return n
}

// TestS3GoodBye stops gateways under load. Until the last answer, all are what they
// were before, and the last refusals are counted.
func TestS3GoodBye(t *testing.T) {
	t.Parallel()
	for name, region := range map[string]string{"whole": "", "region": "region eu auto"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := servertest.Redis(t), servertest.Postgres(t)
			postgres.Exec(t, rulecache.Schema("", ""))
			postgres.Exec(t, regions.Schema(""))
			postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 1000000, 1)`)
			file := strings.Replace(site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL("")+
				"\ndefault 1/1000s burst 100\ninstances 1\nfallback deny\n"+region+"\n}", answers("rate_limit api")), "auto_https off", "auto_https off\nshutdown_delay 1s", 1)
			for range exits(t) {
				require.NoError(t, redis.Client(t).FlushAll(t.Context()).Err())
				g := startGateway(t, file)
				var first reply
				eventually(t, 30*time.Second, "Redis decides by the rule", func() bool {
					first = g.get("/", "shop-a")
					return first.source() == "redis" && first.field("X-RateLimit-Limit") > 900_000
				})
				g.passes(100, "over")
				goodBye(t, g, first.field("X-RateLimit-Limit"))
			}
		})
	}
}

// goodBye stops the gateway while three clients ask as shop-a and one as a tenant
// that is over its limit.
func goodBye(t *testing.T, g *gateway, limit int) {
	t.Helper()
	var refused, after atomic.Int64
	var stopping atomic.Bool
	var clients sync.WaitGroup
	for i := range 4 {
		tenant := "shop-a"
		if i == 0 {
			tenant = "over"
		}
		clients.Go(func() {
			for {
				late := stopping.Load()
				got, err := g.try(http.MethodGet, "/", http.Header{"X-Api-Key": {tenant}})
				if err != nil {
					return // it serves no more
				}
				if late {
					after.Add(1)
				}
				if tenant == "over" {
					if got.status == http.StatusTooManyRequests {
						refused.Add(1)
					}
					continue
				}
				if got.status != http.StatusOK || got.source() != "redis" || got.field("X-RateLimit-Limit") != limit {
					t.Errorf("stopping %v: status %d from %s, limit %d instead of %d", late, got.status, got.source(), got.field("X-RateLimit-Limit"), limit)
					return
				}
			}
		})
	}
	eventually(t, 10*time.Second, "refusals come", func() bool { return refused.Load() > 10 })
	stopping.Store(true)
	require.NoError(t, g.cmd.Process.Signal(syscall.SIGTERM))
	clients.Wait()
	g.stop()
	require.Greater(t, after.Load(), int64(10), "it has served on")
	require.GreaterOrEqual(t, loggedRefusals(t, g), refused.Load())
}

// loggedRefusals sums what the log tells of refusals.
func loggedRefusals(t *testing.T, g *gateway) (sum int64) {
	t.Helper()
	for line := range strings.SplitSeq(g.log(), "\n") {
		var entry struct {
			Message string `json:"msg"`
			Refused int64  `json:"refused"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		switch entry.Message {
		case "rate limit exceeded":
			sum++
		case "rate limit exceeded again", "rate limit exceeded by others":
			sum += entry.Refused
		}
	}
	return sum
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
		g := newGateway(t)
		statuses := make(chan int, 1)
		go func() {
			for {
				if got, err := g.try(http.MethodGet, "/", http.Header{"X-Api-Key": {"shop-a"}}); err == nil {
					statuses <- got.status
					return
				}
				time.Sleep(time.Millisecond) // until somebody listens
			}
		}()
		g.start(site("rate_limit {\nredis "+redis.URL()+"\nrules "+servertest.PostgresURL(link.Addr(), database)+"\ndefault 100/s\n}", answers("rate_limit api")))
		require.Equal(t, http.StatusForbidden, <-statuses)
		g.stop()
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
			g := startGateway(t, site("rate_limit {\nrule * b 20/1000s\ndefault 10/1000s\nregion eu 0.5\n"+more+"\n}", answers(handlers)))
			ask := func(path, cost string) reply {
				return g.send(http.MethodGet, path, http.Header{"X-Api-Key": {"shop-a"}, "X-Cost": {cost}})
			}
			eventually(t, 10*time.Second, "it is foreseen", func() bool { // HTTP serves a moment before the configuration is the active one
				return strings.Contains(g.adminGet("/rate_limit/explain?tenant=shop-a&route=api&cost=8"), `"outcome": "granted"`)
			})
			for _, path := range []string{"/one", "/two"} {
				never := ask(path, "11")
				require.Equal(t, http.StatusTooManyRequests, never.status)
				require.Empty(t, never.header.Get("Retry-After"), "no region gives that")
				got := ask(path, "8")
				require.Equal(t, []int{http.StatusOK, 0}, []int{got.status, got.remaining()}, path)
				got = ask(path, "8")
				require.Equal(t, http.StatusTooManyRequests, got.status)
				require.InDelta(t, 1000, got.field("Retry-After"), 100, "until the share is full")
				if path == "/one" {
					continue
				}
				got = g.send(http.MethodGet, "/two", http.Header{"X-Api-Key": {"shop-b"}, "X-Cost": {"3"}})
				require.Equal(t, []int{http.StatusOK, 2}, []int{got.status, got.remaining()}, "a cost within the shares is as it was")
			}
			require.Equal(t, http.StatusOK, ask("/shadow", "8").status)
			require.Equal(t, 1.0, g.metric(`caddy_rate_limit_requests_total{outcome="granted",source="`+map[string]string{"redis": "redis", "memory": "local"}[name]+`",zone="shadow"}`))
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
	got := f.gateways["us"].get("/", "shop-a")
	t.Logf("us gives %d of 100", got.field("X-RateLimit-Limit"))
	require.Contains(t, f.gateways["us"].log(), "with region auto, instances is missing")
	file := strings.Replace(federated("us", servertest.Redis(t).URL(), f.postgres.URL("")), "rate_limit api", "rate_limit api {\ncost 80\n}", 1)
	f.gateways["us"].reload(file)
	got = f.gateways["us"].get("/", "shop-b")
	require.Equal(t, []int{http.StatusOK, 0}, []int{got.status, got.remaining()}, "limit %s", got.header.Get("X-RateLimit-Limit"))
}

// TestS5SteadyShares offers the same demand, 80 to 20, for half a minute. The shares
// find it, and stay there.
func TestS5SteadyShares(t *testing.T) {
	t.Parallel()
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
		return time.Since(began) > 30*time.Second
	})
	t.Logf("%d targets in %v, shares sum to %.3f on average, eu has %.3f", targets, took, sum/float64(looks), f.share("eu"))
	require.LessOrEqual(t, targets, 2)
	require.InDelta(t, 0.8, f.share("eu"), 0.08)
}
