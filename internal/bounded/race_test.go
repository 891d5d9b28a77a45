package bounded

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocksSeveralKeys moves amounts between entries under one hold while the
// bound goes up and down over every number of shards: the sum never changes.
func TestLocksSeveralKeys(t *testing.T) {
	t.Parallel()
	const keys, workers, moves = 40, 4, 2_000
	m := New[level](20_000)
	for i := range keys {
		put(m, fmt.Sprint(i), never, 0)
	}
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for range moves {
				move(m, random, keys)
			}
		})
	}
	stop := make(chan struct{})
	bounds := make(chan struct{})
	go func() {
		defer close(bounds)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				m.SetBound([]int{20_000, 300, 1_000_000, 5_000, 100}[i%5])
			}
		}
	}()
	group.Wait()
	close(stop)
	<-bounds

	var sum level
	for i := range keys {
		value, found := get(m, fmt.Sprint(i))
		require.True(t, found)
		sum += value - never
	}
	require.Zero(t, sum)
	require.Equal(t, keys, m.Len())
}

// move takes from one random key, deletes and puts it again, and gives to two.
func move(m *Map[level], random *rand.Rand, keys int) {
	chosen := random.Perm(keys)
	from, to, also := named(fmt.Sprint(chosen[0])), named(fmt.Sprint(chosen[1])), named(fmt.Sprint(chosen[2]))
	held := m.Lock(from, to, also)
	defer held.Unlock()
	value := *held.Get(from)
	held.Delete(from)
	held.Put(from, value-2, 0)
	*held.Get(to)++
	*held.Get(also)++
}

// TestFloodWhileTheBoundChanges is for the race detector, and for the bound.
func TestFloodWhileTheBoundChanges(t *testing.T) {
	t.Parallel()
	m := New[level](1000)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 5_000 {
				put(m, fmt.Sprint(worker, "-", i), level(i%50), int64(i))
				_ = m.Len()
			}
		})
	}
	for _, most := range []int{10, 100_000, 500, 20_000, 64} {
		m.SetBound(most)
	}
	group.Wait()
	require.LessOrEqual(t, m.Len(), 64)
}

func TestSameKeyTwiceInOneHold(t *testing.T) {
	t.Parallel()
	m := New[level](0)
	a := named("a")
	held := m.Lock(a, a)
	held.Put(a, 1, 0)
	held.Unlock()
	value, found := get(m, "a")
	require.True(t, found)
	require.Equal(t, level(1), value)
}
