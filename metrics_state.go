package ratelimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// The state that stateCollector tells.
var (
	breakerOpenDesc = stateDesc("breaker_open", "Whether the circuit breaker of the Redis node is open: 1, or 0.", "node")
	connectionsDesc = stateDesc("redis_connections", "Connections to the Redis node that are up.", "node")
	callsDesc       = stateDesc("redis_call_seconds", "Seconds that script calls which Redis answered took, by node.", "node")
	entriesDesc     = stateDesc("redis_call_entries_total", "Entries of the script calls that Redis answered, by node: by the number of calls, it is the mean size of a batch.", "node")
	rulesDesc       = stateDesc("rules", "Rules that were read from PostgreSQL and are in force.")
	rejectedDesc    = stateDesc("rules_rejected", "Rows of the table that are no rule and were skipped.")
	rulesAgeDesc    = stateDesc("rules_age_seconds", "Seconds since the rules were last known to be those of the table; 0 where none were ever known.")
	rulesInfoDesc   = stateDesc("rules_info", "The hash of the rules in force, the same on every gateway that has the same rules; always 1.", "hash")
	listeningDesc   = stateDesc("rules_listening", "Whether notifications of changed rules arrive: 1, or 0 while rules are polled only.")
	loadsDesc       = stateDesc("rules_loads_total", "Looks at the table of rules, by result: ok, or failed.", "result")
	keysDesc        = stateDesc("keys", "Buckets that are kept in memory, by store.", "store")
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
		breakerOpenDesc, connectionsDesc, callsDesc, entriesDesc, rulesDesc, rejectedDesc,
		rulesAgeDesc, rulesInfoDesc, listeningDesc, loadsDesc, keysDesc,
	} {
		descs <- desc
	}
}

// Collect sends the app's state as it is now.
func (s stateCollector) Collect(out chan<- prometheus.Metric) {
	if s.app.memory != nil {
		gauge(out, keysDesc, float64(s.app.memory.local.Len()), "local")
	}
	if s.app.node != nil {
		gauge(out, keysDesc, float64(s.app.memory.refusals.Len()), "memory")
		gauge(out, keysDesc, float64(s.app.memory.ahead.Len()), "prefetch")
		collectNode(out, s.app.node.Status())
	}
	if s.app.source != nil {
		collectRules(out, s.app.source.Status())
	}
}

// collectNode sends the state of one Redis.
func collectNode(out chan<- prometheus.Metric, status redisbucket.Status) {
	open := status.Breaker != "closed" && status.Breaker != "off" // also while one call tries whether Redis is back
	gauge(out, breakerOpenDesc, number01(open), status.Address)
	gauge(out, connectionsDesc, float64(status.Connections), status.Address)
	counter(out, entriesDesc, float64(status.Traffic.Entries), status.Address)
	calls, buckets := uint64(0), map[float64]uint64{}
	for i, bound := range redisbucket.RoundTripBounds() {
		calls += status.Traffic.Calls[i]
		buckets[bound.Seconds()] = calls
	}
	calls += status.Traffic.Calls[redisbucket.RoundTrips-1]
	out <- prometheus.MustNewConstHistogram(callsDesc, calls, status.Traffic.Seconds, buckets, status.Address)
}

// collectRules sends the state of the rules.
func collectRules(out chan<- prometheus.Metric, status rulecache.Status) {
	gauge(out, rulesDesc, float64(status.Rules))
	gauge(out, rejectedDesc, float64(status.Rejected))
	gauge(out, rulesAgeDesc, status.Age.Seconds())
	gauge(out, rulesInfoDesc, 1, status.Hash)
	gauge(out, listeningDesc, number01(status.Listening))
	counter(out, loadsDesc, float64(status.Loads), "ok")
	counter(out, loadsDesc, float64(status.FailedLoads), "failed")
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func counter(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

func number01(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Interface guards
var _ prometheus.Collector = stateCollector{}
