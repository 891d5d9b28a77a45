package ratelimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// The state that stateCollector tells.
var (
	breakerOpenDesc = stateDesc("breaker_open", "Whether the circuit breaker of the Redis node is open: 1, or 0.", "node")
	rulesDesc       = stateDesc("rules", "Rules that were read from PostgreSQL and are in force.")
	rejectedDesc    = stateDesc("rules_rejected", "Rows of the table that are no rule and were skipped.")
	rulesAgeDesc    = stateDesc("rules_age_seconds", "Seconds since the rules were last known to be those of the table; absent while none are known.")
	rulesInfoDesc   = stateDesc("rules_info", "The hash of the rules in force, the same on every gateway that has the same rules; always 1; absent while none are known.", "hash")
	triggerDesc     = stateDesc("trigger_connected", "Whether the trigger of the rules would hear of changes: 1, or 0.", "trigger")
	keysDesc        = stateDesc("keys", "Entries that are kept in memory, also those of buckets that are full again, by store.", "store")
	runningDesc     = stateDesc("running_requests", "Requests under a limit of how many run at once that this gateway runs now.")
	maxKeysDesc     = stateDesc("max_keys", "Entries that each store keeps in memory at most.")
)

func stateDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_rate_limit_"+name, help, labels, nil)
}

// stateCollector reads an app's state when it is asked, so that no gauge can be
// left behind by a config that is gone.
type stateCollector struct{ app *App }

// Describe sends what Collect may send.
func (stateCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		breakerOpenDesc, rulesDesc, rejectedDesc, rulesAgeDesc, rulesInfoDesc, triggerDesc, keysDesc, maxKeysDesc, runningDesc,
		instancesDesc, countedDesc, disagreeDesc, heartbeatAgeDesc, regionShareDesc, regionAgeDesc, regionSafeDesc, ignorantDesc,
	} {
		descs <- desc
	}
	describeTraffic(descs)
}

// Collect sends the app's state as it is now.
func (s stateCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	if s.app.memory != nil {
		gauge(maxKeysDesc, float64(s.app.maxKeys()))
		gauge(keysDesc, float64(s.app.memory.local.Len()), "local")
		gauge(runningDesc, float64(s.app.memory.local.AllRunning()))
	}
	if s.app.client != nil {
		gauge(keysDesc, float64(s.app.memory.refusals.Len()), "remembered")
		gauge(keysDesc, float64(s.app.memory.ahead.Len()), "prefetch")
		status := s.app.client.Status()
		if len(status.Nodes) == 0 {
			gauge(breakerOpenDesc, 1, status.Address) // nobody has said yet who serves
		}
		for _, node := range status.Nodes {
			open := 1.0 // also while one call tries whether Redis is back
			if node.Breaker == "closed" || node.Breaker == "off" {
				open = 0
			}
			gauge(breakerOpenDesc, open, node.Address)
			collectTraffic(out, node)
		}
	}
	s.app.collectRegion(gauge)
	s.app.collectFleet(gauge)
	s.app.collectKnowledge(gauge)
	if s.app.source == nil {
		return
	}
	rules := s.app.source.Status()
	gauge(rulesDesc, float64(rules.Rules))
	gauge(rejectedDesc, float64(rules.Rejected))
	if rules.Hash != "" {
		gauge(rulesAgeDesc, rules.Age.Seconds())
		gauge(rulesInfoDesc, 1, rules.Hash)
	}
	if s.app.trigger != nil {
		connected := 0.0
		if s.app.trigger.Connected() {
			connected = 1
		}
		gauge(triggerDesc, connected, s.app.trigger.name)
	}
	collectLoads(out, rules)
}

// What stateCollector tells of the traffic to Redis and PostgreSQL.
var (
	connectionsDesc = stateDesc("redis_connections", "Connections to the Redis node that are up.", "node")
	callsDesc       = stateDesc("redis_call_seconds", "Seconds that script calls which Redis answered took, by node.", "node")
	entriesDesc     = stateDesc("redis_call_entries_total", "Entries of the script calls that Redis answered, by node: by the number of calls, it is the mean size of a batch.", "node")
	listeningDesc   = stateDesc("rules_listening", "Whether changes of the rules are announced: 1, or 0 while rules are polled only.")
	loadsDesc       = stateDesc("rules_loads_total", "Looks at the table of rules, by result: ok, or failed.", "result")
)

func describeTraffic(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{connectionsDesc, callsDesc, entriesDesc, listeningDesc, loadsDesc} {
		descs <- desc
	}
}

// collectTraffic sends what one server was asked.
func collectTraffic(out chan<- prometheus.Metric, status redisbucket.NodeStatus) {
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(status.Connections), status.Address)
	out <- prometheus.MustNewConstMetric(entriesDesc, prometheus.CounterValue, float64(status.Traffic.Entries), status.Address)
	calls, buckets := uint64(0), map[float64]uint64{}
	for i, bound := range redisbucket.RoundTripBounds() {
		calls += status.Traffic.Calls[i]
		buckets[bound.Seconds()] = calls
	}
	calls += status.Traffic.Calls[redisbucket.RoundTrips-1]
	out <- prometheus.MustNewConstHistogram(callsDesc, calls, status.Traffic.Seconds, buckets, status.Address)
}

// collectLoads sends how the rules arrive.
func collectLoads(out chan<- prometheus.Metric, status rulecache.Status) {
	listening := 0.0
	if status.Listening {
		listening = 1
	}
	out <- prometheus.MustNewConstMetric(listeningDesc, prometheus.GaugeValue, listening)
	out <- prometheus.MustNewConstMetric(loadsDesc, prometheus.CounterValue, float64(status.Loads), "ok")
	out <- prometheus.MustNewConstMetric(loadsDesc, prometheus.CounterValue, float64(status.FailedLoads), "failed")
}

// Interface guards
var _ prometheus.Collector = stateCollector{}
