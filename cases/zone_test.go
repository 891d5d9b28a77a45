package cases_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// zoneOf is a directive with one zone that does not refill while a test runs.
func zoneOf(key string, events int, options string) string {
	return fmt.Sprintf("rate_limit {\nheaders legacy\nzone z {\nkey %s\nwindow 1000s\nevents %d\n%s\n}\n}", key, events, options)
}

// TestZonesReadmeCaddyfile runs the example of caddy-ratelimit's README.
func TestZonesReadmeCaddyfile(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", `
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
		got := g.Get("/", "")
		require.Equal(t, []any{200, "I'm behind the rate limiter!"}, []any{got.Status, got.Body})
	}
	refused := g.Get("/", "")
	require.Equal(t, []any{429, "dynamic_example 429"}, []any{refused.Status, refused.Body})
	wait := refused.Field("Retry-After")
	require.Truef(t, 1 <= wait && wait <= 5, "Retry-After %d", wait)
	require.Equal(t, 429, g.Send(http.MethodPost, "/", nil).Status, "the zone without a matcher limits every method")
	gateway.Eventually(t, 10*time.Second, "the refusal is logged", func() bool { return lineWith(g.Log(), `"rate limit exceeded"`) != "" })
	log := g.Log()
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
	g := gateway.Start(t, gateway.Site("", "respond none"))
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
		return g.Post("/load", "application/json", g.Fill(fmt.Sprintf(config, more)))
	}
	status, text := load(`, "distributed": {}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, g.Log(), "each gateway counts alone", "Z2")
	status, text = load("")
	require.Equal(t, 200, status, text)
	statuses := []int{g.Get("/", "").Status, g.Get("/", "").Status, g.Get("/", "").Status}
	require.Equal(t, []int{200, 200, 429}, statuses)
	for _, zone := range []string{`"z": {"window": "1s"}`, `"z": {"window": "1s", "max_events": 0}`, `"z": {"max_events": 1}`, `"z": null`} {
		status, text := g.Post("/load", "application/json", g.Fill(fmt.Sprintf(strings.Replace(config, `"static_example": {`, zone+`, "static_example": {`, 1), "")))
		require.Equal(t, 400, status, zone)
		require.Contains(t, text, "rate_limits.z", zone)
	}
	require.Equal(t, 429, g.Get("/", "").Status, "the config that runs is the old one, and has forgotten nothing")
}

func TestZonesBlankKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", gateway.Answers(zoneOf("{header.X-User}", 3, ""))))
		require.Equal(t, 2, g.Get("/", "").Remaining())
		require.Equal(t, 1, g.As("X-User", "  ").Remaining(), "blank is one bucket for all")
		require.Equal(t, 2, g.As("X-User", "~blank").Remaining(), "and nobody can name it")
		require.Equal(t, 2, g.As("X-User", "a").Remaining())
		require.Equal(t, 0, g.Get("/", "").Remaining())
		require.Equal(t, 429, g.Get("/", "").Status, "never 401")
		require.Equal(t, 400, g.Send(http.MethodGet, "/", http.Header{"X-User": {"a", "b"}}).Status)
	})
}

func TestZonesWithoutKey(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit {\nheaders legacy\nzone z {\nwindow 1000s\nevents 2\n}\n}")))
	require.Equal(t, []int{1, 0, 0}, []int{g.Get("/", "a").Remaining(), g.Get("/", "b").Remaining(), g.Get("/", "c").Remaining()})
}

// TestZonesAllOrNothing refuses by one zone and charges none.
func TestZonesAllOrNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", gateway.Answers(`rate_limit {
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
			if got := g.As("X-Narrow", "a"); got.Status == 200 {
				passed++
			} else {
				require.Equal(t, []any{429, 1}, []any{got.Status, got.Field("X-RateLimit-Limit")}, "the violated zone")
			}
		}
		require.Equal(t, 1, passed)
		require.Equal(t, 58, g.Get("/", "").Remaining(), "59 were left")
	})
}

func TestK5ZonesPrefix(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("{header.X-Ip}", 2, "ipv4_prefix 24\nipv6_prefix 64"))))
	for i, same := range [][]string{
		{"10.0.0.1", "10.0.0.2", "10.0.0.255"},
		{"10.0.1.1", "::ffff:10.0.1.2", "10.0.1.3"},
		{"2001:db8::1", "2001:DB8:0:0:1::", "2001:db8:0:0:ffff:ffff:ffff:ffff"},
		{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1::3"},
		{"shop-a", "shop-a", "shop-a"},
	} {
		statuses := []int{}
		for _, ip := range same {
			statuses = append(statuses, g.As("X-Ip", ip).Status)
		}
		require.Equal(t, []int{200, 200, 429}, statuses, i)
	}
}

