package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// as sends one request with a header.
func (g *gateway) as(name, value string) reply {
	g.t.Helper()
	return g.send(http.MethodGet, "/", http.Header{name: {value}})
}

// afterReload sends one request, again if Caddy closes its connection with the
// servers of the old config.
func (g *gateway) afterReload(header http.Header) (r reply) {
	g.t.Helper()
	eventually(g.t, 10*time.Second, "an answer after the reload", func() (ok bool) {
		var err error
		r, err = g.try(http.MethodGet, "/", header)
		return err == nil
	})
	return r
}

// zoneOf is a directive with one zone that does not refill while a test runs.
func zoneOf(key string, events int, options string) string {
	return fmt.Sprintf("rate_limit {\nheaders legacy\nzone z {\nkey %s\nwindow 1000s\nevents %d\n%s\n}\n}", key, events, options)
}

// TestZonesReadmeCaddyfile runs the example of caddy-ratelimit's README.
func TestZonesReadmeCaddyfile(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := startGateway(t, site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", `
		rate_limit {
			distributed
			zone static_example {
				match {
					method GET
				}
				key    static
				events 100
				window 1m
			}
			zone dynamic_example {
				key    {remote_host}
				events 2
				window 5s
			}
			log_key
		}
		respond "I'm behind the rate limiter!"
		handle_errors 429 {
			respond "{http.rate_limit.exceeded.name} {err.status_code}"
		}`))
	for range 2 {
		got := g.get("/", "")
		require.Equal(t, []any{200, "I'm behind the rate limiter!"}, []any{got.status, got.body})
	}
	refused := g.get("/", "")
	require.Equal(t, []any{429, "dynamic_example 429"}, []any{refused.status, refused.body})
	wait := refused.field("Retry-After")
	require.Truef(t, 1 <= wait && wait <= 5, "Retry-After %d", wait)
	require.Equal(t, 429, g.send(http.MethodPost, "/", nil).status, "the zone without a matcher limits every method")
	eventually(t, 10*time.Second, "the refusal is logged", func() bool { return lineWith(g.log(), `"rate limit exceeded"`) != "" })
	log := g.log()
	require.Contains(t, log, "the options are ignored: all gateways share their limits through redis")
	line := lineWith(log, `"rate limit exceeded"`)
	for _, field := range []string{`"zone":"dynamic_example"`, `"remote_ip":"127.0.0.1"`, `"key":"127.0.0.1"`, `"wait":`} {
		require.Contains(t, line, field)
	}
	keys, err := redis.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"rl:{static}:static_example:log", "rl:{127.0.0.1}:dynamic_example:log"}, keys)
	held, err := redis.Client(t).ZCard(t.Context(), "rl:{static}:static_example:log").Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, held, "the refused request took nothing from the other zone")
}

func lineWith(log, text string) string {
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// TestZonesReadmeJSON runs the README's JSON, without what needs Redis.
func TestZonesReadmeJSON(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", "respond none"))
	config := `{
		"admin": {"listen": "ADMIN"},
		"apps": {"http": {"servers": {"demo": {
			"listen": ["ADDR"], "automatic_https": {"disable": true},
			"routes": [{"handle": [
				{
					"handler": "rate_limit",
					"rate_limits": {
						"static_example": {"match": [{"method": ["GET"]}], "key": "static", "window": "1m", "max_events": 100},
						"dynamic_example": {"key": "{http.request.remote.host}", "window": "5s", "max_events": 2}
					},
					"log_key": true%s
				},
				{"handler": "static_response", "body": "I'm behind the rate limiter!"}
			]}]
		}}}}
	}`
	load := func(more string) (int, string) {
		return g.post("/load", "application/json", g.fill(fmt.Sprintf(config, more)))
	}
	status, text := load(`, "distributed": {}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, g.log(), "each gateway counts alone", "Z2")
	status, text = load("")
	require.Equal(t, 200, status, text)
	statuses := []int{g.get("/", "").status, g.get("/", "").status, g.get("/", "").status}
	require.Equal(t, []int{200, 200, 429}, statuses)
	for _, zone := range []string{`"z": {"window": "1s"}`, `"z": {"window": "1s", "max_events": 0}`, `"z": {"max_events": 1}`, `"z": null`} {
		status, text := g.post("/load", "application/json", g.fill(fmt.Sprintf(strings.Replace(config, `"static_example": {`, zone+`, "static_example": {`, 1), "")))
		require.Equal(t, 400, status, zone)
		require.Contains(t, text, "rate_limits.z", zone)
	}
	require.Equal(t, 429, g.get("/", "").status, "the config that runs is the old one, and has forgotten nothing")
}

func TestZonesBlankKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := startGateway(t, site("rate_limit {\n"+global+"\n}", answers(zoneOf("{header.X-User}", 3, ""))))
		require.Equal(t, 2, g.get("/", "").remaining())
		require.Equal(t, 1, g.as("X-User", "  ").remaining(), "blank is one bucket for all")
		require.Equal(t, 2, g.as("X-User", "~blank").remaining(), "and nobody can name it")
		require.Equal(t, 2, g.as("X-User", "a").remaining())
		require.Equal(t, 0, g.get("/", "").remaining())
		require.Equal(t, 429, g.get("/", "").status, "never 401")
		require.Equal(t, 400, g.send(http.MethodGet, "/", http.Header{"X-User": {"a", "b"}}).status)
	})
}

func TestZonesWithoutKey(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", answers("rate_limit {\nheaders legacy\nzone z {\nwindow 1000s\nevents 2\n}\n}")))
	require.Equal(t, []int{1, 0, 0}, []int{g.get("/", "a").remaining(), g.get("/", "b").remaining(), g.get("/", "c").remaining()})
}

// TestZonesAllOrNothing refuses by one zone and charges none.
func TestZonesAllOrNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := startGateway(t, site("rate_limit {\n"+global+"\n}", answers(`rate_limit {
			headers legacy
			zone wide {
				key    wide
				window 1000s
				events 60
			}
			zone narrow {
				match {
					header X-Narrow *
				}
				key    {header.X-Narrow}
				window 1000s
				events 1
			}
		}`)))
		passed := 0
		for range 30 {
			if got := g.as("X-Narrow", "a"); got.status == 200 {
				passed++
			} else {
				require.Equal(t, []any{429, 1}, []any{got.status, got.field("X-RateLimit-Limit")}, "the violated zone")
			}
		}
		require.Equal(t, 1, passed)
		require.Equal(t, 58, g.get("/", "").remaining(), "59 were left")
	})
}

