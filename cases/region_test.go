package cases_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// TestRegionShare scales a limit wherever it comes from, in Redis and in memory,
// and tells clients of what is in force here.
func TestRegionShare(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.Redis(t), servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema("", ""))
	postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('row', 'a', 10, 0.001)`)
	global := func(more string) string {
		return "rate_limit {\nrule static a 1/1000s burst 7\nrule log a 10/1000s algorithm sliding_window_log\nrule one a 1/1000s\ndefault 1/1000s burst 9\nregion eu 0.7\n" + more + "\n}"
	}
	const handlers = "@own path /own\nrate_limit @own own {\nlimit 1/1000s burst 6\n}\n@a path /\nrate_limit @a a"
	for name, more := range map[string]string{
		"redis":    "redis " + redis.URL() + " {\ntimeout 5s\n}\nrules " + postgres.URL("") + " {\nrefresh 1s\n}",
		"memory":   "rules " + postgres.URL("") + " {\nrefresh 1s\n}",
		"fallback": "redis redis://" + servertest.FreeAddr(t) + "\nrules " + postgres.URL("") + "\ninstances 2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gateway.Start(t, gateway.Site(global(more), gateway.Answers(handlers)))
			gateway.Eventually(t, 10*time.Second, "the rules are known", func() bool { return g.Metric("caddy_rate_limit_rules") == 1 })
			require.Equal(t, 0.7, g.Metric(`caddy_rate_limit_region_share{region="eu"}`))
			require.Contains(t, g.AdminGet("/rate_limit/status"), `"state": "given"`)
			explained := g.AdminGet("/rate_limit/explain?tenant=row&route=a")
			require.Contains(t, explained, `"region_share": 0.7`)
			require.Contains(t, explained, `"capacity": 7`)
			require.Contains(t, explained, `"capacity": 10`, "the whole rule, among the candidates")
			for _, test := range []struct {
				path, tenant string
				limit        int
			}{{"/", "row", 7}, {"/", "static", 4}, {"/", "log", 7}, {"/", "one", 1}, {"/", "other", 6}, {"/own", "t", 4}} {
				passed := 0
				for range 12 {
					got := g.Get(test.path, test.tenant)
					require.Equal(t, test.limit, got.Field("X-RateLimit-Limit"), test.tenant)
					if got.Status == http.StatusOK {
						passed++
					}
				}
				want := test.limit
				if name == "fallback" {
					want = max(1, test.limit/2)
				}
				require.Equal(t, want, passed, test.tenant)
			}
		})
	}
}

// federation is two regions, each with a Redis and a gateway of its own, and one
// PostgreSQL with rules and shares.
type federation struct {
	postgres *servertest.PostgresServer
	links    map[string]*servertest.Proxy // to PostgreSQL, by region
	gateways map[string]*gateway.Process
}

func startFederation(t *testing.T, names ...string) *federation {
	t.Helper()
	f := &federation{postgres: servertest.Postgres(t), links: map[string]*servertest.Proxy{}, gateways: map[string]*gateway.Process{}}
	f.postgres.Exec(t, rulecache.Schema("", ""))
	f.postgres.Exec(t, regions.Schema(""))
	f.postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('*', '*', 100, 100)`)
	for _, name := range names {
		f.join(t, name)
	}
	return f
}

func (f *federation) join(t *testing.T, name string) {
	t.Helper()
	f.links[name] = servertest.NewProxy(t, f.postgres.Addr)
	f.gateways[name] = gateway.Start(t, federated(name, servertest.Redis(t).URL(), servertest.PostgresURL(f.links[name].Addr(), "")))
}

// federated is the Caddyfile of a gateway in a region.
func federated(name, redis, rules string) string {
	return gateway.Site(`rate_limit {
		redis `+redis+` {
			timeout 1s
		}
		rules `+rules+` {
			refresh 1s
		}
		default 100/s
		region `+name+` auto {
			rebalance 10s
			valid     10s
		}
	}`, gateway.Answers("rate_limit api"))
}

func (f *federation) share(name string) float64 {
	return f.gateways[name].Metric(`caddy_rate_limit_region_share{region="` + name + `"}`)
}

