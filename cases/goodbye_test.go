package cases_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// TestS3GoodBye stops gateways under load. Until the last answer, all are what they
// were before, and the last refusals are counted. Caddy stops its apps in an order of
// chance; 20 exits are enough to be sure.
func TestS3GoodBye(t *testing.T) {
	t.Parallel()
	exits := 2
	if servertest.Thorough(t, "20 exits instead of 2") {
		exits = 20
	}
	for name, region := range map[string]string{"whole": "", "region": "region eu auto"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := servertest.Redis(t), servertest.Postgres(t)
			postgres.Exec(t, rulecache.Schema("", ""))
			postgres.Exec(t, regions.Schema(""))
			postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'api', 1000000, 1)`)
			file := strings.Replace(gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL("")+
				"\ndefault 1/1000s burst 100\ninstances 1\nfallback deny\n"+region+"\n}", gateway.Answers("rate_limit api")), "auto_https off", "auto_https off\nshutdown_delay 1s", 1)
			for range exits {
				require.NoError(t, redis.Client(t).FlushAll(t.Context()).Err())
				g := gateway.Start(t, file)
				var first gateway.Reply
				gateway.Eventually(t, 30*time.Second, "Redis decides by the rule", func() bool {
					first = g.Get("/", "shop-a")
					return first.Source() == "redis" && first.Field("X-RateLimit-Limit") > 900_000
				})
				g.Passes(100, "over")
				goodBye(t, g, first.Field("X-RateLimit-Limit"))
			}
		})
	}
}

// goodBye stops the gateway while three clients ask as shop-a and one as a tenant
// that is over its limit.
func goodBye(t *testing.T, g *gateway.Process, limit int) {
	t.Helper()
	var refused, after atomic.Int64
	var stopping atomic.Bool
	var clients sync.WaitGroup
	for i := range 4 {
		tenant := "shop-a"
		if i == 0 {
			tenant = "over"
		}
		clients.Go(func() {
			for {
				late := stopping.Load()
				got, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {tenant}})
				if err != nil {
					return // it serves no more
				}
				if late {
					after.Add(1)
				}
				if tenant == "over" {
					if got.Status == http.StatusTooManyRequests {
						refused.Add(1)
					}
					continue
				}
				if got.Status != http.StatusOK || got.Source() != "redis" || got.Field("X-RateLimit-Limit") != limit {
					t.Errorf("stopping %v: status %d from %s, limit %d instead of %d", late, got.Status, got.Source(), got.Field("X-RateLimit-Limit"), limit)
					return
				}
			}
		})
	}
	gateway.Eventually(t, 10*time.Second, "refusals come", func() bool { return refused.Load() > 10 })
	stopping.Store(true)
	require.NoError(t, g.Cmd.Process.Signal(syscall.SIGTERM))
	clients.Wait()
	g.Stop()
	require.Greater(t, after.Load(), int64(10), "it has served on")
	require.GreaterOrEqual(t, loggedRefusals(t, g), refused.Load())
}

// loggedRefusals sums what the log tells of refusals.
func loggedRefusals(t *testing.T, g *gateway.Process) (sum int64) {
	t.Helper()
	for line := range strings.SplitSeq(g.Log(), "\n") {
		var entry struct {
			Message string `json:"msg"`
			Refused int64  `json:"refused"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		switch entry.Message {
		case "rate limit exceeded":
			sum++
		case "rate limit exceeded again", "rate limit exceeded by others":
			sum += entry.Refused
		}
	}
	return sum
}
