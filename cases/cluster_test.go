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
	"github.com/caddygate/ratelimit/rulecache"
)

// cluster is the gateway of the README, several times, on one Redis and one
// PostgreSQL.
type cluster struct {
	redis    *servertest.RedisServer
	postgres *servertest.PostgresServer
	database string
	gateways []*gateway.Process
}

// gatewayFile is the Caddyfile of each gateway.
func gatewayFile(redis, rules, timeout, listen string, to string) string {
	return gateway.Site(`rate_limit {
		redis `+redis+` {
			timeout `+timeout+`
		}
		rules `+rules+` {
			refresh 1s
			listen `+listen+`
		}
		default 1/1000s burst 5
		instances 2
	}`, "rate_limit /orders create-order\nheader >X-Source {http.rate_limit.source}\nreverse_proxy "+to)
}

func startCluster(t *testing.T, n int, timeout, listen string) *cluster {
	t.Helper()
	c := &cluster{redis: servertest.Redis(t), postgres: servertest.Postgres(t)}
	c.database = c.postgres.CreateDatabase(t)
	c.sql(t, rulecache.Schema(rulecache.DefaultTable, rulecache.DefaultChannel))
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "order taken") })
	for range n {
		c.gateways = append(c.gateways, gateway.Start(t,
			gatewayFile(c.redis.URL(), c.postgres.URL(c.database), timeout, listen, to)))
	}
	return c
}

func (c *cluster) sql(t *testing.T, sql string, arguments ...any) {
	t.Helper()
	c.postgres.ExecIn(t, c.database, sql, arguments...)
}

func (c *cluster) rule(t *testing.T, tenant, route string, capacity, refill int) {
	t.Helper()
	c.sql(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ($1, $2, $3, $4)`,
		tenant, route, capacity, refill)
}

// awaitRules waits until every gateway knows n rules.
func (c *cluster) awaitRules(t *testing.T, n float64) {
	t.Helper()
	for _, g := range c.gateways {
		gateway.Eventually(t, 5*time.Second, "the rules are known", func() bool { return g.Metric("caddy_rate_limit_rules") == n })
	}
}

// TestFirstRun is the first thing that a user of the whole does.
func TestFirstRun(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, "5s", "on")
	c.rule(t, "shop-a", "create-order", 2, 1)
	c.rule(t, "shop-b", "create-order", 200, 100)
	c.awaitRules(t, 2)
	order := func(i int, tenant string) gateway.Reply {
		return c.gateways[i%2].Send(http.MethodPost, "/orders", http.Header{"X-Api-Key": {tenant}})
	}
	for i, want := range []struct{ status, remaining int }{{200, 1}, {200, 0}, {429, 0}} {
		got := order(i, "shop-a")
		require.Equal(t, want.status, got.Status, i)
		require.Equal(t, want.remaining, got.Remaining(), i)
		require.Equal(t, 2, got.Field("X-RateLimit-Limit"))
		if want.status == 429 {
			require.Equal(t, 1, got.Field("Retry-After"))
		}
	}
	require.Equal(t, "order taken", order(0, "shop-b").Body)
	client := c.redis.Client(t)
	stored, err := client.HGetAll(t.Context(), "rl:{shop-b}:create-order").Result()
	require.NoError(t, err)
	require.Contains(t, stored, "tokens")
	require.Contains(t, stored, "ts")
	ttl, err := client.PTTL(t.Context(), "rl:{shop-b}:create-order").Result()
	require.NoError(t, err)
	require.InDelta(t, 4*time.Second, ttl, float64(500*time.Millisecond), "twice the refill time")
	require.Equal(t, 200, c.gateways[0].Get("/other", "").Status, "the matcher lets other paths through")
}

// TestExactUnderParallelLoad takes one bucket of 137 apart from three gateways.
func TestExactUnderParallelLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, "5s", "on")
	c.sql(t, `ALTER TABLE rate_limit_rule ALTER COLUMN refill_per_second TYPE double precision`)
	c.sql(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'create-order', 137, 0.001)`)
	c.awaitRules(t, 1)
	var passed, other atomic.Int64
	var wait sync.WaitGroup
	for i := range 1000 {
		wait.Go(func() {
			got := c.gateways[i%3].Get("/orders", "t1")
			switch {
			case got.Status == 200 && got.Source() == "redis":
				passed.Add(1)
			case got.Status != 429:
				other.Add(1)
			}
		})
	}
	wait.Wait()
	require.Zero(t, other.Load(), "every answer is from redis")
	require.EqualValues(t, 137, passed.Load())
}

