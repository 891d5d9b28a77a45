package cases_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// toldSite is a site with an access log.
func toldSite(global, body string) string {
	return gateway.Site(global, "log\n"+body)
}

// TestH6ShadowAnswersNothing sees what a directive in shadow lets pass and only counts.
func TestH6ShadowAnswersNothing(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, toldSite("rate_limit {\nrule shop-a a 1/1000s\nrule enforced a 5/1000s mode enforce\nrule denied a 1/s mode deny\n}", gateway.Answers(`rate_limit a {
	`+slow(5)+`
	cost {http.request.header.X-Cost}
	unknown deny
	shadow
}`)))
	send := func(status int, header http.Header) {
		t.Helper()
		require.Equal(t, status, g.Send(http.MethodGet, "/", header).Status)
	}
	send(200, http.Header{"X-Cost": {"1"}})
	send(200, http.Header{"X-Api-Key": {"shop-a", "x"}, "X-Cost": {"1"}})
	send(200, http.Header{"X-Api-Key": {"nobody"}, "X-Cost": {"1"}})
	send(200, http.Header{"X-Api-Key": {"shop-a"}, "X-Cost": {"bad"}})
	send(400, http.Header{"X-Api-Key": {"enforced"}, "X-Cost": {"bad"}})
	send(403, http.Header{"X-Api-Key": {"denied"}, "X-Cost": {"1"}})
	send(200, http.Header{"X-Api-Key": {"shop-a"}, "X-Cost": {"1"}})
	counted := func(outcome string) float64 {
		return g.Metric(`caddy_rate_limit_requests_total{outcome="` + outcome + `",source="none",zone="a"}`)
	}
	require.InDelta(t, 2, counted("unauthorized"), 0)
	require.InDelta(t, 3, counted("invalid"), 0)
	require.InDelta(t, 1, counted("denied"), 0)
	require.Equal(t, []any{"unauthorized", "invalid", "unauthorized", "invalid", "invalid", "denied", "granted"}, g.Outcomes(7))
}

// TestH6ShadowZones sees that an ambiguous key keeps a request in shadow from its
// zone alone.
func TestH6ShadowZones(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers(`rate_limit {
	shadow
	zone a {
		key {header.X-Api-Key}
		window 1h
		events 1
	}
	zone b {
		window 1h
		events 1
	}
}`)))
	twice := http.Header{"X-Api-Key": {"a", "b"}}
	for range 2 {
		require.Equal(t, 200, g.Send(http.MethodGet, "/", twice).Status)
	}
	require.InDelta(t, 2, g.Metric(`caddy_rate_limit_requests_total{outcome="invalid",source="none",zone="a"}`), 0)
	require.InDelta(t, 1, g.Metric(`caddy_rate_limit_requests_total{outcome="shadow",source="local",zone="b"}`), 0)
}

// TestH7Invalid sees a 400 counted as what it is, also where another directive had
// granted before.
func TestH7Invalid(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, toldSite("", gateway.Answers("route {\nrate_limit a {\n"+slow(5)+"\n}\nrate_limit b {\n"+slow(5)+`
	tenant {header.X-User}
	cost {http.request.header.X-Cost}
}
}`)))
	for _, header := range []http.Header{
		{"X-Api-Key": {"a", "a"}},
		{"X-Api-Key": {"a"}, "X-User": {"u", "v"}},
		{"X-Api-Key": {"a"}, "X-User": {"u"}, "X-Cost": {"0"}},
	} {
		require.Equal(t, 400, g.Send(http.MethodGet, "/", header).Status)
	}
	require.InDelta(t, 1, g.Metric(`caddy_rate_limit_requests_total{outcome="invalid",source="none",zone="a"}`), 0)
	require.InDelta(t, 2, g.Metric(`caddy_rate_limit_requests_total{outcome="invalid",source="none",zone="b"}`), 0)
	require.Equal(t, []any{"invalid", "invalid", "invalid"}, g.Outcomes(3))
}

// TestH9MembersOfARefusal sees both buckets of a refusal in its fields, and Redis'
// part of a limit told by its pace.
func TestH9MembersOfARefusal(t *testing.T) {
	t.Parallel()
	for name, global := range map[string]string{
		"alone": "",
		"redis": "rate_limit {\nredis " + servertest.Redis(t).URL() + " {\ntimeout 2s\n}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gateway.Start(t, gateway.Site(global, gateway.Answers("rate_limit a b {\nheaders ietf\nlimit 1/1000s on a\nlimit 10/1000s on b\n}")))
			granted := g.Get("/", "t").Header
			require.Equal(t, `"a";r=0;t=1000, "b";r=9;t=100`, granted.Get("RateLimit"))
			for range 2 { // Redis refuses, and then it is remembered
				refused := g.Get("/", "t")
				require.Equal(t, 429, refused.Status)
				require.Equal(t, `"a";q=1;w=1000, "b";q=10;w=1000`, refused.Header.Get("RateLimit-Policy"))
				require.Regexp(t, `^"a";r=0;t=\d+, "b";r=9;t=\d+$`, refused.Header.Get("RateLimit"))
			}
		})
	}
}