func (f *federation) awaitShare(t *testing.T, name, what string, ok func(float64) bool) {
	t.Helper()
	gateway.Eventually(t, 60*time.Second, what, func() bool { return ok(f.share(name)) })
	t.Logf("%s: the share of %s is %.3f", what, name, f.share(name))
}

// offer sends as many requests a second to each region, for as long as it is asked
// to, as one tenant, and returns how many passed in all and how long it took. It waits
// for no answer before it sends the next request, so that demand is what it says also
// where answers are slow.
func (f *federation) offer(t *testing.T, perSecond map[string]int, until func() bool) (passed int, took time.Duration) {
	t.Helper()
	var granted atomic.Int64
	var wait sync.WaitGroup
	done := make(chan struct{})
	began := time.Now()
	for name, n := range perSecond {
		wait.Go(func() {
			ticker := time.NewTicker(time.Second / time.Duration(n))
			defer ticker.Stop()
			for sent := 0; ; {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				for ; sent < int(time.Since(began).Seconds()*float64(n)); sent++ {
					wait.Go(func() {
						if f.gateways[name].Get("/", "shop-a").Status == http.StatusOK {
							granted.Add(1)
						}
					})
				}
			}
		})
	}
	for deadline := began.Add(2 * time.Minute); !until() && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	close(done)
	wait.Wait()
	return int(granted.Load()), time.Since(began)
}

// TestRegionsFollowDemand has 70 % of the demand in one region, and then in the
// other. The sum of what both admit stays within the limit, and what each move of
// shares may let through once.
func TestRegionsFollowDemand(t *testing.T) {
	t.Parallel()
	demands := []float64{0.7, 0.3}
	all := servertest.Thorough(t, "the demand that moves to the other region, a limit with shares of its own, a region that is cut off")
	if !all {
		demands = demands[:1]
	}
	f := startFederation(t, "eu")
	f.awaitShare(t, "eu", "the first region has all there is", func(share float64) bool { return share > 0.99 })
	f.join(t, "us")
	f.awaitShare(t, "us", "the second has as much, as nothing is asked", func(share float64) bool { return share >= 0.05 })
	require.InDelta(t, 0.496, f.share("eu"), 1e-9)

	settled := func(eu float64) func() bool {
		return func() bool { return f.share("eu") > eu-0.08 && f.share("eu") < eu+0.08 && f.share("us") > 0.9-eu }
	}
	moves := 0.0
	for _, eu := range demands {
		before := f.share("us")
		passed, took := f.offer(t, map[string]int{"eu": int(eu * 200), "us": int((1 - eu) * 200)}, settled(eu))
		require.True(t, settled(eu)(), "eu has %.3f, us %.3f", f.share("eu"), f.share("us"))
		moved := f.share("us") - before
		moves += max(moved, -moved)
		allowed := 100 + 100*took.Seconds() + 100*moves
		t.Logf("demand %.0f/%.0f: shares %.3f/%.3f after %v, %d passed of %.0f allowed", 100*eu, 100*(1-eu), f.share("eu"), f.share("us"), took.Round(time.Second), passed, allowed)
		require.LessOrEqual(t, float64(passed), allowed)
	}
	require.LessOrEqual(t, f.share("eu")+f.share("us"), 1.0)
	for name, g := range f.gateways {
		got := g.Get("/", "another")
		require.Equal(t, int(100*f.share(name)), got.Field("X-RateLimit-Limit"), name)
	}
	if !all {
		return
	}
	f.ownShare(t)
	f.cutOff(t)
}

// ownShare: demand for one limit alone may be elsewhere. It has a share of its own then.
func (f *federation) ownShare(t *testing.T) {
	t.Helper()
	f.offer(t, map[string]int{"eu": 60, "us": 140}, func() bool {
		for range 20 {
			f.gateways["eu"].Get("/", "shop-eu")
		}
		return f.gateways["eu"].Get("/", "shop-eu").Field("X-RateLimit-Limit") > 60
	})
	require.Greater(t, f.gateways["eu"].Get("/", "shop-eu").Field("X-RateLimit-Limit"), 60)
	require.Less(t, f.gateways["us"].Get("/", "shop-eu").Field("X-RateLimit-Limit"), 40)
}

