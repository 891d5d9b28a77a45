package browser

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

func fleet(t *testing.T, n int) []*gateway {
	t.Helper()
	gateways := make([]*gateway, n)
	for i := range gateways {
		gateways[i] = newGateway(t)
	}
	return gateways
}

func TestAllIsWell(t *testing.T) {
	b := open(t, fleet(t, 3)...)
	b.shows("#verdict", "All is well: all 3 gateways answer, Redis decides, 3,012 rules in force")
	b.shows("#outcomes .legend", "granted")
	b.shows("#gateways", setA[:8])
	b.shows("#refused", "create-order")
	require.NotContains(t, b.text("#refused"), "shop-b", "tenants are hidden until they are asked for")
	require.Contains(t, b.text("#refused"), "~ip-5fe1c4")
	b.picture("well")
	b.inOrder()
}

func TestRedisDied(t *testing.T) {
	gateways := fleet(t, 20)
	began := ago(62)
	for i, g := range gateways {
		if i >= 18 {
			continue
		}
		s := g.status()
		s.Source = "local"
		s.Redis.Nodes[0] = adminapi.Node{
			Address: redisNode, Breaker: "open", Since: &began, Connections: 0,
			LastError: &adminapi.NodeError{Reason: "connection", Words: "connection refused", At: ago(89)},
		}
		g.answers["history"] = history(
			shaped("granted", "redis", until(62, 31)), shaped("granted", "local", from(62, 30)),
			shaped("refused", "redis", until(62, 1)), shaped("refused", "local", from(62, 1.4)))
		g.answers["events"] = &adminapi.Events{Last: 1, Events: []adminapi.Event{
			{Number: 1, At: began, Name: "rate_limit_breaker_opened", Data: map[string]any{"node": redisNode, "reason": "connection"}},
		}}
	}
	for _, g := range gateways[18:] {
		g.answers["history"] = history(flat("granted", "redis", 31), flat("refused", "redis", 1))
	}
	b := open(t, gateways...)
	b.shows("#verdict", "Redis "+redisNode+" does not answer since ")
	b.shows("#verdict", "; 18 of 20 gateways decide by themselves")
	b.shows("#sources .legend", "each gateway by itself")
	b.picture("redis-died")
	b.inOrder()
}

func TestTenantFloods(t *testing.T) {
	gateways := fleet(t, 3)
	for _, g := range gateways {
		g.answers["history"] = history(flat("granted", "redis", 120), shaped("refused", "remembered", from(70, 220)), shaped("refused", "redis", from(70, 12)))
		g.answers["top"] = &adminapi.Top{Buckets: []adminapi.TopBucket{bucket("shop-b", "create-order", 13920), bucket("shop-r", "list-orders", 40)}}
	}
	b := open(t, gateways...)
	b.shows("#verdict", "% of all requests are refused")
	b.shows("#verdict", "nearly all of them by s••••••, on create-order")
	b.picture("flood")
	b.dark()
	b.picture("flood-dark")
	b.inOrder()
}

func TestRuleIsWrong(t *testing.T) {
	gateways := fleet(t, 2)
	for _, g := range gateways {
		rules := g.status().Rules
		rules.Rejected = 1
		rules.Rejections = []adminapi.RejectedRow{{ID: "412", Route: "create-order", Reason: "capacity 2000000000 at refill_per_second 0.001 makes a window (capacity / refill_per_second) that is out of bounds: allowed are 1 ms to 10 years"}}
		g.status().NoRoute = 2
	}
	b := open(t, gateways...)
	b.shows("#verdict", "1 row of the table of rules is no rule and does not count: row 412 (create-order): capacity 2000000000")
	b.shows("#findings", "2 rules are for a route that no handler has")
	b.shows("#rules", "412")
	b.picture("rule")
	b.inOrder()
}

func TestNarrow(t *testing.T) {
	gateways := fleet(t, 3)
	gateways[1].set(func() {
		gateways[1].fails["status"] = func(w http.ResponseWriter) { w.WriteHeader(500) }
	})
	b := open(t, gateways...)
	b.size(360, 740)
	b.shows("#verdict", "has not told its status since")
	wide := value[float64](b, "document.documentElement.scrollWidth")
	b.picture("narrow")
	require.LessOrEqual(t, wide, 360.0, "nothing stands out of the window")
	b.inOrder()
}
