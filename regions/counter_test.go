package regions

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func total(demand []Demand) (sum float64) {
	for _, d := range demand {
		sum += d.Units
	}
	return sum
}

func unitsOf(demand []Demand, key limit.Key) float64 {
	for _, d := range demand {
		if d.Key == key {
			return d.Units
		}
	}
	return 0
}

func TestCounterIsExactForFewLimits(t *testing.T) {
	t.Parallel()
	c := newCounter()
	for i := range 1000 {
		c.add(limit.Key{Tenant: fmt.Sprint(i % 10), Route: "api"}, int64(i%10+1))
	}
	drained := c.drain(256)
	require.Len(t, drained, 10)
	for i := range 10 {
		require.EqualValues(t, 100*(i+1), unitsOf(drained, limit.Key{Tenant: fmt.Sprint(i), Route: "api"}))
	}
	require.Empty(t, c.drain(256))
	for i := range 10 {
		c.add(limit.Key{Tenant: fmt.Sprint(i), Route: "api"}, int64(i+1))
	}
	require.Equal(t, []Demand{
		{Key: Everything(), Units: 36}, {Key: limit.Key{Tenant: "8", Route: "api"}, Units: 9}, {Key: limit.Key{Tenant: "9", Route: "api"}, Units: 10},
	}, c.drain(2), "those asked for most, and the rest")
}

// TestCounterUnderAFlood keeps hot limits in slots against made-up keys, and
// loses nothing of the sum.
func TestCounterUnderAFlood(t *testing.T) {
	t.Parallel()
	c := newCounter()
	random := rand.New(rand.NewPCG(1, 1))
	c.chance = random.Float64
	const rounds = 50_000
	asked := 0.0
	for i := range rounds {
		c.add(limit.Key{Tenant: fmt.Sprintf("made-up-%d", i), Route: "api"}, 1)
		asked++
		if i%10 == 0 {
			c.add(limit.Key{Tenant: fmt.Sprintf("hot-%d", i/10%20), Route: "api"}, 1)
			asked++
		}
	}
	drained := c.drain(256)
	require.InDelta(t, asked, total(drained), 1e-6)
	require.LessOrEqual(t, len(drained), 257)
	for i := range 20 {
		require.InEpsilon(t, rounds/10/20, unitsOf(drained, limit.Key{Tenant: fmt.Sprintf("hot-%d", i), Route: "api"}), 0.1, i)
	}
}

func TestCounterOfManyGoroutines(t *testing.T) {
	t.Parallel()
	c := newCounter()
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range 10_000 {
				c.add(limit.Key{Tenant: fmt.Sprint(i % 100), Route: "api"}, 1)
			}
		})
	}
	sum := 0.0
	for range 10 {
		sum += total(c.drain(256))
	}
	wait.Wait()
	// A count may meet the moment in which its slot is given away.
	require.InDelta(t, 80_000, sum+total(c.drain(256)), 80)
}

func TestCountDoesNotAllocate(t *testing.T) {
	c, key := newCounter(), limit.Key{Tenant: "shop-a", Route: "api"}
	c.add(key, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { c.add(key, 1) }))
	shares := &Shares{all: Budget, own: map[limit.Key]Share{key: 7}}
	require.Zero(t, testing.AllocsPerRun(100, func() { shares.Of(key) }))
}

func BenchmarkCount(b *testing.B) {
	c := newCounter()
	keys := make([]limit.Key, 1024)
	for i := range keys {
		keys[i] = limit.Key{Tenant: fmt.Sprintf("tenant-%d", i), Route: "create-order"}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c.add(keys[i%1024], 1)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	shares := &Shares{all: Budget}
	keys := make([]limit.Key, 1024)
	for i := range keys {
		keys[i] = limit.Key{Tenant: fmt.Sprintf("tenant-%d", i), Route: "create-order"}
		shares.set(keys[i], Share(i+1))
	}
	b.ReportAllocs()
	sum, i := 0.0, 0
	for b.Loop() {
		sum += shares.Of(keys[i%1024])
		i++
	}
	require.Positive(b, sum)
}