// cutOff: a region that is cut off gives its safe share in the end, and the other may
// have the rest not before that is certain.
func (f *federation) cutOff(t *testing.T) {
	t.Helper()
	f.links["us"].Set(t, servertest.Fault{Refuse: true})
	cut := time.Now()
	f.offer(t, map[string]int{"eu": 150}, func() bool { return f.share("us") <= 0.05 })
	require.InDelta(t, 0.05, f.share("us"), 1e-9)
	gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(f.gateways["us"].Log(), "the safe share is in force") })
	f.offer(t, map[string]int{"eu": 150}, func() bool { return f.share("eu") > 0.9 })
	t.Logf("eu has %.3f %v after us was cut off", f.share("eu"), time.Since(cut).Round(time.Second))
	require.Greater(t, f.share("eu"), 0.9)
	require.Greater(t, time.Since(cut), 20*time.Second)
	f.links["us"].Set(t, servertest.Fault{})
	gateway.Eventually(t, 20*time.Second, "us is back", func() bool { return strings.Contains(f.gateways["us"].Log(), "the shares can be read again") })
	gateway.Eventually(t, 20*time.Second, "us gives what is left", func() bool {
		share := f.share("us")
		return share < 0.1 && f.gateways["us"].Get("/", "another").Field("X-RateLimit-Limit") == int(100*share)
	})
}

