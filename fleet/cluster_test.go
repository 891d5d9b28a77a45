package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestHeartbeatInACluster: the number is the same while the slot of the heartbeats
// moves and after it has, when its master fails over, and when that one is killed.
func TestHeartbeatInACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t, servertest.ClusterOptions{Replicas: 1})
	var fellows []*fellow
	for range 3 {
		f := newFellow(t, cluster.URLs()...)
		f.stop = f.start(3)
		t.Cleanup(f.stop)
		fellows = append(fellows, f)
	}
	slot := int(cluster.Servers[0].Client(t).ClusterKeySlot(t.Context(), seenKey).Val())
	requireAnswers := func(when string) {
		t.Helper()
		now := time.Now()
		for _, f := range fellows {
			require.Eventually(t, func() bool {
				fleet := f.Status()
				return fleet.Answered.After(now) && fleet.Counted == 3
			}, 60*time.Second, 5*time.Millisecond, when)
			require.EqualValues(t, 3, f.Instances(99), when)
		}
	}
	requireAnswers("at first")
	from := cluster.MasterOf(t, slot)
	to := cluster.Servers[(slices.Index(cluster.Servers, from)+1)%3]
	cluster.Move(t, slot, to)
	requireAnswers("the slot has moved")
	cluster.Failover(t, cluster.ReplicaOf(t, to))
	requireAnswers("in good order")
	cluster.AwaitHealthy(t)
	cluster.MasterOf(t, slot).Kill(t)
	requireAnswers("its master was killed")
}