func TestK5ZonesPrefix(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", answers(zoneOf("{header.X-Ip}", 2, "ipv4_prefix 24\nipv6_prefix 64"))))
	for i, same := range [][]string{
		{"10.0.0.1", "10.0.0.2", "10.0.0.255"},
		{"10.0.1.1", "::ffff:10.0.1.2", "10.0.1.3"},
		{"2001:db8::1", "2001:DB8:0:0:1::", "2001:db8:0:0:ffff:ffff:ffff:ffff"},
		{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1::3"},
		{"shop-a", "shop-a", "shop-a"},
	} {
		statuses := []int{}
		for _, ip := range same {
			statuses = append(statuses, g.as("X-Ip", ip).status)
		}
		require.Equal(t, []int{200, 200, 429}, statuses, i)
	}
}

func TestZonesRulesOverride(t *testing.T) {
	t.Parallel()
	_, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		VALUES ('shop-a', 'orders', 7, 1), ('~blank', 'orders', 4, 1), ('10.0.0.0/24', 'orders', 5, 1), ('shop-a', '*', 9, 1)`)
	g := startGateway(t, site("rate_limit {\nrules "+postgres.URL(database)+"\n}", answers(`rate_limit {
			headers legacy
		zone orders {
			match {
				path /
			}
			key         {header.X-User}
			window      1000s
			events      3
			ipv4_prefix 24
		}
		zone "log in" {
			match {
				path /login
			}
			key    {header.X-User}
			window 1000s
			events 2
		}
	}`)))
	eventually(t, 10*time.Second, "the rules are read", func() bool { return g.as("X-User", "shop-a").field("X-RateLimit-Limit") == 7 })
	require.Equal(t, 3, g.as("X-User", "shop-b").field("X-RateLimit-Limit"))
	require.Equal(t, 5, g.as("X-User", "10.0.0.77").field("X-RateLimit-Limit"), "a masked key is written as a network")
	require.Equal(t, 4, g.get("/", "").field("X-RateLimit-Limit"), "all without a key")
	require.Equal(t, 3, g.as("X-User", "~blank").field("X-RateLimit-Limit"), "a client cannot name their row")
	login := g.send(http.MethodGet, "/login", http.Header{"X-User": {"shop-a"}})
	require.Equal(t, 9, login.field("X-RateLimit-Limit"), "no rule can name the zone, but one can name the tenant")
}

func TestZonesNamesOfAnyKind(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := startGateway(t, site("metrics\nrate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", `
		rate_limit {
			zone "log in: {a}/*" {
				key    static
				window 1000s
				events 1
			}
		}
		respond ok
		handle_errors {
			respond "{http.rate_limit.exceeded.name}"
		}`))
	require.Equal(t, 200, g.get("/", "").status)
	refused := g.get("/", "")
	require.Equal(t, []any{429, "log in: {a}/*"}, []any{refused.status, refused.body})
	exists, err := redis.Client(t).Exists(t.Context(), "rl:{static}:log%20in%3A%20%7Ba%7D%2F%2A:log").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, exists)
	require.EqualValues(t, 1, g.metric(`caddy_rate_limit_declined_requests_total{zone="log in: {a}/*"}`))
}

func TestZonesJitter(t *testing.T) {
	t.Parallel()
	directive := strings.TrimSuffix(zoneOf("static", 1, ""), "}") + "jitter 0.5\n}"
	g := startGateway(t, site("", answers(directive)))
	require.Equal(t, 200, g.get("/", "").status)
	seen := map[int]bool{}
	for range 30 {
		wait := g.get("/", "").field("Retry-After")
		require.Truef(t, 900 <= wait && wait <= 1500, "Retry-After %d", wait)
		seen[wait] = true
	}
	require.Greater(t, len(seen), 5, "they differ")
}

func TestZonesDisableMetrics(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("metrics", `
		route /counted {
			rate_limit {
				zone counted {
					window 1000s
					events 1
				}
			}
			respond ok
		}
		route /not {
			rate_limit {
				zone hidden {
					window 1000s
					events 1
				}
				disable_metrics
			}
			respond ok
		}`))
	for _, path := range []string{"/counted", "/not"} {
		require.Equal(t, []int{200, 429}, []int{g.get(path, "").status, g.get(path, "").status})
	}
	metrics := g.adminGet("/metrics")
	require.Contains(t, metrics, `caddy_rate_limit_requests_total{outcome="refused",source="local",zone="counted"} 1`)
	require.NotContains(t, metrics, "hidden")
}

func TestZonesSurviveReload(t *testing.T) {
	t.Parallel()
	config := site("", answers(zoneOf("static", 3, "")))
	g := startGateway(t, config)
	require.Equal(t, 2, g.get("/", "").remaining())
	g.reload(config)
	require.Equal(t, 1, g.afterReload(nil).remaining())
	g.reload(site("", answers(zoneOf("static", 1, ""))))
	require.Equal(t, 429, g.afterReload(nil).status, "2 events are in the window, 1 may be")
}

// TestZonesAlgorithms are the native algorithms inside a zone.
func TestZonesAlgorithms(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "sliding_window_log", "sliding_window_counter"} {
		g := startGateway(t, site("", answers(zoneOf("static", 1000, "burst 3\nalgorithm "+algorithm))))
		first := g.get("/", "")
		require.Equal(t, []int{3, 2}, []int{first.field("X-RateLimit-Limit"), first.remaining()}, algorithm)
	}
}