// TestH10Numbers divides a rule of ten years by 40: no number turns negative.
func TestH10Numbers(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, toldSite("rate_limit {\nredis redis://"+servertest.FreeAddr(t)+"\ninstances 40\n}", gateway.Answers("rate_limit a {\nheaders both\nlimit 1/3650d\n}")))
	for _, status := range []int{200, 429} {
		r := g.Get("/", "t")
		require.Equal(t, status, r.Status)
		require.InDelta(t, 10*365*24*3600, r.Field("X-RateLimit-Reset"), 100)
		require.NotContains(t, r.Header.Get("RateLimit"), "-", "no negative number")
	}
	g.Outcomes(2)
	require.NotRegexp(t, `"(wait|retry_after_ms|remaining)":-`, g.Log())
}

// TestH11Placeholders sees blank values where no bucket was asked.
func TestH11Placeholders(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("rate_limit {\nrule free a 1/s mode unlimited\n}", "rate_limit a {\n"+slow(5)+`
	guest allow
}
respond "[{http.rate_limit.remaining}{http.rate_limit.tenant}{http.rate_limit.route}{http.rate_limit.source}{http.rate_limit.exceeded.name}]"`))
	require.Equal(t, "[]", g.Get("/", "").Body)
	require.Equal(t, "[]", g.Get("/", "free").Body)
	require.Equal(t, "[4talocal]", g.Get("/", "t").Body)
}

// TestH12Addresses sees the client's address beside the proxy's.
func TestH12Addresses(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("servers {\ntrusted_proxies static 127.0.0.1/32\n}", gateway.Answers("rate_limit a {\n"+slow(1)+"\n}")))
	header := http.Header{"X-Api-Key": {"t"}, "X-Forwarded-For": {"203.0.113.7"}}
	g.Send(http.MethodGet, "/", header)
	require.Equal(t, 429, g.Send(http.MethodGet, "/", header).Status)
	gateway.Eventually(t, 10*time.Second, "the refusal is logged", func() bool { return lineWith(g.Log(), "rate limit exceeded") != "" })
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(lineWith(g.Log(), "rate limit exceeded")), &line))
	require.Equal(t, []any{"127.0.0.1", "203.0.113.7"}, []any{line["remote_ip"], line["client_ip"]})
}

// TestH14SeriesBeginAndGo sees a zone's series before its first request, and none
// after the last configuration that has it.
func TestH14SeriesBeginAndGo(t *testing.T) {
	t.Parallel()
	with := func(routes ...string) string {
		var body strings.Builder
		for _, route := range routes {
			body.WriteString("handle /" + route + " {\nrate_limit " + route + " {\n" + slow(1) + "\n}\nrespond ok\n}\n")
		}
		return gateway.Site("", body.String())
	}
	g := gateway.Start(t, with("kept", "gone"))
	refused := func(zone string) string {
		return `caddy_rate_limit_requests_total{outcome="refused",source="local",zone="` + zone + `"}`
	}
	require.InDelta(t, 0, g.Metric(refused("gone")), 0)
	g.Get("/kept", "t")
	g.Get("/kept", "t")
	g.Get("/gone", "t")
	g.Reload(with("kept"))
	gateway.Eventually(t, 10*time.Second, "the old configuration is cleaned up", func() bool {
		return !strings.Contains(g.AdminGet("/metrics"), `zone="gone"`)
	})
	require.InDelta(t, 1, g.Metric(refused("kept")), 0, "the counter goes on")
	g.Reload(with("kept", "gone"))
	require.InDelta(t, 0, g.Metric(refused("gone")), 0)
}

// TestH15ErrorRoutes sees the status of a limit in an error route.
func TestH15ErrorRoutes(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", `error /login 401
respond ok
handle_errors 401 {
	rate_limit guesses {
		tenant {remote_host}
		`+slow(2)+`
	}
	respond "who?" 401
}`))
	for _, status := range []int{401, 401, 429, 429} {
		r := g.Get("/login", "")
		require.Equal(t, status, r.Status)
		require.Equal(t, status == 429, r.Field("Retry-After") > 0)
	}
	document := g.Send(http.MethodGet, "/login", http.Header{"Accept": {"application/problem+json"}})
	require.Equal(t, 429, document.Status)
	require.Contains(t, document.Body, `"violated-policies":["guesses"]`)
}