func TestZonesRulesOverride(t *testing.T) {
	t.Parallel()
	_, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		VALUES ('shop-a', 'orders', 7, 1), ('~blank', 'orders', 4, 1), ('10.0.0.0/24', 'orders', 5, 1), ('shop-a', '*', 9, 1)`)
	g := gateway.Start(t, gateway.Site("rate_limit {\nrules "+postgres.URL(database)+"\n}", gateway.Answers(`rate_limit {
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
	gateway.Eventually(t, 10*time.Second, "the rules are read", func() bool { return g.As("X-User", "shop-a").Field("X-RateLimit-Limit") == 7 })
	require.Equal(t, 3, g.As("X-User", "shop-b").Field("X-RateLimit-Limit"))
	require.Equal(t, 5, g.As("X-User", "10.0.0.77").Field("X-RateLimit-Limit"), "a masked key is written as a network")
	require.Equal(t, 4, g.Get("/", "").Field("X-RateLimit-Limit"), "all without a key")
	require.Equal(t, 3, g.As("X-User", "~blank").Field("X-RateLimit-Limit"), "a client cannot name their row")
	login := g.Send(http.MethodGet, "/login", http.Header{"X-User": {"shop-a"}})
	require.Equal(t, 9, login.Field("X-RateLimit-Limit"), "no rule can name the zone, but one can name the tenant")
}

func TestZonesNamesOfAnyKind(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("metrics\nrate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", `
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
	require.Equal(t, 200, g.Get("/", "").Status)
	refused := g.Get("/", "")
	require.Equal(t, []any{429, "log in: {a}/*"}, []any{refused.Status, refused.Body})
	exists, err := redis.Client(t).Exists(t.Context(), "rl:{static}:log%20in%3A%20%7Ba%7D%2F%2A:log").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, exists)
	require.EqualValues(t, 1, g.Metric(`caddy_rate_limit_declined_requests_total{reason="rate",zone="log in: {a}/*"}`))
}

func TestZonesJitter(t *testing.T) {
	t.Parallel()
	directive := strings.TrimSuffix(zoneOf("static", 1, ""), "}") + "jitter 0.5\n}"
	g := gateway.Start(t, gateway.Site("", gateway.Answers(directive)))
	require.Equal(t, 200, g.Get("/", "").Status)
	seen := map[int]bool{}
	for range 30 {
		wait := g.Get("/", "").Field("Retry-After")
		require.Truef(t, 900 <= wait && wait <= 1500, "Retry-After %d", wait)
		seen[wait] = true
	}
	require.Greater(t, len(seen), 5, "they differ")
}

func TestZonesDisableMetrics(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("metrics", `
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
		require.Equal(t, []int{200, 429}, []int{g.Get(path, "").Status, g.Get(path, "").Status})
	}
	metrics := g.AdminGet("/metrics")
	require.Contains(t, metrics, `caddy_rate_limit_requests_total{outcome="refused",source="local",zone="counted"} 1`)
	require.NotContains(t, metrics, "hidden")
}

func TestZonesSurviveReload(t *testing.T) {
	t.Parallel()
	config := gateway.Site("", gateway.Answers(zoneOf("static", 3, "")))
	g := gateway.Start(t, config)
	require.Equal(t, 2, g.Get("/", "").Remaining())
	g.Reload(config)
	require.Equal(t, 1, g.AfterReload(nil).Remaining())
	g.Reload(gateway.Site("", gateway.Answers(zoneOf("static", 1, ""))))
	require.Equal(t, 429, g.AfterReload(nil).Status, "2 events are in the window, 1 may be")
}

// TestZonesAlgorithms are the native algorithms inside a zone.
func TestZonesAlgorithms(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "sliding_window_log", "sliding_window_counter"} {
		g := gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("static", 1000, "burst 3\nalgorithm "+algorithm))))
		first := g.Get("/", "")
		require.Equal(t, []int{3, 2}, []int{first.Field("X-RateLimit-Limit"), first.Remaining()}, algorithm)
	}
}
