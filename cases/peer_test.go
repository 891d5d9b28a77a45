package cases_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// The cases of those who come from mholt/caddy-ratelimit.

// TestZ1Headers: zones tell no limit unless they are asked to; the application's
// own headers pass then.
func TestZ1Headers(t *testing.T) {
	t.Parallel()
	own := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-RateLimit-Limit"] = []string{"7"}
		w.Header()["X-RateLimit-Remaining"] = []string{"6"}
	})
	zone := func(words string) string {
		return "rate_limit {\nzone z {\nkey static\nwindow 1000s\nevents 2\n}\n" + words + "\n}\nreverse_proxy " + own
	}
	for _, test := range []struct {
		global, words string
		want          string // of X-RateLimit-Limit
	}{
		{"", "", "7"},
		{"", "headers off", "7"},
		{"", "headers legacy", "2"},
		{"rate_limit {\nheaders legacy\n}", "", "2"},
		{"rate_limit {\nheaders legacy\n}", "headers off", "7"},
	} {
		g := gateway.Start(t, gateway.Site(test.global, zone(test.words)))
		for range 2 {
			require.Equal(t, []string{test.want}, g.Get("/", "").Header.Values("X-RateLimit-Limit"), test)
		}
		refused := g.Get("/", "")
		require.Equal(t, http.StatusTooManyRequests, refused.Status)
		require.Positive(t, refused.Field("Retry-After"))
		require.Equal(t, test.want == "2", refused.Field("X-RateLimit-Limit") == 2, test)
	}
}

func TestZ2DistributedAlone(t *testing.T) {
	t.Parallel()
	g := idle(t)
	for _, words := range []string{"distributed", "storage file_system", "distributed {\nread_interval 3s\n}\nstorage redis {\nhost a\n}"} {
		warnings := g.Warns(gateway.Site("", "rate_limit {\nzone z {\nkey static\nwindow 1s\nevents 2\n}\n"+words+"\n}"))
		require.Equal(t, 1, strings.Count(warnings, "each gateway counts alone"), warnings)
	}
}

func TestZ3Log(t *testing.T) {
	t.Parallel()
	for words, lines := range map[string]int{"": 1, "log_all": 5} {
		g := gateway.Start(t, gateway.Site("", strings.Replace(zoneOf("static", 1, ""), "headers legacy", words, 1)+"\nrespond ok"))
		for range 6 {
			g.Get("/", "")
		}
		gateway.Eventually(t, 10*time.Second, "the refusal is logged", func() bool { return lineWith(g.Log(), `"rate limit exceeded"`) != "" })
		require.Equal(t, lines, strings.Count(g.Log(), `"msg":"rate limit exceeded"`), words)
		require.Contains(t, lineWith(g.Log(), `"rate limit exceeded"`), `"logger":"http.handlers.rate_limit"`)
	}
}

// TestZ4KeysTwice: a list may come in several lines, anything else once.
func TestZ4KeysTwice(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "Via", "Accept-Language", "Accept", "Cache-Control"} {
		g := gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("{header."+header+"}", 9, ""))))
		require.Equal(t, 8, g.Send(http.MethodGet, "/", http.Header{header: {"a,b"}}).Remaining(), header)
		require.Equal(t, 7, g.Send(http.MethodGet, "/", http.Header{header: {"a", "b"}}).Remaining(), "joined as Caddy does")
		require.Equal(t, 8, g.Send(http.MethodGet, "/", http.Header{header: {"b", "a"}}).Remaining(), header)
	}
	g := gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("{header.X-Forwarded-For}-{header.X-User}", 9, ""))))
	require.Equal(t, 200, g.Send(http.MethodGet, "/", http.Header{"X-Forwarded-For": {"a", "b"}, "X-User": {"u"}}).Status)
	require.Equal(t, 400, g.Send(http.MethodGet, "/", http.Header{"X-Forwarded-For": {"a"}, "X-User": {"u", "v"}}).Status)
	g = gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("{query.id}", 9, ""))))
	require.Equal(t, 400, g.Send(http.MethodGet, "/?id=1&id=2", nil).Status)
	require.Equal(t, 200, g.Send(http.MethodGet, "/?id=1&ids=2", nil).Status)
	g = gateway.Start(t, gateway.Site("", gateway.Answers(zoneOf("{cookie.sid}", 9, ""))))
	require.Equal(t, 400, g.Send(http.MethodGet, "/", http.Header{"Cookie": {"SID=1; sid=real"}}).Status)
}

