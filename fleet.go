package ratelimit

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddygate/ratelimit/fleet"
	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/redisbucket"
)

// provisionFleet takes the heartbeat, where the gateways count themselves. Where
// they do not, there is none.
func (a *App) provisionFleet(identity string) error {
	if !a.InstancesAuto {
		return nil
	}
	heartbeat, release, err := takeHeartbeat(identity, a.Redis.keyPrefix())
	if err != nil {
		return fmt.Errorf("instances_auto: %w", err)
	}
	a.releases = append(a.releases, release)
	a.fleet = heartbeat
	return nil
}

// startFleet keeps the heartbeat until stop, which must come before that of the node.
func (a *App) startFleet() (stop func()) {
	if a.fleet == nil {
		return func() {}
	}
	return a.fleet.Start(a.client, fleet.Options{
		Reason: redisbucket.Reason,
		Until:  int64(a.configuredInstances()), Rules: a.rulesHash, Observe: a.observeFleet,
	})
}

// instances is by how many gateways limits are divided now: those that have
// counted themselves, or the number of the configuration.
func (a *App) instances() int {
	if a.fleet == nil {
		return a.configuredInstances()
	}
	return int(a.fleet.Instances(int64(a.configuredInstances())))
}

// sharers is instances for the limiters, which ask it at each decision.
func (a *App) sharers() int64 { return int64(a.instances()) }

func (a *App) configuredInstances() int {
	if a.Instances == nil {
		return 1
	}
	return *a.Instances
}

// rulesHash is that of the rules from PostgreSQL, empty while none are known, or,
// without PostgreSQL, of the static ones.
func (a *App) rulesHash() string {
	rules := a.static
	if a.source != nil {
		rules = a.source.Snapshot()
	}
	if rules == nil {
		return ""
	}
	return rules.Hash()
}

// checkInstances holds the number against its bounds, also the one that counts
// until the gateways know each other.
func (a *App) checkInstances() error {
	bound := instanceBounds.Check("instances", a.configuredInstances())
	switch {
	case !a.InstancesAuto:
		return bound
	case a.Redis == nil:
		return errors.New("instances_auto: the gateways count themselves in Redis, so that redis is needed; without it a gateway shares its limits with nobody")
	case a.Instances == nil:
		return fmt.Errorf("instances: beside instances_auto it is needed, as the number that counts until the gateways know each other: allowed are %d to %d", instanceBounds.Min, instanceBounds.Max)
	}
	return bound
}

// parseInstances reads `instances <n>` or `instances auto <n until known>`.
func (a *App) parseInstances(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) > 0 && args[0] == "auto" {
		a.InstancesAuto = true
		args = args[1:]
	}
	if len(args) != 1 {
		return d.Errf("instances takes a number from %d to %d, or auto and the number that counts until the gateways know each other, such as auto 3",
			instanceBounds.Min, instanceBounds.Max)
	}
	n, err := block.ParseInteger("instances", args[0], instanceBounds)
	if err != nil {
		return d.Errf("%w, and auto with the number that counts until the gateways know each other, such as auto 3", err)
	}
	a.Instances = &n
	return nil
}

// observeFleet logs what changes among the gateways. Each change of state comes once.
func (a *App) observeFleet(event fleet.Event) {
	known := event.Status
	level, fields := zapcore.InfoLevel, []zap.Field{zap.Int64("instances", known.Instances)}
	switch event.Kind {
	case fleet.InstancesChanged:
		fields = append(fields, zap.Int64("before", event.Was), zap.Int64("counted", known.Counted))
	case fleet.HeartbeatLost:
		level, fields = zapcore.WarnLevel, append(fields, zap.String("reason", known.LastReason))
	case fleet.RulesDisagree:
		level, fields = zapcore.WarnLevel, append(fields, zap.Int64("counted", known.Counted), zap.Int64("disagree", known.Disagree()),
			zap.String("hash", a.rulesHash()), zap.String("most", known.Rules[0].Hash))
	default:
	}
	a.logger.Log(level, event.Kind.String(), fields...)
}

// The state that collectFleet tells.
var (
	instancesDesc    = stateDesc("instances", "Gateways that share the limits: what each limit is divided by while Redis cannot answer.")
	countedDesc      = stateDesc("instances_counted", "Gateways that kept their heartbeat at the last count; lower than instances for a while after one has gone.")
	disagreeDesc     = stateDesc("instances_disagree", "Gateways whose rules are not those of the most gateways.")
	heartbeatAgeDesc = stateDesc("heartbeat_age_seconds", "Seconds since Redis last answered this gateway's heartbeat.")
)

// collectFleet tells what is known of the gateways that share the limits.
func (a *App) collectFleet(gauge func(desc *prometheus.Desc, value float64, labels ...string)) {
	if a.client == nil {
		return
	}
	gauge(instancesDesc, float64(a.instances()))
	status := a.fleetStatus()
	if status == nil {
		return
	}
	gauge(countedDesc, float64(status.Counted))
	gauge(disagreeDesc, float64(status.Disagree))
	gauge(heartbeatAgeDesc, status.HeartbeatAgeSeconds)
}
