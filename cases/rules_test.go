package cases_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// eachStore runs a test alone, with Redis, and with a Redis that is down.
func eachStore(t *testing.T, test func(t *testing.T, global string)) {
	t.Helper()
	redis := servertest.Redis(t)
	for name, global := range map[string]string{
		"alone": "",
		"redis": "redis " + redis.URL() + " {\ntimeout 5s\n}",
		"local": "redis redis://" + servertest.FreeAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, global)
		})
	}
}

func TestA4DeniedCostsNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", `
			route /look {
				rate_limit wide {
					limit 1/1000s burst 100
				}
				respond ok
			}
			rate_limit / wide narrow {
				limit 1/1000s burst 100 wide
				limit 1/1000s burst 1 narrow
			}
			respond ok`))
		passed := 0
		for range 50 {
			switch got := g.Get("/", "t1"); got.Status {
			case 200:
				passed++
			case 429:
				require.Equal(t, 1, got.Field("X-RateLimit-Limit"), "the violated one")
				require.Equal(t, 0, got.Remaining())
			}
		}
		require.Equal(t, 1, passed)
		require.Equal(t, 98, g.Get("/look", "t1").Remaining(), "99 were left")
	})
}

func TestCost(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", gateway.Answers("rate_limit a {\ncost {header.X-Cost}\n"+slow(10)+"\n}")))
		ask := func(cost string) gateway.Reply {
			return g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"t1"}, "X-Cost": {cost}})
		}
		require.Equal(t, 7, ask("3").Remaining())
		for _, odd := range []string{"", "x", "0", "-1", "1.5", "99999999999"} {
			got := ask(odd)
			require.Equal(t, 400, got.Status, odd)
		}
		never := ask("11")
		require.Equal(t, []any{429, -1}, []any{never.Status, never.Field("Retry-After")}, "it can never pass")
		require.Equal(t, 0, ask("7").Remaining(), "nothing was charged in between")
		refused := ask("2")
		require.Equal(t, []any{429, 2000}, []any{refused.Status, refused.Field("Retry-After")})
	})
}

// TestCostOverTheShare passes when the share is full, and takes all of it.
func TestCostOverTheShare(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("rate_limit {\ninstances 5\nredis redis://"+servertest.FreeAddr(t)+"\n}", gateway.Answers("rate_limit a {\ncost 8\n"+slow(10)+"\n}")))
	require.Equal(t, []int{200, 429}, []int{g.Get("/", "t1").Status, g.Get("/", "t1").Status})
}

func TestModes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site(`rate_limit {
			rule watched a 1/1000s burst 1 mode shadow
			rule free    a 1/1000s burst 1 mode unlimited
			rule banned  a 1/1000s burst 1 mode deny
			default 1/1000s burst 1
			`+global+`
		}`, gateway.Answers("rate_limit a")))
		require.Equal(t, []int{200, 429}, []int{g.Get("/", "t1").Status, g.Get("/", "t1").Status})
		for i := range 3 {
			watched := g.Get("/", "watched")
			require.Equal(t, []int{200, 1, 0}, []int{watched.Status, watched.Field("X-RateLimit-Limit"), watched.Remaining()}, i)
			free := g.Get("/", "free")
			require.Equal(t, []int{200, -1}, []int{free.Status, free.Remaining()}, i)
			banned := g.Get("/", "banned")
			require.Equal(t, []int{403, -1}, []int{banned.Status, banned.Remaining()}, i)
		}
		shadowed := 0.0
		for series, n := range g.Family("caddy_rate_limit_requests_total") {
			if strings.Contains(series, `outcome="shadow"`) { // told by Redis, or still known here
				shadowed += n
			}
		}
		require.EqualValues(t, 2, shadowed)
		require.EqualValues(t, 3, g.Metric(`caddy_rate_limit_requests_total{outcome="unlimited",source="none",zone="a"}`))
		require.EqualValues(t, 3, g.Metric(`caddy_rate_limit_requests_total{outcome="denied",source="none",zone="a"}`))
	})
}

// TestShadowHasNoVeto decides a shadow bucket after the enforced ones, by itself.
func TestShadowHasNoVeto(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site(`rate_limit {
			rule * watched 1/1000s burst 1 mode shadow
			rule * strict  1/1000s burst 3
			`+global+`
		}`, "route /look {\nrate_limit watched\nrespond ok\n}\nrate_limit / watched strict\nrespond ok"))
		for i, want := range []int{200, 200, 200, 429, 429} {
			require.Equal(t, want, g.Get("/", "t1").Status, i)
		}
		require.Equal(t, 200, g.Get("/", "t2").Status)
		require.Equal(t, 0, g.Get("/look", "t2").Remaining())
	})
}

// TestH6FiveShadowsAreOneCall: five shadow routes of one tenant are one call of Redis,
// and none of them is charged where an enforced bucket refuses.
func TestH6FiveShadowsAreOneCall(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	client := redis.Client(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 2s\n}\nrule * strict 1/1000s burst 2 mode enforce\n}",
		"route /shadows {\nrate_limit a b c d e {\nshadow\n"+slow(3)+"\n}\nrespond ok\n}\n"+
			"rate_limit / a b c d e strict {\nshadow\n"+slow(3)+"\n}\nrespond ok"))
	calls := func() int {
		info := client.Info(t.Context(), "commandstats").Val()
		_, rest, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
		n, _ := strconv.Atoi(rest[:strings.IndexByte(rest+",", ',')])
		return n
	}
	require.Equal(t, 200, g.Get("/shadows", "t0").Status) // Redis knows the script from here on
	routes := []string{"a", "b", "c", "d", "e"}
	for i, want := range []struct {
		path              string
		status            int
		least, most, held int
	}{
		{"/shadows", 200, 1, 1, 2},
		{"/", 200, 2, 2, 1},
		{"/", 200, 2, 2, 0},
		{"/", 429, 0, 1, 0},        // none while it is remembered that the enforced one refuses
		{"/shadows", 200, 0, 1, 0}, // and that all of the others do
	} {
		before := calls()
		require.Equal(t, want.status, g.Get(want.path, "t1").Status, i)
		made := calls() - before
		require.True(t, want.least <= made && made <= want.most, "%d: %d calls", i, made)
		for _, route := range routes {
			held, err := client.HGet(t.Context(), "rl:{t1}:"+route, "tokens").Float64()
			require.NoError(t, err)
			require.Equal(t, want.held, int(held), "%d, %s", i, route)
		}
	}
	for _, route := range routes {
		require.NoError(t, client.Del(t.Context(), "rl:{t1}:"+route).Err())
	}
	require.Equal(t, 429, g.Get("/", "t1").Status)
	for _, route := range routes {
		require.Zero(t, client.Exists(t.Context(), "rl:{t1}:"+route).Val(), "none is charged where an enforced bucket refuses")
	}
}

func TestShadowHandler(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\nshadow\n"+slow(1)+"\n}")))
	for range 3 {
		got := g.Get("/", "t1")
		require.Equal(t, []int{200, -1}, []int{got.Status, got.Field("Retry-After")})
	}
	require.EqualValues(t, 2, g.Metric(`caddy_rate_limit_requests_total{outcome="shadow",source="local",zone="a"}`))
}

// TestRefusedForWhoItIs renders a page for a 401, a 400 and a 403 although the
// same directive stands in handle_errors.
func TestRefusedForWhoItIs(t *testing.T) {
	t.Parallel()
	directive := "rate_limit a {\ncost {header.X-Cost}\n}\n"
	g := gateway.Start(t, gateway.Site("rate_limit {\nrule banned a 1/s mode deny\ndefault 1/s\n}",
		directive+"respond ok\nhandle_errors {\n"+directive+"respond \"page {err.status_code}\"\n}"))
	require.Equal(t, "page 401", g.Get("/", "").Body)
	require.Equal(t, "page 400", g.Get("/", "t1").Body)
	require.Equal(t, "page 403", g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"banned"}, "X-Cost": {"1"}}).Body)
}

// TestH3EveryMode checks what the header says under every algorithm, by Redis, in
// its absence with the breaker soon open, and alone.
func TestH3EveryMode(t *testing.T) {
	t.Parallel()
	for options, cost := range map[string]int{
		"algorithm token_bucket": 1, "algorithm sliding_window_log": 1, "algorithm sliding_window_counter": 1, "prefetch 2": 1, "shards 2": 1, "cost 2": 2,
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, global string) {
				g := gateway.Start(t, gateway.Site("rate_limit {\nheaders legacy\n"+global+"\n}", gateway.Answers("rate_limit a {\n"+options+"\nlimit 7/10s burst 3\n}")))
				refused := 0
				for i := range 10 {
					got := g.Get("/", "t1")
					require.Contains(t, []int{200, 429}, got.Status)
					require.Equal(t, 3, got.Field("X-RateLimit-Limit"))
					require.LessOrEqual(t, got.Remaining(), 3)
					require.GreaterOrEqual(t, got.Remaining(), 0)
					require.GreaterOrEqual(t, got.Field("X-RateLimit-Reset"), 0)
					if got.Status == 429 {
						refused++
						require.Less(t, got.Remaining(), cost, i)
						require.Positive(t, got.Field("Retry-After"), i)
					}
				}
				require.GreaterOrEqual(t, refused, 6)
			})
		})
	}
}

// TestRefusedChargesNothingMore keeps the error page, and the other bucket as it
// is, where the same directives stand in handle_errors.
func TestRefusedChargesNothingMore(t *testing.T) {
	t.Parallel()
	directives := "rate_limit a {\nlimit 1/1000s burst 2\n}\nrate_limit b {\nlimit 1/1000s burst 5\n}\n"
	g := gateway.Start(t, gateway.Site("", "route {\n"+directives+"respond ok\n}\nhandle_errors {\nroute {\n"+directives+"respond \"page {err.status_code}\"\n}\n}"))
	g.Passes(2, "t1")
	for range 5 {
		got := g.Get("/", "t1")
		require.Equal(t, "page 429", got.Body)
		require.Equal(t, 2, got.Field("X-RateLimit-Limit"))
	}
	require.NotContains(t, g.Log(), "error handling handler error")
}

// TestHeadersOfTheViolatedOnly tells nothing of a bucket that did not refuse.
func TestHeadersOfTheViolatedOnly(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "route {\nrate_limit a {\nlimit 1/1000s burst 50\n}\nrate_limit b {\nlimit 1/1000s burst 1\nheaders off\n}\nrespond ok\n}"))
	require.Equal(t, 49, g.Get("/", "t1").Remaining())
	refused := g.Get("/", "t1")
	require.Equal(t, []int{429, -1, -1}, []int{refused.Status, refused.Remaining(), refused.Field("X-RateLimit-Limit")})
}

// TestVariablesTellNothing keeps what was decided out of the request's variables.
func TestVariablesTellNothing(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\nlimit 1/1000s burst 50\n}\nrespond \"[{http.vars.rate_limit.answer}]\""))
	require.Equal(t, "[]", g.Get("/", "secret-key").Body)
}

// TestShardsAreOneLayout splits the buckets of a route only where all handlers of
// the route do.
func TestShardsAreOneLayout(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	global := "rate_limit {\nrule shop-a api 1/1000s burst 20 shards 4\ndefault 1/1000s burst 1000\nredis " + redis.URL() + " {\ntimeout 5s\n}\n}"
	for name, body := range map[string]string{
		"several routes": "rate_limit /a/* other api\nrate_limit api",
		"a cost":         "rate_limit /a/* api {\ncost {header.X-Cost}\n}\nrate_limit /b/* api",
		"prefetch":       "rate_limit /a/* api {\nprefetch auto\n}\nrate_limit /b/* api",
	} {
		require.NoError(t, redis.Client(t).FlushAll(t.Context()).Err())
		g := gateway.Start(t, gateway.Site(global, body+"\nrespond ok"))
		passed := 0
		for i := range 60 {
			path := []string{"/a/", "/b/"}[i%2]
			if g.Send(http.MethodGet, path, http.Header{"X-Api-Key": {"shop-a"}, "X-Cost": {"1"}}).Status == 200 {
				passed++
			}
		}
		require.Equal(t, 20, passed, name)
	}
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+"\n}", "rate_limit /a/* two {\nshards 4\nlimit 1/s\n}\nrate_limit /b/* two {\nlimit 1/s\n}"))
	require.Contains(t, g.Log(), "have different shards")
}

// TestLargeCostOnALog keeps a cost from Redis that would hold it up for everyone.
func TestLargeCostOnALog(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", gateway.Answers("rate_limit a {\nalgorithm sliding_window_log\ncost {header.X-Cost}\nlimit 100000/h\n}")))
		ask := func(cost string) gateway.Reply {
			return g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"t1"}, "X-Cost": {cost}})
		}
		require.Equal(t, []any{429, -1, -1}, func() []any {
			got := ask("401")
			return []any{got.Status, got.Field("Retry-After"), got.Remaining()}
		}())
		require.Equal(t, 99_600, ask("400").Remaining())
	})
}

// TestShadowsShareOneDeadline asks for many shadow buckets in the time of one.
func TestShadowsShareOneDeadline(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 200ms\nbreaker off\n}\ndefault 1/s burst 100\n}",
		"rate_limit a b c d e f g h i j {\nshadow\n}\nrespond ok"))
	gateway.Eventually(t, 10*time.Second, "redis answers", func() bool { return g.Get("/", "t1").Status == 200 })
	redis.Pause(t)
	defer redis.Resume(t)
	got := g.Get("/", "t1")
	t.Logf("ten shadow buckets in %v", got.Took)
	require.Equal(t, 200, got.Status)
	require.Less(t, got.Took, time.Second, "ten times the timeout would be two")
}
