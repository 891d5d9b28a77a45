package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestAdminResetInACluster: buckets that lie in the slots of several masters, in one
// piece and in parts, are explained and made full again.
func TestAdminResetInACluster(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, servertest.ClusterOptions{})
	g := startGateway(t, site("rate_limit {\nredis "+strings.Join(c.URLs(), " ")+" {\ntimeout 5s\n}\n}", `
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
					require.Equal(t, 200, g.get("/"+route, tenant).status)
				}
				require.Equal(t, 429, g.get("/"+route, tenant).status)
				require.Equal(t, 429.0, at(t, g.asked("GET", "/rate_limit/explain"+query), "handlers", 0, "next", "status"))
				require.Equal(t, "reset", at(t, g.asked("DELETE", "/rate_limit/bucket"+query), "buckets", 0, "redis"))
			}
			require.Equal(t, float64(capacity), at(t, g.asked("GET", "/rate_limit/explain"+query), "handlers", 0, "bucket", "redis", "remaining"))
		}
	}
}
