package cases_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// TestK13PinnedMemory sends names that are a small part of a large header, and names
// that are large themselves: what is kept of a request is no more than itself, and
// bounded in what is logged.
func TestK13PinnedMemory(t *testing.T) {
	t.Parallel()
	large := strings.Repeat(" ", 500_000)
	for name, test := range map[string]struct {
		names int
		value func(i int) string
	}{
		"spaces and four letters": {200, func(i int) string { return large + fmt.Sprintf("n%03x", i) }},
		"all of it letters":       {100, func(i int) string { return strings.ReplaceAll(large, " ", "n") + fmt.Sprint(i) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			postgres := servertest.Postgres(t)
			postgres.Exec(t, rulecache.Schema("", ""))
			postgres.Exec(t, regions.Schema(""))
			g := gateway.Start(t, gateway.Site(`servers {
		protocols h1 h2c
		max_header_size 1MB
	}
	rate_limit {
		redis `+servertest.Redis(t).URL()+` {
			timeout 5s
		}
		rules `+postgres.URL("")+`
		region eu auto {
			rebalance 24h
		}
	}`, gateway.Answers("rate_limit a {\nunknown default\nlog_key\nlimit 2/1000s\n}")))
			gateway.Eventually(t, 30*time.Second, "the share is known", func() bool {
				return g.Metric(`caddy_rate_limit_region_share{region="eu"}`) > 0.99
			})
			send := overHTTP2(t, g.Addr)
			send(test.value(test.names)) // what a first request makes
			before := g.Heap()
			for i := range test.names {
				require.Equal(t, http.StatusOK, send(test.value(i)))
				if i%10 == 0 {
					require.Equal(t, http.StatusTooManyRequests, send(test.value(i)))
				}
			}
			after := min(g.Heap(), g.Heap(), g.Heap()) // at once: what the regions count is forgotten soon
			t.Logf("the heap grew by %d KB", (after-before)>>10)
			require.Less(t, after, before+10<<20)
			require.Contains(t, g.Log(), `"rate limit exceeded"`)
			require.Contains(t, g.AdminGet("/rate_limit/top"), `"route": "a"`)
			for line := range strings.SplitSeq(g.Log(), "\n") {
				require.Less(t, len(line), 2000)
			}
		})
	}
}

// overHTTP2 returns how to ask with an API key, which HTTP/2 takes as it is, with the
// space before it.
func overHTTP2(t *testing.T, addr string) (send func(key string) (status int)) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	return func(key string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+addr, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Api-Key", key)
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		require.Equal(t, 2, res.ProtoMajor)
		return res.StatusCode
	}
}