// TestRightOverTime asks for more than the limit for ten seconds, and then until it is
// refused: all that has come in until then was given, and nothing else.
func TestRightOverTime(t *testing.T) {
	t.Parallel()
	const capacity, refill = 50, 20
	c := startCluster(t, 3, "5s", "on")
	c.rule(t, "t1", "create-order", capacity, refill)
	c.awaitRules(t, 1)
	began := time.Now()
	require.Equal(t, 200, c.gateways[0].Get("/orders", "t1").Status)
	answered := time.Now()
	var passed, refused atomic.Int64 // refused: when it was asked for the last time, since answered
	passed.Store(1)
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for time.Since(began) < time.Minute {
				asked := time.Since(answered)
				switch c.gateways[i%3].Get("/orders", "t1").Status {
				case 200:
					passed.Add(1)
				case 429:
					if asked > 10*time.Second {
						refused.Store(int64(asked))
						return
					}
				}
			}
		})
	}
	wait.Wait()
	require.Positive(t, refused.Load(), "more than the limit was asked for")
	least := capacity + refill*time.Duration(refused.Load()).Seconds()
	most := capacity + refill*time.Since(began).Seconds()
	t.Logf("%d passed, %.0f to %.0f are right", passed.Load(), least, most)
	require.GreaterOrEqual(t, float64(passed.Load()), 0.98*least-1)
	require.LessOrEqual(t, float64(passed.Load()), 1.02*most)
}

// TestRulesReachEveryGateway changes rules while the gateways run.
func TestRulesReachEveryGateway(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"on", "off"} {
		t.Run("listen "+listen, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 2, "5s", listen)
			limitIs := func(what string, want int) {
				t.Helper()
				began := time.Now()
				for _, g := range c.gateways {
					gateway.Eventually(t, 10*time.Second, what, func() bool { return g.Get("/orders", "shop-a").Field("X-RateLimit-Limit") == want })
				}
				t.Logf("%s: in force everywhere after %v", what, time.Since(began).Round(time.Millisecond))
			}
			limitIs("the default", 5)
			c.rule(t, "shop-a", "create-order", 100, 1)
			limitIs("INSERT", 100)
			c.sql(t, "UPDATE rate_limit_rule SET capacity = 50")
			limitIs("UPDATE", 50)
			c.sql(t, "DELETE FROM rate_limit_rule")
			limitIs("DELETE", 5)
		})
	}
}

// TestRejectedRowsAreLogged names the first rows that are no rule, without their
// tenants, which may be secrets.
func TestRejectedRowsAreLogged(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, "5s", "on")
	c.sql(t, `INSERT INTO rate_limit_rule (id, tenant_id, route_id, capacity, refill_per_second)
		SELECT 700 + i, 'secret-' || i, 'create-order', 1, 1e-12 FROM generate_series(1, 7) i`)
	g := c.gateways[0]
	gateway.Eventually(t, 10*time.Second, "the rows are counted", func() bool { return g.Metric("caddy_rate_limit_rules_rejected") == 7 })
	const line = "a row is not a valid rule"
	gateway.Eventually(t, 10*time.Second, "the first five are logged", func() bool { return strings.Count(g.Log(), line) == 5 })
	_, log, _ := strings.Cut(g.Log(), line)
	require.Contains(t, log, `"id":"701","route":"create-order","reason":"capacity 1 at refill_per_second 1e-12 makes a window`)
	require.NotContains(t, g.Log(), "secret-")
}

// TestNoSQLOnTheHotPath sends many requests and counts the statements.
func TestNoSQLOnTheHotPath(t *testing.T) {
	t.Parallel()
	requests := 2000
	if servertest.Thorough(t, "10,000 requests instead of 2,000") {
		requests = 10_000
	}
	c := startCluster(t, 1, "5s", "on")
	c.rule(t, "shop-a", "create-order", 100, 1)
	c.awaitRules(t, 1)
	var wait sync.WaitGroup
	for worker := range 20 {
		wait.Go(func() {
			for i := range requests / 20 {
				c.gateways[0].Get("/orders", fmt.Sprintf("tenant-%d-%d", worker, i))
			}
		})
	}
	wait.Wait()
	for _, statement := range c.postgres.Statements(t) {
		require.NotContains(t, statement.Text, "tenant-")
	}
	reads := 0
	for _, statement := range c.postgres.Statements(t) {
		if strings.Contains(statement.Text, "ORDER BY") {
			reads++
		}
	}
	require.LessOrEqual(t, reads, 3, "full reads: at start and after the one change")
}
