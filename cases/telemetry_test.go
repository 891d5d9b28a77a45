package cases_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/rulecache"
)

func TestAccessLog(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "log\n"+gateway.Answers("rate_limit /limited* a {\nlog_key\nlimit 1/1000s\n}")))
	g.Get("/free", "t1")
	g.Get("/limited", "t1")
	g.Get("/limited", "t1")
	g.Get("/limited", "")
	gateway.Eventually(t, 10*time.Second, "four lines", func() bool { return len(g.AccessLog()) == 4 })
	log := g.AccessLog()
	require.Nil(t, log[0])
	decided := map[string]any{"outcome": "granted", "route": "a", "source": "local", "tenant": "t1", "limit": 1.0, "remaining": 0.0}
	for i, outcome := range []string{"granted", "refused"} {
		require.InDelta(t, 1_000_000, log[i+1]["retry_after_ms"], 60_000)
		delete(log[i+1], "retry_after_ms")
		if decided["outcome"] = outcome; outcome == "refused" {
			decided["reason"] = "rate"
		}
		require.Equal(t, decided, log[i+1])
	}
	require.Equal(t, map[string]any{"outcome": "unauthorized", "route": "a"}, log[3])
}

// TestTracing has Caddy's own tracing write its spans to the log.
func TestTracing(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "tracing {\nspan request\n}\n"+gateway.Answers("rate_limit a {\nlimit 1/1000s\n}")),
		"OTEL_TRACES_EXPORTER=console", "OTEL_BSP_SCHEDULE_DELAY=50")
	g.Get("/", "t1")
	for _, want := range []string{`"rate_limit.outcome"`, `"rate_limit.source"`, `"rate_limit.retry_after_ms"`} {
		gateway.Eventually(t, 10*time.Second, want, func() bool { return strings.Contains(g.Log(), want) })
	}
	require.NotContains(t, g.Log(), "rate_limit.tenant")
}

// TestEventsOfState takes Redis and PostgreSQL away, and gives them back.
func TestEventsOfState(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.Redis(t), servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema(rulecache.DefaultTable, rulecache.DefaultChannel))
	toRedis, toPostgres := servertest.NewProxy(t, redis.Addr), servertest.NewProxy(t, postgres.Addr)
	g := gateway.Start(t, gateway.Site(`events {
		on rate_limit_breaker_opened slow_test DIR/events 0
		on rate_limit_breaker_closed slow_test DIR/events 0
		on rate_limit_rules_loaded slow_test DIR/events 0
		on rate_limit_rules_failed slow_test DIR/events 0
		on rate_limit_rules_recovered slow_test DIR/events 0
		on rate_limit_rules_stale slow_test DIR/events 0
		on rate_limit_rules_listening_lost slow_test DIR/events 0
	}
	rate_limit {
		redis redis://`+toRedis.Addr()+` {
			timeout 500ms
			breaker 2 200ms
		}
		rules `+servertest.PostgresURL(toPostgres.Addr(), "")+` {
			refresh 1s
		}
	}`, gateway.Answers("rate_limit a {\nlimit 1000/s\n}")))
	has := func(name string) {
		t.Helper()
		gateway.Eventually(t, 30*time.Second, name, func() bool {
			g.Get("/", "t1")
			return strings.Contains(strings.Join(g.EventNames(), " "), name)
		})
		require.Positive(t, g.Metric(`caddy_rate_limit_state_changes_total{event="`+name+`"}`))
	}
	has("rate_limit_rules_loaded")
	toRedis.Set(t, servertest.Fault{Refuse: true})
	has("rate_limit_breaker_opened")
	toRedis.Set(t, servertest.Fault{})
	has("rate_limit_breaker_closed")
	toPostgres.Set(t, servertest.Fault{Refuse: true})
	has("rate_limit_rules_listening_lost")
	has("rate_limit_rules_failed")
	has("rate_limit_rules_stale")
	toPostgres.Set(t, servertest.Fault{})
	has("rate_limit_rules_recovered")
	for _, event := range g.Events() {
		require.Equal(t, "rate_limit", event["origin"])
	}
	require.NotContains(t, g.Log(), filepath.Join(g.Dir, "events")+": no such", "subscribers wrote")
}

// TestMetricsOfADecision counts what Redis was asked.
func TestMetricsOfADecision(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 2s\n}\n}", gateway.Answers("rate_limit a {\nlimit 10/1000s\n}")))
	require.Equal(t, 3, g.Passes(3, "t1"))
	node := `{node="` + redis.Addr + `/0"}`
	require.InDelta(t, 3, g.Metric("caddy_rate_limit_redis_call_entries_total"+node), 0)
	require.InDelta(t, 3, g.Metric("caddy_rate_limit_redis_call_seconds_count"+node), 0)
	require.Positive(t, g.Metric("caddy_rate_limit_redis_connections"+node))
	require.Positive(t, g.Metric(`caddy_rate_limit_process_time_seconds_bucket{zone="a",le="1"}`))
	require.Zero(t, g.Metric(`caddy_rate_limit_redis_errors_total{reason="timeout"}`))
}
