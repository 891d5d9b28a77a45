package bounded

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// heavy is a value with a weight.
type heavy struct {
	fullAt int64
	weight int
}

func (h heavy) FullAt() int64 { return h.fullAt }
func (h heavy) Weight() int   { return h.weight }

func putHeavy(m *Map[heavy], key string, value heavy) {
	hashed := named(key)
	held := m.Lock(hashed)
	defer held.Unlock()
	held.Put(hashed, value, 0)
}

// weights adds up what the map holds, and what it believes that it holds.
func (m *Map[V]) weights() (held, counted int) {
	t := m.table.Load()
	for i := range t.shards {
		s := &t.shards[i]
		for at := range s.all() {
			held += any(s.entries[at].value).(Weighed).Weight()
		}
	}
	return held, int(t.weight.Load())
}

// TestWeights runs random calls: what is held is always what is counted, and
// never more than the bound.
func TestWeights(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, seed))
		bound := 1000
		m := New[heavy](bound)
		for range 3000 {
			key := fmt.Sprint("key", random.IntN(300))
			switch random.IntN(50) {
			case 0:
				bound = []int{64, 500, 1000, 20_000}[random.IntN(4)]
				m.SetBound(bound)
			case 1:
				hashed := named(key)
				held := m.Lock(hashed)
				held.Delete(hashed)
				held.Unlock()
			default:
				putHeavy(m, key, heavy{random.Int64N(1000) - 10, 1 + random.IntN(40)})
			}
			held, counted := m.weights()
			require.Equal(t, held, counted)
			require.LessOrEqual(t, held, bound)
		}
	}
}

// TestHeaviest: a value over the bound stands alone, until another comes.
func TestHeaviest(t *testing.T) {
	t.Parallel()
	m := New[heavy](1000)
	for i := range 50 {
		putHeavy(m, fmt.Sprint(i), heavy{100, 10})
	}
	putHeavy(m, "heavy", heavy{100, 5000})
	require.Equal(t, 1, m.Len())
	putHeavy(m, "light", heavy{100, 10})
	require.Equal(t, 1, m.Len())
	held, _ := m.weights()
	require.Equal(t, 10, held)
}

// TestWeightsDropSoonest: most of what goes is what is full again soonest.
func TestWeightsDropSoonest(t *testing.T) {
	t.Parallel()
	m := New[heavy](20_000)
	for i := range 1000 {
		putHeavy(m, fmt.Sprint(i), heavy{int64(i + 1), 10})
	}
	putHeavy(m, "heavy", heavy{1, 15_000})
	kept := 0
	for i := 500; i < 1000; i++ {
		hashed := named(fmt.Sprint(i))
		held := m.Lock(hashed)
		if held.Get(hashed) != nil {
			kept++
		}
		held.Unlock()
	}
	require.Greater(t, kept, 400, "of the 500 that there is room for")
}

func TestWeightsRace(t *testing.T) {
	t.Parallel()
	m := New[heavy](1000)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 2000 {
				a, b := named(fmt.Sprint(i%100)), named(fmt.Sprint(i*(worker+1)%100))
				held := m.Lock(a, b)
				held.Put(a, heavy{int64(i), 1 + i%60}, 0)
				held.Put(b, heavy{int64(i), 1 + i%70}, 0)
				held.Unlock()
				if i%500 == 0 {
					m.SetBound(500 + 100*worker)
				}
			}
		})
	}
	group.Wait()
	putHeavy(m, "last", heavy{0, 1})
	held, counted := m.weights()
	require.Equal(t, held, counted)
	require.LessOrEqual(t, held, 1000)
}
