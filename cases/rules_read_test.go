package cases_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// tableRule adds a rule for tenant t1 on route a.
const tableRule = `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', $1, 1)`

// TestD3RotatedFile replaces the password in a file and in PostgreSQL, and ends the
// sessions: rules, shares and an import use the new one, without a reload.
func TestD3RotatedFile(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, rulecache.Schema("", "")+regions.Schema("")+`;
		CREATE ROLE gateway LOGIN PASSWORD 'one'; GRANT ALL ON ALL TABLES IN SCHEMA public TO gateway; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO gateway`)
	server.Exec(t, tableRule, 1000)
	server.Demand(t, "host all gateway 127.0.0.1/32 scram-sha-256")
	g := gateway.New(t)
	secret := filepath.Join(g.Dir, "secret")
	writeFile(t, secret, "one\n")
	dsn := strings.Replace(server.URL(""), "postgres@", "gateway:{file."+secret+"}@", 1)
	g.Start(gateway.Site(`rate_limit {
		redis `+servertest.Redis(t).URL()+` {
			timeout 5s
		}
		rules `+dsn+` {
			refresh 1s
		}
		region eu auto {
			valid 10s
		}
		default 1/s
	}`, gateway.Answers("rate_limit a")))
	limitOf := func() int { return g.Get("/", "t1").Field("X-RateLimit-Limit") }
	gateway.Eventually(t, 30*time.Second, "the share is known", func() bool { return limitOf() > 900 })

	server.Exec(t, `ALTER ROLE gateway PASSWORD 'two'`)
	writeFile(t, secret, "two\n")
	server.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway'`)
	server.Exec(t, `UPDATE rate_limit_rule SET capacity = 2000`)
	gateway.Eventually(t, 30*time.Second, "the change is in force", func() bool { return limitOf() > 1900 })
	read := func() float64 { return g.Metric(`caddy_rate_limit_region_share_age_seconds{region="eu"}`) }
	age := read()
	gateway.Eventually(t, 30*time.Second, "the shares are read again", func() bool {
		now := read()
		younger := now < age
		age = now
		return younger
	})
	require.NotContains(t, g.Log(), "the safe share is in force")
	file := filepath.Join(g.Dir, "rules.csv")
	writeFile(t, file, "tenant_id,route_id,capacity,refill_per_second\nt1,a,3000,1\n")
	code, _, errs := importing(t, g, "", "--dsn", dsn, "--yes", file)
	require.Zero(t, code, errs)
	_, errs, code = g.Caddy("rate-limit", "regions", "rebalance", "--dsn", dsn)
	require.Zero(t, code, errs)
}

// TestD6NotAnnouncedStatus says of a table that nobody announces that it is polled,
// and why (H13's last sentence, too).
func TestD6NotAnnouncedStatus(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, rulecache.Schema("", "")+`; DROP TRIGGER rate_limit_notify ON rate_limit_rule`)
	server.Exec(t, tableRule, 7)
	g := gateway.Start(t, gateway.Site("rate_limit {\nrules "+server.URL("")+" {\nrefresh 1s\n}\ndefault 1/s\n}", gateway.Answers("rate_limit a")))
	const why = "no trigger tells channel \"rate_limit_rule\" of every change of the table: `caddy rate-limit schema` prints the one that does"
	gateway.Eventually(t, 20*time.Second, "it is told", func() bool { return g.Rules()["poll_only"] == why && g.Rules()["state"] == "polling" })
	require.Zero(t, g.Metric("caddy_rate_limit_rules_listening"))
	out, errs, code := g.Caddy("rate-limit", "status", "--address", g.Admin)
	require.Zero(t, code, errs)
	require.Contains(t, out, "polling ("+why+"): 1 rules")
	require.Equal(t, 1, strings.Count(g.Log(), "PostgreSQL: rules are polled only"))

	// What is printed may be piped into psql, twice.
	for range 2 {
		sql, errs, code := g.Caddy("rate-limit", "schema")
		require.Zero(t, code, errs)
		server.PSQL(t, sql)
	}
	gateway.Eventually(t, 20*time.Second, "it is announced", func() bool { return g.Rules()["state"] == "listening" })
	require.Equal(t, 1.0, g.Metric("caddy_rate_limit_rules_listening"))
}

// TestBeforeAnyRules pretends nothing about rules that were never known, and says
// what a table that is missing takes.
func TestBeforeAnyRules(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nrules "+server.URL("")+" {\nrefresh 1s\ntable rules_of_shop\n}\ndefault 1/s\n}", gateway.Answers("rate_limit a")))
	const why = "the table rules_of_shop does not exist: `caddy rate-limit schema --table rules_of_shop` prints the SQL that creates it (SQLSTATE 42P01)"
	gateway.Eventually(t, 20*time.Second, "it is told", func() bool { return g.Rules()["last_error"] == why })
	known := g.Rules()
	require.Equal(t, "unknown", known["state"])
	require.NotContains(t, known, "hash")
	require.NotContains(t, known, "age_seconds")
	require.Empty(t, g.Family("caddy_rate_limit_rules_age_seconds"))
	require.Empty(t, g.Family("caddy_rate_limit_rules_info"))
	out, errs, code := g.Caddy("rate-limit", "status", "--address", g.Admin)
	require.Zero(t, code, errs)
	require.Contains(t, out, ": none are known yet")
	require.NotContains(t, out, "rules hash")
	_, errs, code = g.Caddy("rate-limit", "refresh", "--address", g.Admin)
	require.NotZero(t, code)
	require.Contains(t, errs, why+"; no rules are known")
	require.NotContains(t, errs, "old rules")
	require.Contains(t, g.Log(), why)
	require.Equal(t, 200, g.Get("/", "t1").Status)
}

