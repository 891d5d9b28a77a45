package cases_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestAdminNamesOfAnyKind: tenants that look like nothing good are found again.
func TestAdminNamesOfAnyKind(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrule "+strings.Repeat("€", 64)+" a 1/1000s burst 2\n}", gateway.Answers("rate_limit a {\n"+slow(1)+"\n}")))
	for _, tenant := range []string{"a&b=c", "a%41", "{x}", "*", "~ip-0", "ü", strings.Repeat("long", 100), `"<>"`} {
		require.Equal(t, 200, g.Get("/", tenant).Status, tenant)
		require.Equal(t, 429, g.Get("/", tenant).Status, tenant)
		next := at(t, g.Asked("GET", "/rate_limit/explain?route=a&tenant="+url.QueryEscape(tenant)), "handlers", 0, "next", "status")
		require.Equal(t, 429.0, next, tenant)
		g.Asked("DELETE", "/rate_limit/bucket?route=a&tenant="+url.QueryEscape(tenant))
		require.Equal(t, 200, g.Get("/", tenant).Status, tenant)
	}
	// These look like the gateway's own names, are no text, or are known by a hash alone.
	for _, tenant := range []string{"~guest", "~blank", "~ip-" + strings.Repeat("0", 64), "caf\xe9", strings.Repeat("€", 64)} {
		require.Less(t, g.Passes(4, tenant), 3, tenant)
	}
	buckets := at(t, g.Asked("GET", "/rate_limit/top"), "buckets").([]any)
	require.Len(t, buckets, 13)
	for _, bucket := range buckets {
		for _, name := range []string{"key", "stored"} {
			value, told := bucket.(object)[name].(string)
			if !told {
				require.Equal(t, "stored", name)
				continue
			}
			answer := at(t, g.Asked("GET", "/rate_limit/explain?route=a&"+name+"="+url.QueryEscape(value)), "handlers", 0)
			require.Equal(t, 429.0, at(t, answer, "next", "status"), "%s %s", name, value)
			if name == "stored" && value == strings.Repeat("€", 64) {
				require.Equal(t, "static", at(t, answer, "rule_from"))
			}
		}
		key := at(t, bucket, "key").(string)
		reset := g.Asked("DELETE", "/rate_limit/bucket?route=a&key="+url.QueryEscape(key))
		require.Equal(t, key, at(t, reset, "buckets", 0, "name"))
	}
	for _, tenant := range []string{"~guest", "~blank", "~ip-" + strings.Repeat("0", 64), "caf\xe9", strings.Repeat("€", 64), "a&b=c"} {
		require.Equal(t, 200, g.Get("/", tenant).Status, tenant)
	}
}

// TestAdminResetInACluster: buckets that lie in the slots of several masters, in one
// piece and in parts, are explained and made full again.
func TestAdminResetInACluster(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, servertest.ClusterOptions{})
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+strings.Join(c.URLs(), " ")+" {\ntimeout 5s\n}\n}", `
	route /parts {
		rate_limit parts {
			shards 16
			limit 1/1000s burst 32
		}
		respond ok
	}
	route /whole {
		rate_limit whole {
			limit 1/1000s burst 3
		}
		respond ok
	}`))
	for i := range 4 {
		tenant := fmt.Sprintf("t%d", i)
		for route, capacity := range map[string]int{"parts": 32, "whole": 3} {
			query := "?tenant=" + tenant + "&route=" + route
			for range 2 {
				for range capacity {
					require.Equal(t, 200, g.Get("/"+route, tenant).Status)
				}
				require.Equal(t, 429, g.Get("/"+route, tenant).Status)
				require.Equal(t, 429.0, at(t, g.Asked("GET", "/rate_limit/explain"+query), "handlers", 0, "next", "status"))
				require.Equal(t, "reset", at(t, g.Asked("DELETE", "/rate_limit/bucket"+query), "buckets", 0, "redis"))
			}
			require.Equal(t, float64(capacity), at(t, g.Asked("GET", "/rate_limit/explain"+query), "handlers", 0, "bucket", "redis", "remaining"))
		}
	}
}
