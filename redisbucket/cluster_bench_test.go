package redisbucket

import (
	"fmt"
	"testing"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// BenchmarkCluster compares decisions per second of a cluster of three masters with
// those of one server, in turns: an iteration is a turn of each. On a machine with
// fewer cores than servers it tells what the pipelines cost, not what they gain.
func BenchmarkCluster(b *testing.B) {
	one := ours(b, started(b, Options{URLs: []string{servertest.Redis(b).URL()}}))
	three := ours(b, started(b, Options{URLs: servertest.Cluster(b, servertest.ClusterOptions{}).URLs()}))
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			perSecond(b, callers, one)
			perSecond(b, callers, three)
			var rates, ratios []float64
			for b.Loop() {
				rate := perSecond(b, callers, three)
				rates = append(rates, rate)
				ratios = append(ratios, rate/perSecond(b, callers, one))
			}
			b.ReportMetric(median(rates), "decisions/s")
			b.ReportMetric(median(ratios), "of-one-server")
			b.ReportMetric(0, "ns/op")
		})
	}
}
