package ratelimit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fleetStatus is what a gateway knows of those that count themselves with it.
type fleetStatus struct {
	ID                  string       `json:"id"`
	Counted             int64        `json:"counted"`
	OldestSeconds       float64      `json:"oldest_seconds"`
	HeartbeatAgeSeconds float64      `json:"heartbeat_age_seconds"`
	LastError           string       `json:"last_error,omitempty"`
	Disagree            int64        `json:"disagree"`
	Rules               []fleetRules `json:"rules"`
}

// fleetRules is how many gateways have the rules with one hash.
type fleetRules struct {
	Hash      string `json:"hash"`
	Instances int64  `json:"instances"`
}

// fleetStatus returns nil where the gateways do not count themselves, or nothing
// is known yet.
func (a *App) fleetStatus() *fleetStatus {
	if a.fleet == nil {
		return nil
	}
	known := a.fleet.Fleet()
	if known.Answered.IsZero() {
		return nil
	}
	status := &fleetStatus{
		ID: known.ID, Counted: known.Counted, Disagree: known.Disagree(), LastError: known.LastReason,
		OldestSeconds: known.Oldest.Seconds(), HeartbeatAgeSeconds: known.Age.Round(time.Millisecond).Seconds(),
	}
	for _, group := range known.Rules {
		status.Rules = append(status.Rules, fleetRules(group))
	}
	return status
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
	if a.node == nil {
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
