package ratelimit

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

// answerStatus tells how the gateway fares.
func answerStatus(_ context.Context, app *App, _ *adminapi.Query) (any, error) {
	answer := &adminapi.Status{
		Version: moduleVersion(), Caddy: caddyVersion(), Source: app.decider(), Deciding: app.deciding(), Instances: app.instances(),
		Region: app.regionStatus(), StaticRules: app.static.Len(), NoRoute: app.strayRules(), Routes: app.routeNames(mostRoutes),
		Memory: adminapi.Memory{MaxKeys: app.maxKeys(), Keys: map[string]int{"local": app.memory.local.Len()}},
	}
	if answer.Routes == nil {
		answer.Routes = []string{}
	}
	if app.client != nil {
		answer.Memory.Keys["remembered"] = app.memory.refusals.Len()
		answer.Memory.Keys["prefetch"] = app.memory.ahead.Len()
		answer.Fallback = app.fallbackWord()
		answer.Redis = &adminapi.Redis{
			KeyPrefix: app.Redis.keyPrefix(), TimeoutMs: millis(app.Redis.timeout()),
			Nodes: nodesOf(app.client.Status()),
		}
	}
	answer.Rules, answer.Fleet, answer.Charges = app.rulesStatus(), app.fleetStatus(), app.chargesStatus()
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
func nodesOf(status redisbucket.Status) []adminapi.Node {
	if len(status.Nodes) == 0 {
		return []adminapi.Node{newNodeStatus(redisbucket.NodeStatus{
			Address: status.Address, Breaker: status.Breaker, LastReason: status.LastReason, LastWords: status.LastWords, LastFailure: status.LastFailure,
		})}
	}
	nodes := make([]adminapi.Node, len(status.Nodes))
	for i, node := range status.Nodes {
		nodes[i] = newNodeStatus(node)
	}
	return nodes
}

func newNodeStatus(status redisbucket.NodeStatus) adminapi.Node {
	node := adminapi.Node{Address: status.Address, Breaker: status.Breaker, Connections: status.Connections, Since: timeOrNil(status.Since)}
	if status.LastReason != "" {
		node.LastError = &adminapi.NodeError{
			Reason: status.LastReason, Words: status.LastWords, At: status.LastFailure.UTC(), AgoSeconds: seconds(time.Since(status.LastFailure)),
		}
	}
	return node
}

func (a *App) rulesStatus() *adminapi.RulesInForce {
	if a.source == nil {
		return nil
	}
	status, snapshot := a.source.Status(), a.source.Snapshot()
	answer := &adminapi.RulesInForce{
		State: adminapi.RulesPolling, Hash: status.Hash, Rules: status.Rules, Tenants: snapshot.Members(),
		LastSuccess: timeOrNil(status.LastSuccess), PollOnly: status.PollOnly,
		Failures: status.Failures, LastError: status.LastError,
	}
	if snapshot != nil {
		age := seconds(status.Age)
		answer.AgeSeconds = &age
	}
	switch {
	case !status.Running:
		answer.State = adminapi.RulesStopped
	case snapshot == nil:
		answer.State = adminapi.RulesUnknown
	case status.LastSuccess.IsZero():
		answer.State = adminapi.RulesStored
	case status.Listening:
		answer.State = adminapi.RulesListening
	}
	rejected, rejections := snapshot.Rejected()
	answer.Rejected = rejected
	for _, r := range rejections {
		answer.Rejections = append(answer.Rejections, adminapi.RejectedRow{ID: r.ID, Route: r.Route, Reason: r.Reason})
	}
	return answer
}

// regionStatus returns nil where there are no regions.
func (a *App) regionStatus() *adminapi.Region {
	if a.Region == nil {
		return nil
	}
	if a.regions == nil {
		return &adminapi.Region{Name: a.Region.Name, Share: a.givenShare(), State: adminapi.ShareGiven}
	}
	known := a.regions.Status()
	status := &adminapi.Region{
		Name: a.Region.Name, Share: known.Share, State: adminapi.ShareMeasured, OwnShares: known.Limits,
		AgeSeconds: known.Age.Round(time.Millisecond).Seconds(), LastError: known.LastError, Version: known.Version,
	}
	switch {
	case known.Version == 0:
		status.State = adminapi.ShareUnknown
	case known.Lapsed:
		status.State = adminapi.ShareLapsed
	}
	return status
}

// fleetStatus returns nil where the gateways do not count themselves, or nothing
// is known yet.
func (a *App) fleetStatus() *adminapi.Fleet {
	if a.fleet == nil {
		return nil
	}
	known := a.fleet.Status()
	if known.Answered.IsZero() {
		return nil
	}
	status := &adminapi.Fleet{
		ID: known.ID, Counted: known.Counted, Disagree: known.Disagree(), LastError: known.LastReason,
		OldestSeconds: known.Oldest.Seconds(), HeartbeatAgeSeconds: known.Age.Round(time.Millisecond).Seconds(),
	}
	for _, group := range known.Rules {
		status.Rules = append(status.Rules, adminapi.FleetRules(group))
	}
	return status
}

// chargesStatus returns nil where no handler charges by answers or bans.
func (a *App) chargesStatus() *adminapi.Charges {
	if !slices.ContainsFunc(a.handlers, func(h *Handler) bool { return len(h.Charge) > 0 || h.Ban != nil }) {
		return nil
	}
	return &adminapi.Charges{
		Unread: totalOf(processCollectors().unread), Lost: totalOf(processCollectors().lost), Bans: a.bans.holding(time.Now()),
	}
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
				return dependency.Version + ", built from a folder"
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
