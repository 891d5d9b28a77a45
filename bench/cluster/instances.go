package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
	"github.com/caddygate/ratelimit/redisbucket"
)

// instanceCount is how many gateways the cluster has.
const instanceCount = 20

// instance is what one gateway process has: its own connections, its own memory,
// and the layers in the order in which the gateway stacks them.
type instance struct {
	node    *redisbucket.Node
	limiter limit.Limiter
	stop    func()
}

// startInstances starts all instances against one address and warms them.
func startInstances(addr string) ([]*instance, error) {
	all := make([]*instance, 0, instanceCount)
	for range instanceCount {
		i, err := newInstance(addr)
		if err != nil {
			stopInstances(all)
			return nil, err
		}
		all = append(all, i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	for at, i := range all {
		wait.Go(func() { i.warm(ctx, at) })
	}
	wait.Wait()
	return all, nil
}

func newInstance(addr string) (*instance, error) {
	node, err := redisbucket.NewNode(redisbucket.Options{URL: "redis://" + addr + "/0"})
	if err != nil {
		return nil, fmt.Errorf("making an instance: %w", err)
	}
	return &instance{
		node: node,
		limiter: &front.Failover{
			Primary: &front.Prefetch{
				Next: &front.Shards{
					Next: &front.Memory{Next: redisbucket.New(node, ""), Store: front.NewMemoryStore()},
				},
				Store:     front.NewPrefetchStore(),
				Instances: front.Fixed(instanceCount),
			},
			Local:     localbucket.New(localbucket.NewStore(), localbucket.Options{}),
			Instances: front.Fixed(instanceCount),
		},
		stop: node.Start(nil),
	}, nil
}

// warm makes connections and lets the script be known, about tenants of its own.
func (i *instance) warm(ctx context.Context, at int) {
	i.node.Warm(ctx)
	bucket := limit.Bucket{Key: limit.Key{Tenant: fmt.Sprintf("warm-%d", at), Route: route}, Rule: tenantRule(1000, modes[0])}
	for range 50 {
		_, _ = i.limiter.Take(ctx, limit.Request{Buckets: []limit.Bucket{bucket}, Cost: 1, Count: 1})
		time.Sleep(time.Millisecond)
	}
}

func stopInstances(all []*instance) {
	var wait sync.WaitGroup
	for _, i := range all {
		wait.Go(func() {
			i.stop()
			_ = i.node.Destruct()
		})
	}
	wait.Wait()
}