// TestD8DamagedCopy says what is wrong with a copy that is empty, as with one that
// is cut off, and writes it anew.
func TestD8DamagedCopy(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, rulecache.Schema("", ""))
	server.Exec(t, tableRule, 7)
	text := gateway.Site("rate_limit {\nrules "+server.URL("")+"\ndefault 1/s\n}", gateway.Answers("rate_limit a"))
	g := gateway.New(t)
	copies := func() []string {
		files, err := filepath.Glob(filepath.Join(g.Dir, "storage", "rate_limit", "rules", "*.json"))
		require.NoError(t, err)
		return files
	}
	for _, damage := range []string{"", `{"version":1,"loaded_at":"2026-01-02T03:04:05Z","hash":"`} {
		g.Start(text)
		gateway.Eventually(t, 20*time.Second, "the rules are known", func() bool { return g.Get("/", "t1").Field("X-RateLimit-Limit") == 7 })
		g.Stop()
		require.Len(t, copies(), 1)
		whole, err := os.ReadFile(copies()[0])
		require.NoError(t, err)
		require.Contains(t, string(whole), `"tenant":"t1"`)
		writeFile(t, copies()[0], damage)
		g.Start(text)
		gateway.Eventually(t, 20*time.Second, "it is told", func() bool { return strings.Contains(g.Log(), "PostgreSQL: reading the stored rules failed") })
		require.Contains(t, g.Log(), "the stored rules are damaged: it is empty, cut off or not the JSON of a snapshot")
		require.NotContains(t, g.Log(), "storing rules failed")
		gateway.Eventually(t, 20*time.Second, "the rules are known", func() bool { return g.Get("/", "t1").Field("X-RateLimit-Limit") == 7 })
		g.Stop()
		again, err := os.ReadFile(copies()[0])
		require.NoError(t, err)
		require.Contains(t, string(again), `"tenant":"t1"`, "it is written anew")
	}
}

// documented returns a block of docs/rules.md that begins with a text.
func documented(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(page), "```sh\n"+begin)
	require.True(t, found, begin)
	block, _, _ = strings.Cut(block, "```")
	return begin + block
}

// TestCopyAsDocumented writes a file with the eight columns by \copy.
func TestCopyAsDocumented(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, rulecache.Schema("", ""))
	g := gateway.New(t)
	writeFile(t, filepath.Join(g.Dir, "rules.csv"), "tenant_id,route_id,capacity,refill_per_second,algorithm,mode,prefetch,shards\n"+
		"shop-a,create-order,200,100,,,,\nshop-b,*,50,0.5,sliding_window_log,shadow,auto,1\n")
	command := documented(t, `psql "$RULES_URL" -c "\copy`)
	_, command, _ = strings.Cut(command, `-c "`)
	command = strings.TrimSuffix(strings.TrimSpace(command), `"`)
	server.PSQL(t, strings.ReplaceAll(command, "'rules.csv'", "'"+filepath.Join(g.Dir, "rules.csv")+"'"))
	require.Equal(t, 2, server.QueryInt(t, "SELECT count(*) FROM rate_limit_rule"))
	g.Start(gateway.Site("rate_limit {\nrules "+server.URL("")+"\ndefault 1/s\n}", gateway.Answers("rate_limit create-order")))
	gateway.Eventually(t, 20*time.Second, "they are rules", func() bool { return g.Get("/", "shop-a").Field("X-RateLimit-Limit") == 200 })
	require.Equal(t, http.StatusOK, g.Get("/", "shop-b").Status)
}

// TestTwoClustersInOneSchema gives each its own table and channel.
func TestTwoClustersInOneSchema(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	tool := gateway.New(t)
	lines := strings.Split(strings.TrimSpace(documented(t, "caddy rate-limit schema --table")), "\n")
	require.Len(t, lines, 2)
	gateways := map[string]*gateway.Process{}
	for _, line := range lines {
		command, _, _ := strings.Cut(line, " |")
		words := strings.Fields(command)[1:]
		sql, errs, code := tool.Caddy(words...)
		require.Zero(t, code, errs)
		server.PSQL(t, sql)
		table := words[3]
		gateways[table] = gateway.Start(t, gateway.Site("rate_limit {\nrules "+server.URL("")+" {\ntable "+table+"\nchannel "+words[5]+"\n}\ndefault 1/s\n}", gateway.Answers("rate_limit a")))
	}
	require.Len(t, gateways, 2)
	for table, g := range gateways {
		gateway.Eventually(t, 20*time.Second, "it is announced", func() bool { return g.Metric("caddy_rate_limit_rules_listening") == 1 })
		server.Exec(t, strings.Replace(tableRule, "rate_limit_rule", table, 1), len(table))
		gateway.Eventually(t, 20*time.Second, "its rule is in force", func() bool { return g.Get("/", "t1").Field("X-RateLimit-Limit") == len(table) })
	}
}