// TestRegionWithoutTables serves on next to nothing, says why once, and recovers.
func TestRegionWithoutTables(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema("", ""))
	postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('*', '*', 100, 100)`)
	postgres.Exec(t, `CREATE ROLE gateway LOGIN; GRANT SELECT ON rate_limit_rule TO gateway`)
	dsn := strings.Replace(postgres.URL(""), "postgres@", "gateway@", 1)
	g := gateway.Start(t, federated("eu", servertest.Redis(t).URL(), dsn))
	got := g.Get("/", "t")
	require.Equal(t, http.StatusOK, got.Status)
	require.Equal(t, 1, got.Field("X-RateLimit-Limit"), "next to nothing")
	require.Equal(t, http.StatusTooManyRequests, g.Get("/", "t").Status)
	require.Contains(t, g.AdminGet("/rate_limit/status"), `"state": "unknown"`)
	const lost = "the shares cannot be read"
	gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(g.Log(), lost) })
	require.Contains(t, g.Log(), "the tables of the regions' shares do not exist: the SQL that `caddy rate-limit schema --regions` prints makes them (SQLSTATE 42P01)")
	require.Contains(t, g.Log(), "caddy rate-limit schema --regions")
	require.Equal(t, 1, strings.Count(g.Log(), lost))
	require.Equal(t, 1.0, g.Metric(`caddy_rate_limit_state_changes_total{event="rate_limit_shares_unknown"}`))

	postgres.Exec(t, regions.Schema(""))
	gateway.Eventually(t, 20*time.Second, "the right is missing", func() bool { return strings.Contains(g.Log(), "permission denied (SQLSTATE 42501)") })
	for _, table := range []string{"", "_books", "_share", "_gateway", "_demand"} {
		postgres.Exec(t, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limit_region%s TO gateway", table))
	}
	gateway.Eventually(t, 30*time.Second, "it is given its share", func() bool { return g.Get("/", "u").Field("X-RateLimit-Limit") == 99 })
	for range 50 {
		require.Equal(t, http.StatusOK, g.Get("/", "v").Status)
	}

	// A restart without PostgreSQL finds the safe share.
	g.Stop()
	postgres.Stop(t)
	g.Start(federated("eu", servertest.Redis(t).URL(), dsn))
	gateway.Eventually(t, 10*time.Second, "it is said", func() bool { return strings.Contains(g.Log(), "the safe share of an earlier run is in force") })
	require.Equal(t, 0.05, g.Metric(`caddy_rate_limit_region_share{region="eu"}`))
	require.NotContains(t, g.Log(), `"status":500`)
}

// TestRegionCountsNoCostOverTheLimit lets a client that makes up its cost draw no
// shares to its region: what no region could grant is no demand.
func TestRegionCountsNoCostOverTheLimit(t *testing.T) {
	t.Parallel()
	f := startFederation(t)
	g := gateway.Start(t, strings.Replace(federated("eu", servertest.Redis(t).URL(), f.postgres.URL("")),
		"rate_limit api", "rate_limit api {\ncost {header.X-Cost}\n}", 1))
	f.gateways["eu"] = g
	f.awaitShare(t, "eu", "it has all there is", func(share float64) bool { return share > 0.99 })
	ask := func(cost string) int {
		return g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"t"}, "X-Cost": {cost}}).Status
	}
	for range 5 {
		require.Equal(t, http.StatusTooManyRequests, ask("2147483647"))
	}
	require.Equal(t, http.StatusOK, ask("90"))
	gateway.Eventually(t, 30*time.Second, "the demand is told", func() bool {
		return f.postgres.QueryInt(t, `SELECT count(*) FROM rate_limit_region_demand WHERE tenant_id <> '*'`) > 0
	})
	require.LessOrEqual(t, f.postgres.QueryInt(t, `SELECT sum(units) FROM rate_limit_region_demand WHERE route_id <> '~elapsed'`), 90)
	require.Contains(t, g.AdminGet("/rate_limit/status"), `"state": "measured"`)
}

// TestRegionReloads keeps the shares over a reload, and leaves nothing behind.
func TestRegionReloads(t *testing.T) {
	t.Parallel()
	f := startFederation(t, "eu")
	f.awaitShare(t, "eu", "the share is known", func(share float64) bool { return share > 0.99 })
	g := f.gateways["eu"]
	file := federated("eu", servertest.Redis(t).URL(), servertest.PostgresURL(f.links["eu"].Addr(), ""))
	g.Reload(file)
	before := g.Goroutines()
	for range 5 {
		g.Reload(file)
		require.Equal(t, 99, g.Get("/", "t").Field("X-RateLimit-Limit"))
		status, _ := g.Load(strings.Replace(file, "eu auto", "e/u auto", 1))
		require.Equal(t, http.StatusBadRequest, status)
	}
	require.LessOrEqual(t, g.Goroutines(), before+2)
	require.Equal(t, 1, f.postgres.QueryInt(t, `SELECT count(*) FROM rate_limit_region_gateway`))
	g.Stop()
	require.Zero(t, f.postgres.QueryInt(t, `SELECT count(*) FROM rate_limit_region_gateway`), "it has said good-bye")
}

// TestRegionsRebalanceCommand is for cron.
func TestRegionsRebalanceCommand(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t)
	g := gateway.New(t, "RULES_URL="+postgres.URL(""))
	out, err := g.Command("rate-limit", "schema", "--regions").Output()
	require.NoError(t, err)
	require.Equal(t, regions.Schema(""), string(out))
	rebalance := func(args ...string) (string, error) {
		out, err := g.Command(append([]string{"rate-limit", "regions", "rebalance"}, args...)...).CombinedOutput()
		return string(out), err
	}
	text, err := rebalance("--dsn", "{env.RULES_URL}")
	require.Error(t, err)
	require.Contains(t, text, "the tables of the regions' shares do not exist: the SQL that `caddy rate-limit schema --regions` prints makes them (SQLSTATE 42P01)")
	postgres.PSQL(t, string(out))
	postgres.Exec(t, `INSERT INTO rate_limit_region (name, slot) VALUES ('eu', 1), ('us', 2)`)
	text, err = rebalance("--dsn", "{env.RULES_URL}", "--wait", "10s")
	require.NoError(t, err, text)
	require.Contains(t, text, "all limits  eu  share 0.4960  on its way to 0.4960  held 0.4960")
	require.Contains(t, text, "1 limits changed, 0 wait for gateways to read")
	for _, args := range [][]string{{}, {"--dsn", "{env.NO_SUCH}"}, {"--dsn", "mysql://x"}, {"--dsn", "{env.RULES_URL}", "--wait", "-1s"}} {
		text, err := rebalance(args...)
		require.Error(t, err, args)
		require.NotContains(t, text, "panic", args)
	}
}
