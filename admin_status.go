package ratelimit

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

// statusAnswer is the answer to GET /rate_limit/status. docs/admin.md says what the
// fields tell.
type statusAnswer struct {
	Version     string        `json:"version"`
	Caddy       string        `json:"caddy"`
	Source      string        `json:"source"`
	Deciding    string        `json:"deciding"`
	Instances   int           `json:"instances"`
	Fleet       *fleetStatus  `json:"fleet,omitempty"`
	Fallback    string        `json:"fallback,omitempty"`
	Redis       *redisStatus  `json:"redis,omitempty"`
	Rules       *rulesStatus  `json:"rules,omitempty"`
	Region      *regionStatus `json:"region,omitempty"`
	StaticRules int           `json:"static_rules"`
	NoRoute     int           `json:"rules_for_no_route"`
	Routes      []string      `json:"routes"`
	Memory      memoryStatus  `json:"memory"`
}

// redisStatus is how the Redis fares that the gateway talks to.
type redisStatus struct {
	KeyPrefix string       `json:"key_prefix"`
	TimeoutMs float64      `json:"timeout_ms"`
	Nodes     []nodeStatus `json:"nodes"`
}

// nodeStatus is how one node fares.
type nodeStatus struct {
	Address     string       `json:"address"`
	Breaker     string       `json:"breaker"`
	Since       *time.Time   `json:"since,omitempty"`
	Connections int          `json:"connections"`
	LastError   *errorStatus `json:"last_error,omitempty"`
}

// errorStatus is the last error of a node, by its kind.
type errorStatus struct {
	Reason     string    `json:"reason"`
	At         time.Time `json:"at"`
	AgoSeconds float64   `json:"ago_seconds"`
	Words      string    `json:"words,omitempty"`
}

// rulesStatus is how the rules in PostgreSQL fare.
type rulesStatus struct {
	State       string           `json:"state"`
	Hash        string           `json:"hash,omitempty"`
	Rules       int              `json:"rules"`
	AgeSeconds  *float64         `json:"age_seconds,omitempty"`
	LastSuccess *time.Time       `json:"last_success,omitempty"`
	PollOnly    string           `json:"poll_only,omitempty"`
	Failures    int              `json:"failures"`
	LastError   string           `json:"last_error,omitempty"`
	Rejected    int              `json:"rejected"`
	Rejections  []rejectedStatus `json:"rejections,omitempty"`
}

// rejectedStatus is a row of the table that is no rule.
type rejectedStatus struct {
	ID     string `json:"id"`
	Route  string `json:"route,omitempty"`
	Reason string `json:"reason"`
}

// memoryStatus is how many buckets the gateway keeps something of.
type memoryStatus struct {
	MaxKeys int            `json:"max_keys"`
	Keys    map[string]int `json:"keys"`
}

// The states of the rules.
const (
	rulesListening = "listening"
	rulesPolling   = "polling"
	rulesStopped   = "stopped"
	rulesUnknown   = "unknown"
	rulesStored    = "stored"
)

// answerStatus tells how the gateway fares.
func answerStatus(_ context.Context, app *App, _ *adminQuery) (any, error) {
	answer := &statusAnswer{
		Version: moduleVersion(), Caddy: caddyVersion(), Source: app.decider(), Deciding: app.deciding(), Instances: app.instances(),
		Region: app.regionStatus(), StaticRules: app.static.Len(), NoRoute: app.strayRules(), Routes: app.routeNames(mostRoutes),
		Memory: memoryStatus{MaxKeys: app.maxKeys(), Keys: map[string]int{"local": app.memory.local.Len()}},
	}
	if answer.Routes == nil {
		answer.Routes = []string{}
	}
	if app.client != nil {
		answer.Memory.Keys["remembered"] = app.memory.refusals.Len()
		answer.Memory.Keys["prefetch"] = app.memory.ahead.Len()
		answer.Fallback = app.fallbackWord()
		answer.Redis = &redisStatus{
			KeyPrefix: app.Redis.keyPrefix(), TimeoutMs: millis(app.Redis.timeout()),
			Nodes: nodesOf(app.client.Status()),
		}
	}
	answer.Rules, answer.Fleet = app.rulesStatus(), app.fleetStatus()
	return answer, nil
}

// mostRoutes is how many routes the status lists.
const mostRoutes = 1000

// decider is who decides now, as the metric's source tells it, or the fallback
// where that is no bucket. Of a cluster, one master is enough.
func (a *App) decider() string {
	if a.client == nil || a.ignorant() {
		return limit.SourceLocal.String()
	}
	decides := func(node redisbucket.NodeStatus) bool {
		return node.Connections > 0 && (node.Breaker == "closed" || node.Breaker == "off")
	}
	if slices.ContainsFunc(a.client.Status().Nodes, decides) {
		return limit.SourceRedis.String()
	}
	return a.fallbackWord()
}

func (a *App) fallbackWord() string {
	if a.Fallback == "" {
		return front.FallbackLocal.String()
	}
	return a.Fallback
}

// nodesOf lists the servers; the whole as one while nobody has said which there are.
func nodesOf(status redisbucket.Status) []nodeStatus {
	if len(status.Nodes) == 0 {
		return []nodeStatus{newNodeStatus(redisbucket.NodeStatus{
			Address: status.Address, Breaker: status.Breaker, LastReason: status.LastReason, LastWords: status.LastWords, LastFailure: status.LastFailure,
		})}
	}
	nodes := make([]nodeStatus, len(status.Nodes))
	for i, node := range status.Nodes {
		nodes[i] = newNodeStatus(node)
	}
	return nodes
}

func newNodeStatus(status redisbucket.NodeStatus) nodeStatus {
	node := nodeStatus{Address: status.Address, Breaker: status.Breaker, Connections: status.Connections, Since: timeOrNil(status.Since)}
	if status.LastReason != "" {
		node.LastError = &errorStatus{
			Reason: status.LastReason, Words: status.LastWords, At: status.LastFailure.UTC(), AgoSeconds: seconds(time.Since(status.LastFailure)),
		}
	}
	return node
}

func (a *App) rulesStatus() *rulesStatus {
	if a.source == nil {
		return nil
	}
	status, snapshot := a.source.Status(), a.source.Snapshot()
	answer := &rulesStatus{
		State: rulesPolling, Hash: status.Hash, Rules: status.Rules,
		LastSuccess: timeOrNil(status.LastSuccess), PollOnly: status.PollOnly,
		Failures: status.Failures, LastError: status.LastError,
	}
	if snapshot != nil {
		age := seconds(status.Age)
		answer.AgeSeconds = &age
	}
	switch {
	case !status.Running:
		answer.State = rulesStopped
	case snapshot == nil:
		answer.State = rulesUnknown
	case status.LastSuccess.IsZero():
		answer.State = rulesStored
	case status.Listening:
		answer.State = rulesListening
	}
	rejected, rejections := snapshot.Rejected()
	answer.Rejected = rejected
	for _, r := range rejections {
		answer.Rejections = append(answer.Rejections, rejectedStatus{ID: r.ID, Route: r.Route, Reason: r.Reason})
	}
	return answer
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// seconds is a time in seconds, to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const modulePath = "github.com/caddygate/ratelimit"

// moduleVersion is the version of this module that the binary was built with.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dependency := range info.Deps {
		if dependency.Path == modulePath {
			if dependency.Replace != nil {
				return dependency.Version + " (replaced)"
			}
			return dependency.Version
		}
	}
	return cmp.Or(info.Main.Version, "(devel)")
}

func caddyVersion() string {
	simple, _ := caddy.Version()
	return simple
}
