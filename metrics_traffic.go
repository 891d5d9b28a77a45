package ratelimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

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

// decisionBuckets are in seconds: close where an answer in memory becomes one of
// Redis' (0.1 ms), and between 1 ms and the 5 ms that a decision may wait.
func decisionBuckets() []float64 {
	return []float64{5e-6, 2e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 7.5e-3, 1e-2, 0.025, 0.1, 0.25, 1}
}
