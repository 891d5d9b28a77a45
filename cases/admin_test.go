package cases_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// object is a JSON object.
type object = map[string]any

// at walks into an answer, by names and numbers.
func at(t testing.TB, in any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			require.Contains(t, in, step, "%v", path)
			in = in.(object)[step]
		case int:
			require.Greater(t, len(in.([]any)), step, "%v", path)
			in = in.([]any)[step]
		}
	}
	return in
}

const orders = `rate_limit create-order {
		guest ip
	}
	header >X-Source {http.rate_limit.source}
	respond ok`

func TestAdminOnOneGateway(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'create-order', 3, 0.001)`)
	g := gateway.Start(t, gateway.Site(`rate_limit {
		redis `+redis.URL()+` {
			timeout 5s
		}
		rules `+postgres.URL(database)+`
		rule * create-order 1/1000s burst 5 mode shadow
		guest_secret secret-of-the-fleet
		default 10/s
	}`, orders))
	gateway.Eventually(t, 5*time.Second, "the rules are known and listened for", func() bool {
		return at(t, g.Asked("GET", "/rate_limit/status"), "rules", "state") == "listening" && g.Metric("caddy_rate_limit_rules") == 1
	})
	explain := "/rate_limit/explain?tenant=shop-a&route=create-order"

	status := g.Asked("GET", "/rate_limit/status")
	require.Equal(t, "redis", at(t, status, "source"))
	require.Equal(t, "closed", at(t, status, "redis", "nodes", 0, "breaker"))
	require.Equal(t, 1.0, at(t, status, "rules", "rules"))
	require.Equal(t, 1.0, at(t, status, "static_rules"))
	require.Equal(t, []any{"create-order"}, at(t, status, "routes"))

	rules := g.Asked("GET", "/rate_limit/rules")
	require.Equal(t, at(t, status, "rules", "hash"), at(t, rules, "hash"))
	require.Equal(t, []any{"*", "static", "shop-a", "postgres"},
		[]any{at(t, rules, "rules", 0, "tenant"), at(t, rules, "rules", 0, "from"), at(t, rules, "rules", 1, "tenant"), at(t, rules, "rules", 1, "from")})

	require.Equal(t, 3, g.Passes(3, "shop-a"))
	next := at(t, g.Asked("GET", explain), "handlers", 0, "next")
	require.Equal(t, object{"outcome": "refused", "status": 429.0, "route": "create-order", "cost": 1.0, "remaining": 0.0, "retry_after": at(t, next, "retry_after"), "source": at(t, next, "source"), "reason": "rate"}, next)
	for range 4 {
		require.Equal(t, 429, g.Get("/", "shop-a").Status)
	}
	top := g.Asked("GET", "/rate_limit/top")
	require.Equal(t, object{"tenant": "shop-a", "stored": "shop-a", "key": "shop-a", "route": "create-order", "refused": 4.0, "over": 0.0}, at(t, top, "buckets", 0))

	reset := g.Asked("DELETE", "/rate_limit/bucket?tenant=shop-a&route=create-order")
	require.Equal(t, []any{object{"name": "shop-a", "route": "create-order", "here": true, "redis": "reset"}}, at(t, reset, "buckets"))
	require.Equal(t, 2, g.Get("/", "shop-a").Remaining(), "at once, and also from what was remembered")

	unknown := at(t, g.Asked("GET", "/rate_limit/explain?tenant=nobody&route=create-order"), "handlers", 0)
	require.Equal(t, "static", at(t, unknown, "rule_from"), "an unknown tenant is an answer")
	require.Equal(t, "shadow", at(t, unknown, "rule", "mode"))
	guest := at(t, g.Asked("GET", "/rate_limit/explain?ip=127.0.0.1&route=create-order"), "handlers", 0)
	require.Equal(t, 4.0, at(t, guest, "next", "remaining"))
	require.Equal(t, 4, g.Get("/", "").Remaining(), "the guest's bucket is that of the address")
	guest = at(t, g.Asked("GET", "/rate_limit/explain?ip=::ffff:127.0.0.1&route=create-order"), "handlers", 0)
	require.Equal(t, 4.0, at(t, guest, "bucket", "redis", "remaining"))

	postgres.ExecIn(t, database, `ALTER TABLE rate_limit_rule DISABLE TRIGGER USER`)
	postgres.ExecIn(t, database, `UPDATE rate_limit_rule SET capacity = 30`)
	postgres.ExecIn(t, database, `ALTER TABLE rate_limit_rule DROP CONSTRAINT rate_limit_rule_capacity_check`)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-b', 'create-order', 0, 1)`)
	refreshed := g.Asked("POST", "/rate_limit/rules/refresh")
	require.Equal(t, []any{1.0, 1.0, true}, []any{at(t, refreshed, "rules"), at(t, refreshed, "rejected"), at(t, refreshed, "changed")})
	require.Equal(t, 30, g.Get("/", "shop-a").Field("X-RateLimit-Limit"), "in force when the answer comes")
	require.Contains(t, at(t, g.Asked("GET", "/rate_limit/status"), "rules", "rejections", 0, "reason"), "capacity 0 is out of bounds")
	require.Equal(t, false, at(t, g.Asked("POST", "/rate_limit/rules/refresh"), "changed"))

	postgres.Stop(t)
	code, _, body := g.AdminCall("POST", "/rate_limit/rules/refresh")
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, body, "loading rules: connection refused")
	gateway.Eventually(t, 5*time.Second, "the failure shows", func() bool {
		return at(t, g.Asked("GET", "/rate_limit/status"), "rules", "last_error") == "connection refused"
	})

	redis.Kill(t)
	gateway.Eventually(t, 10*time.Second, "the fallback decides", func() bool {
		g.Get("/", "shop-a")
		return at(t, g.Asked("GET", "/rate_limit/status"), "source") == "local"
	})
	down := at(t, g.Asked("GET", explain), "handlers", 0)
	require.NotEmpty(t, at(t, down, "bucket", "redis", "error"), "Redis could not be asked")
	require.Equal(t, "local", at(t, down, "next", "source"), "and explain answers from here")
	code, _, body = g.AdminCall("DELETE", "/rate_limit/bucket?tenant=shop-a&route=create-order")
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, body, "Redis could not be asked")
	require.Contains(t, body, `"here": true`)
	for _, path := range []string{"/rate_limit/status", "/rate_limit/rules", explain} {
		_, _, body := g.AdminCall("GET", path)
		require.NotContains(t, body, "secret-of-the-fleet")
		require.NotContains(t, body, "postgres://")
	}
}

