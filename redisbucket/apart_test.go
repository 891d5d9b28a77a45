package redisbucket

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// TestSeveralSlotsInOneOrder: where there is much less comes first; what has about as
// much comes in an order that is the same for every request.
func TestSeveralSlotsInOneOrder(t *testing.T) {
	t.Parallel()
	with := func(slot uint16, remaining int64) *fragment {
		return &fragment{slot: slot, at: []int{0}, decision: limit.Decision{First: limit.State{Remaining: remaining, RetryAfter: 1}}}
	}
	for name, slots := range map[string]struct {
		given []*fragment
		want  []uint16
	}{
		"much less":      {[]*fragment{with(1, 1000), with(2, 20)}, []uint16{2, 1}},
		"as much":        {[]*fragment{with(2, 60), with(1, 60)}, []uint16{1, 2}},
		"about as much":  {[]*fragment{with(2, 59), with(1, 60)}, []uint16{1, 2}},
		"one and none":   {[]*fragment{with(1, 5), with(2, 4)}, []uint16{2, 1}},
		"one, as of all": {[]*fragment{with(3, 1<<40), with(2, 1<<31-1), with(1, 1<<41)}, []uint16{2, 3, 1}},
	} {
		inOrder(slots.given, 5)
		for i, f := range slots.given {
			require.Equal(t, slots.want[i], f.slot, name)
		}
	}
}

// TestSeveralSlotsNeverTooMuch takes costs and counts at random from buckets of
// several slots, of which each is in several requests at once, and holds what was
// granted against each limit.
func TestSeveralSlotsNeverTooMuch(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	const buckets, capacity = 5, 60
	var mu sync.Mutex
	var wait sync.WaitGroup
	var spent [buckets]int64
	for i := range 200 {
		wait.Go(func() {
			req := limit.Request{Cost: int64(1 + i%3), Count: int64(1 + i%4), Deadline: time.Now().Add(20 * patience)}
			for k := range 2 + i%3 {
				b := (i/3 + k) % buckets
				algorithm := limit.TokenBucket
				if b == 1 {
					algorithm = limit.SlidingWindowLog
				}
				req.Buckets = append(req.Buckets, limit.Bucket{Key: limit.Key{Tenant: tenants(buckets)[b], Route: "a"}, Rule: ruleOf(t, algorithm, capacity, 0.0001)})
			}
			d, err := c.Take(context.Background(), req)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for k := range req.Buckets {
				spent[(i/3+k)%buckets] += d.Granted * req.Cost
			}
		})
	}
	wait.Wait()
	for b, n := range spent {
		require.LessOrEqual(t, n, int64(capacity), "bucket %d", b)
	}
}
