package browser

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// gateway is an admin API whose answers a test sets.
type gateway struct {
	address string

	mu      sync.Mutex
	answers map[string]any // by the path below /rate_limit/
	fails   map[string]func(http.ResponseWriter)
	asked   []string // method, path and form of each call that is no GET
}

const (
	steps       = 90
	stepSeconds = 10
	redisNode   = "10.0.0.5:6379/0"
	setA        = "de54c935494ca25f5eaed7c82fe4371c"
)

// newGateway is one of a fleet where all is well.
func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{fails: map[string]func(http.ResponseWriter){}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	g.address = server.Listener.Addr().String()
	age := 0.4
	g.answers = map[string]any{
		"status": &adminapi.Status{
			Version: "v0.3.0", Caddy: "v2.11.9", Source: "redis", Deciding: "shared", Instances: 20, Fallback: "local",
			Redis:  &adminapi.Redis{KeyPrefix: "rl", TimeoutMs: 5, Nodes: []adminapi.Node{{Address: redisNode, Breaker: "closed", Connections: 4}}},
			Rules:  &adminapi.RulesInForce{State: "listening", Hash: setA, Rules: 3012, AgeSeconds: &age},
			Routes: []string{"create-order", "list-orders", "login"},
			Memory: adminapi.Memory{MaxKeys: 1000000, Keys: map[string]int{"local": 3, "remembered": 12, "prefetch": 40}},
		},
		"history": history(flat("granted", "redis", 612), flat("granted", "prefetch", 80), flat("refused", "redis", 3), flat("refused", "remembered", 9)),
		"events":  &adminapi.Events{Events: []adminapi.Event{}},
		"top": &adminapi.Top{Buckets: []adminapi.TopBucket{
			bucket("shop-b", "create-order", 41), bucket("shop-r", "list-orders", 12), bucket("~ip-5fe1c4", "login", 3),
		}},
		"asking": map[string]any{"buckets": []map[string]any{
			{"tenant": "shop-a", "key": "shop-a", "route": "create-order", "requests": 1811}, {"tenant": "shop-b", "key": "shop-b", "route": "create-order", "requests": 960},
		}},
		"rules/refresh": map[string]any{"rules": 3012, "rejected": 0, "changed": false},
		"bucket":        &adminapi.Reset{Buckets: []adminapi.ResetBucket{{Name: "shop-b", Route: "create-order", Here: true, Redis: "reset"}}},
		"explain":       explanation,
	}
	return g
}

// status is the answer that a test changes.
func (g *gateway) status() *adminapi.Status { return g.answers["status"].(*adminapi.Status) }

// set changes what the gateway answers.
func (g *gateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *gateway) calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := strings.TrimPrefix(r.URL.Path, "/rate_limit/")
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Method != http.MethodGet {
		g.asked = append(g.asked, r.Method+" "+call+" "+string(body))
	}
	if call == "top" && r.URL.Query().Get("by") == "requests" {
		call = "asking"
	}
	if fail := g.fails[call]; fail != nil {
		fail(w)
		return
	}
	_ = json.NewEncoder(w).Encode(g.answers[call])
}

func bucket(tenant, route string, refused int64) adminapi.TopBucket {
	return adminapi.TopBucket{Tenant: tenant, Stored: tenant, Key: tenant, Route: route, Refused: refused}
}

func history(series ...adminapi.HistorySeries) *adminapi.History {
	now := time.Now().UTC()
	return &adminapi.History{StepSeconds: stepSeconds, From: now.Add(-steps * stepSeconds * time.Second), At: now, Series: series}
}

// flat is a series of about so many a second, with what real traffic has of waves.
func flat(outcome, source string, perSecond float64) adminapi.HistorySeries {
	return shaped(outcome, source, func(int) float64 { return perSecond })
}

// shaped is a series by a function of the step, 0 the oldest, in requests a second.
func shaped(outcome, source string, rate func(step int) float64) adminapi.HistorySeries {
	counts := make([]int64, steps)
	for i := range counts {
		wave := 1 + 0.06*math.Sin(float64(i)/7) + 0.02*math.Sin(float64(i*i%17))
		counts[i] = int64(rate(i) * wave * stepSeconds)
	}
	return adminapi.HistorySeries{Outcome: outcome, Source: source, Counts: counts}
}

// from is a rate that begins at a step, and until one that ends there.
func from(step int, rate float64) func(int) float64 {
	return func(i int) float64 { return map[bool]float64{true: rate}[i >= step] }
}

func until(step int, rate float64) func(int) float64 {
	return func(i int) float64 { return map[bool]float64{true: rate}[i < step] }
}

// ago is a time of day of a step.
func ago(step int) time.Time {
	return time.Now().Add(-time.Duration(steps-step) * stepSeconds * time.Second).UTC()
}

// explanation is what is answered of a tenant.
var explanation = json.RawMessage(`{"route":"create-order","rules_known":true,"handlers":[{"handlers":1,"routes":["create-order"],
"tenant_from":"{http.request.header.X-Api-Key}","tenant":"shop-b","candidates":[
{"from":"postgres","tenant":"shop-b","route":"create-order","exists":true,"wins":true,"rule":{"capacity":40,"refill_per_second":20}},
{"from":"static","tenant":"shop-b","route":"create-order","exists":false,"wins":false},
{"from":"static","tenant":"*","route":"create-order","exists":true,"wins":false,"rule":{"capacity":5,"refill_per_second":0.016666666666666666}},
{"from":"default","exists":true,"wins":false,"rule":{"capacity":20,"refill_per_second":10}}],
"rule":{"capacity":40,"refill_per_second":20,"algorithm":"token_bucket","mode":"enforce","prefetch":0,"shards":1},"rule_from":"postgres",
"bucket":{"redis_keys":["rl:{shop-b}:create-order"],"redis":{"capacity":40,"remaining":0,"retry_after_ms":48,"reset_after_ms":1998},
"local":{"capacity":2,"remaining":2,"retry_after_ms":0,"reset_after_ms":0}},
"next":{"outcome":"refused","status":429,"route":"create-order","cost":1,"remaining":0,"retry_after":1,"source":"redis"}}]}`)