// TestAdminResetsEveryKindOfBucket: under each algorithm, and each part.
func TestAdminResetsEveryKindOfBucket(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, global string) {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\nfallback local\nguest_secret 0123456789abcdef\n}", `
			route /token_bucket* {
				rate_limit b {
					`+slow(4)+`
					shards 4
				}
				respond ok
			}
			route /sliding_window_log* {
				rate_limit l {
					algorithm sliding_window_log
					`+slow(4)+`
				}
				respond ok
			}
			route /sliding_window_counter* {
				rate_limit c {
					algorithm sliding_window_counter
					`+slow(4)+`
				}
				respond ok
			}`))
		g.Asked("GET", "/rate_limit/status")
		for path, route := range map[string]string{"/token_bucket": "b", "/sliding_window_log": "l", "/sliding_window_counter": "c"} {
			for range 2 {
				for range 4 {
					require.Equal(t, 200, g.Get(path, "t1").Status, path)
				}
				require.Equal(t, 429, g.Get(path, "t1").Status, path)
				_, _, body := g.AdminCall("DELETE", "/rate_limit/bucket?tenant=t1&route="+route)
				require.Contains(t, body, `"here": true`)
			}
		}
	})
}

func TestAdminRulesInPages(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	for i := range 25 {
		fmt.Fprintf(&rules, "rule t%02d a %d/s\n", i, i+1)
	}
	g := gateway.Start(t, gateway.Site("rate_limit {\n"+rules.String()+"default 1/s\n}", "rate_limit a"))
	var tenants []any
	cursor, pages := "", 0
	for {
		page := g.Asked("GET", "/rate_limit/rules?limit=10&cursor="+cursor)
		for _, rule := range at(t, page, "rules").([]any) {
			tenants = append(tenants, at(t, rule, "tenant"))
		}
		pages++
		if page["next"] == nil {
			break
		}
		cursor = at(t, page, "next").(string)
	}
	require.Equal(t, 3, pages)
	require.Len(t, tenants, 25)
	require.IsIncreasing(t, toStrings(tenants))
	one := g.Asked("GET", "/rate_limit/rules?tenant=t07&route=a")
	require.Equal(t, 8.0, at(t, one, "rules", 0, "capacity"))
	require.Empty(t, at(t, g.Asked("GET", "/rate_limit/rules?tenant=nobody"), "rules"))
}

func toStrings(list []any) []string {
	texts := make([]string, 0, len(list))
	for _, text := range list {
		texts = append(texts, text.(string))
	}
	return texts
}

// TestAdminMethodsAndPaths: whatever is not there or not meant is told with a reason.
func TestAdminMethodsAndPaths(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(1)+"\n}\nrespond ok"))
	g.Asked("GET", "/rate_limit/status")
	for path, allowed := range map[string]string{
		"/rate_limit/status": "GET, HEAD", "/rate_limit/rules": "GET, HEAD, POST", "/rate_limit/explain": "GET, HEAD, POST",
		"/rate_limit/top": "GET, HEAD", "/rate_limit/bucket": "DELETE", "/rate_limit/rules/refresh": "POST",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			status, header, body := g.AdminCall(method, path)
			if strings.Contains(allowed, method) {
				require.NotEqual(t, http.StatusMethodNotAllowed, status, "%s %s", method, path)
				continue
			}
			require.Equal(t, http.StatusMethodNotAllowed, status, "%s %s", method, path)
			require.Equal(t, allowed, header.Get("Allow"), "%s %s", method, path)
			if method != "HEAD" {
				require.Contains(t, body, "allowed is "+allowed)
			}
		}
	}
	status, _, body := g.AdminCall("GET", "/rate_limit/nothing")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "GET /rate_limit/explain")
	status, _, body = g.AdminCall("GET", "/rate_limit/explain?tenant=a&route=b")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, `no handler has the route \"b\": allowed are a`)
	status, _, _ = g.AdminCall("GET", "/config/")
	require.Equal(t, http.StatusOK, status, "other paths are as they were")
	status, _, _ = g.AdminCall("GET", "/reverse_proxy/upstreams")
	require.Equal(t, http.StatusOK, status)

	g.Reload(gateway.Site("", "respond ok"))
	for _, path := range []string{"/rate_limit/status", "/rate_limit/top"} {
		status, _, body = g.AdminCall("GET", path)
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, body, "the running configuration has no rate_limit")
	}
}