func TestZ6WhatIsReadAsThere(t *testing.T) {
	t.Parallel()
	g := idle(t)
	const zone = "zone z {\nkey {remote_host}\nwindow 1000s\nevents 200\nipv4_prefix 0\nipv6_prefix 0\n}"
	for _, words := range []string{"sweep_interval 0s", "storage file_system", "log_key\nlog_key", "jitter 0"} {
		require.NotContains(t, g.Warns(gateway.Site("", "rate_limit {\n"+zone+"\n"+words+"\n}\nrespond ok")), "limits nothing", words)
		require.Equal(t, 200, g.AfterReload(nil).Status)
	}
	// A block of nothing but that plugin's words.
	for _, words := range []string{"log_key", "distributed", "storage file_system", "jitter 0.2\nsweep_interval 1m", "disable_metrics"} {
		warnings := g.Warns(gateway.Site("", "rate_limit {\n"+words+"\n}\nrespond ok"))
		require.Equal(t, 1, strings.Count(warnings, "this rate_limit has no zone, so it limits nothing"), warnings)
		require.Equal(t, []any{200, "ok"}, []any{g.AfterReload(nil).Status, g.Get("/", "").Body}, words)
	}
	for _, words := range []string{"", "shadow", "log_key\nguest allow", "log_all", "headers off"} {
		text := g.Refuses(gateway.Site("", "rate_limit {\n"+words+"\n}\nrespond ok"))
		require.Contains(t, text, "no zone is there either", words)
	}
	// A rule makes the same block a native one.
	g.Reload(gateway.Site("rate_limit {\ndefault 1/1000s\n}", "rate_limit {\nlog_key\n}\nrespond ok"))
	require.Equal(t, 401, g.AfterReload(nil).Status)
	_, err := gateway.Adapt("http://localhost:8080 {\nrate_limit {\nlimit 1/s\nlog_key\nlog_key\n}\n}")
	require.ErrorContains(t, err, "log_key is given twice")
}

func TestZ7Message(t *testing.T) {
	t.Parallel()
	for _, directive := range []string{zoneOf("static", 1, ""), "rate_limit a {\nguest allow\ntenant static\n" + slow(1) + "\n}"} {
		g := gateway.Start(t, gateway.Site("", directive+"\nrespond ok\nhandle_errors {\nrespond \"{err.status_code} {err.status_text} {err.message}\"\n}"))
		require.Equal(t, 200, g.Get("/", "").Status)
		require.Equal(t, "429 Too Many Requests Too Many Requests", g.Get("/", "").Body)
	}
}

func TestZ8OneNameTwice(t *testing.T) {
	t.Parallel()
	zone := func(events string) string {
		return "rate_limit {\nzone api {\nkey static\nwindow 1m\nevents " + events + "\n}\n}\n"
	}
	g := idle(t)
	warnings := g.Warns(gateway.Site("", "route /a {\n"+zone("5")+"}\nroute /b {\n"+zone("6")+"}"))
	line := lineWith(warnings, "two directives limit one route differently")
	require.Contains(t, line, `"route":"api"`)
	require.Contains(t, line, `"limit":"5 in 1m0s by sliding_window_log","other":"6 in 1m0s by sliding_window_log"`)
	require.NotContains(t, g.Warns(gateway.Site("", "route /a {\n"+zone("5")+"}\nroute /b {\n"+zone("5")+"}")), "differently")
	status, text := g.Post("/load", "application/json", g.Fill(`{"admin":{"listen":"ADMIN"},"apps":{"http":{"servers":{"a":{"listen":["ADDR"],"routes":[{"handle":[
		{"handler":"rate_limit","rate_limits":{"api":{"window":"1m","max_events":7}}},
		{"handler":"rate_limit","rate_limits":{"api":{"window":"1m","max_events":8}}}]}]}}}}}`))
	require.Equal(t, http.StatusOK, status, text)
	require.Contains(t, g.Log(), `"limit":"7 in 1m0s by sliding_window_log","other":"8 in 1m0s by sliding_window_log"`)
}

func TestZ9OfCaddyExt(t *testing.T) {
	t.Parallel()
	for directive, want := range map[string]string{
		"rate_limit {query.id} 2r/m":               "write `rate_limit { tenant {http.request.uri.query.id}; limit 2/m }`",
		"rate_limit /api/* {header.X-Id} 100r/s":   "write `rate_limit { tenant {http.request.header.X-Id}; limit 100/s }`",
		"rate_limit * {remote.ip} 5r/s 10000 429":  "write `rate_limit { tenant {remote_host}; limit 5/s }`",
		"rate_limit {remote.host} 30r/h 10000 503": "write `rate_limit { tenant {remote_host}; limit 30/h }`",
	} {
		_, err := gateway.Adapt("http://localhost:8080 {\n\t" + directive + "\n}")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Caddyfile:2")
	}
}

// TestZonesOfTwoGateways: with redis, `distributed` needs nothing else to count in
// one place.
func TestZonesOfTwoGateways(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	config := gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", strings.Replace(zoneOf("static", 3, ""), "headers legacy", "distributed", 1)+"\nrespond ok")
	one, two := gateway.Start(t, config), gateway.Start(t, config)
	require.Equal(t, []int{200, 200, 200, 429, 429}, []int{
		one.Get("/", "").Status, two.Get("/", "").Status, one.Get("/", "").Status, two.Get("/", "").Status, one.Get("/", "").Status,
	})
	require.NotContains(t, one.Log(), "counts alone")
}