// TestAdminDuringReloads asks all the time while configs come, fail and go.
func TestAdminDuringReloads(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	config := func(n int) string {
		return gateway.Site("rate_limit {\nredis "+redis.URL()+fmt.Sprintf(" {\ntimeout 5s\ndial_timeout %ds\n}\n}", 1+n%3), "rate_limit a {\n"+slow(1000)+"\n}\nrespond ok")
	}
	g := gateway.Start(t, config(0))
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for _, call := range []string{"GET /rate_limit/status", "GET /rate_limit/explain?tenant=t1&route=a", "DELETE /rate_limit/bucket?tenant=t2&route=a", "GET /rate_limit/top"} {
		method, path, _ := strings.Cut(call, " ")
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				status, err := try(method, "http://"+g.Admin+path)
				if err == nil && status != http.StatusOK && status != http.StatusBadGateway && status != http.StatusNotFound {
					t.Errorf("%s: status %d", call, status)
				}
				g.Get("/", "t1")
			}
		})
	}
	for n := range 12 {
		if n%4 == 3 {
			status, _ := g.Load(strings.Replace(config(n), "rate_limit a", "rate_limit a/b", 1))
			require.Equal(t, http.StatusBadRequest, status)
			continue
		}
		g.Reload(config(n))
	}
	close(stop)
	wait.Wait()
	require.Equal(t, "redis", at(t, g.Asked("GET", "/rate_limit/status"), "source"))
}

// try makes a call that a reload may cut.
func try(method, address string) (int, error) {
	req, err := http.NewRequest(method, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := gateway.AdminClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// TestAdminIsBounded: a Redis that never answers holds up no call.
func TestAdminIsBounded(t *testing.T) {
	t.Parallel()
	_, proxy := redisAndProxy(t)
	g := gateway.Start(t, viaProxy(proxy, "breaker off\ntimeout 5ms", "rate_limit a {\n"+slow(5)+"\n}"))
	proxy.Set(t, servertest.Fault{Silent: true})
	began := time.Now()
	answer := g.Asked("GET", "/rate_limit/explain?tenant=t1&route=a")
	require.Equal(t, "local", at(t, answer, "handlers", 0, "next", "source"))
	require.Contains(t, []any{"timeout", "wait", "connection"}, at(t, answer, "handlers", 0, "bucket", "redis", "error"))
	status, _, _ := g.AdminCall("DELETE", "/rate_limit/bucket?tenant=t1&route=a")
	t.Logf("explain and reset took %v", time.Since(began))
	require.Equal(t, http.StatusBadGateway, status)
	require.Less(t, time.Since(began), 15*time.Second)
}

// TestAdminTellsTheFleet: what the gateways know of each other.
func TestAdminTellsTheFleet(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+"\ninstances auto 4\n}", "rate_limit a {\n"+slow(5)+"\n}\nrespond ok"))
	gateway.Eventually(t, 15*time.Second, "it has counted itself", func() bool {
		fleet, known := g.Asked("GET", "/rate_limit/status")["fleet"].(object)
		return known && fleet["counted"] == 1.0
	})
	require.Len(t, at(t, g.Asked("GET", "/rate_limit/status"), "fleet", "rules"), 1)
}
