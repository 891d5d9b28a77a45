package bounded

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// level is a value that is full again at the time it holds.
type level int64

func (l level) FullAt() int64 { return int64(l) }

const never = level(1 << 60)

var prints = NewFingerprints()

func named(key string) Fingerprint { return prints.Of([]byte(key)) }

func put(m *Map[level], key string, value level, now int64) {
	hashed := named(key)
	held := m.Lock(hashed)
	defer held.Unlock()
	held.Put(hashed, value, now)
}

func get(m *Map[level], key string) (level, bool) {
	hashed := named(key)
	held := m.Lock(hashed)
	defer held.Unlock()
	if value := held.Get(hashed); value != nil {
		return *value, true
	}
	return 0, false
}

func remove(m *Map[level], key string) {
	hashed := named(key)
	held := m.Lock(hashed)
	defer held.Unlock()
	held.Delete(hashed)
}

func TestShardsFor(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{
		1: 1, 63: 1, 64: 1, 127: 1, 128: 2, 1000: 8, 10_000: 128, 16_383: 128, 16_384: 256, DefaultBound: 256,
	} {
		require.Equal(t, want, shardsFor(most), most)
		require.LessOrEqual(t, newTable[level](most).most.Load()*int64(want), int64(most))
	}
}

// TestAgainstMap runs random calls beside a plain map. Nothing is ever full and
// the bound is never met, so both must agree on everything.
func TestAgainstMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, seed))
		m := New[level](100_000)
		model := map[string]level{}
		for range 5_000 {
			key := fmt.Sprint("key", random.IntN(700))
			switch random.IntN(8) {
			case 0:
				remove(m, key)
				delete(model, key)
			case 1, 2, 3:
				value := never + level(random.IntN(100))
				put(m, key, value, 0)
				model[key] = value
			default:
				got, found := get(m, key)
				want, expected := model[key]
				require.Equal(t, expected, found)
				require.Equal(t, want, got)
			}
			require.Equal(t, len(model), m.Len())
		}
		for key := range model {
			remove(m, key)
		}
		require.Zero(t, m.Len())
	}
}

// TestBoundHolds puts random keys and changes the bound as it goes.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 7, 64, 128, 1000, 20_000} {
		m := New[level](most)
		random := rand.New(rand.NewPCG(1, uint64(most)))
		for i := range 3 * most {
			put(m, fmt.Sprint(i), never-level(random.IntN(1000)), 0)
			require.LessOrEqual(t, m.Len(), most)
			_, found := get(m, fmt.Sprint(i))
			require.True(t, found, "what was just put is there")
		}
		require.Greater(t, m.Len(), most*3/4, "the places are used")
		for _, other := range []int{most / 2, 3 * most, most/100 + 1} {
			m.SetBound(max(1, other))
			require.LessOrEqual(t, m.Len(), max(1, other))
		}
	}
}

func TestBoundKeepsEntries(t *testing.T) {
	t.Parallel()
	m := New[level](100)
	for i := range 100 {
		put(m, fmt.Sprint(i), never+level(i), 0)
	}
	for _, most := range []int{100_000, 1_000_000, 20_000, 0, 4_000} {
		m.SetBound(most)
		require.Equal(t, 100, m.Len())
		for i := range 100 {
			value, found := get(m, fmt.Sprint(i))
			require.True(t, found)
			require.Equal(t, never+level(i), value)
		}
	}
	m.SetBound(8)
	require.LessOrEqual(t, m.Len(), 8)
	require.NotZero(t, m.Len())
}

func TestDropsTheSoonest(t *testing.T) {
	t.Parallel()
	m := New[level](sample)
	for i := range 100 {
		put(m, fmt.Sprint(i), never+level(i), 0)
	}
	for i := range 100 {
		_, found := get(m, fmt.Sprint(i))
		require.Equal(t, i >= 100-sample, found, i)
	}
}

// TestShrinksWithTheLive fills a map, lets everything become full again, and
// puts as many others: the first ones go without the bound being met.
func TestShrinksWithTheLive(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	m := New[level](0)
	for i := range keys {
		put(m, fmt.Sprint("old", i), 10, 0)
	}
	for i := range keys {
		put(m, fmt.Sprint("new", i), never, 11)
	}
	require.Less(t, m.Len(), keys*5/4)
	for i := range keys {
		_, found := get(m, fmt.Sprint("new", i))
		require.True(t, found, "only what is full again was dropped")
	}
}

func TestGivesBackMemory(t *testing.T) {
	t.Parallel()
	m := New[level](100)
	for i := range 100 {
		put(m, fmt.Sprint(i), never, 0)
	}
	for i := range 99 {
		remove(m, fmt.Sprint(i))
	}
	require.Less(t, cap(m.table.Load().shards[0].entries), minCompact)
	value, found := get(m, "99")
	require.True(t, found)
	require.Equal(t, never, value)
}

// TestK10Memory sees that a drained key outlives any number of others with more
// left, and that a new one always finds a place.
func TestK10Memory(t *testing.T) {
	t.Parallel()
	const bound, drainedFor, usedFor = 10_000, 5_000_000, 1_000_000
	m := New[level](bound)
	put(m, "A", drainedFor, 0)
	for i := range 200_000 {
		now := int64(i / 100)
		put(m, fmt.Sprint("other", i), level(now+usedFor), now)
	}
	value, found := get(m, "A")
	require.True(t, found)
	require.Equal(t, level(drainedFor), value)
	require.LessOrEqual(t, m.Len(), bound)
	put(m, "B", usedFor, 2000)
	_, found = get(m, "B")
	require.True(t, found)
}

// TestEqualHashes makes what chance does not: two keys with one hash.
func TestEqualHashes(t *testing.T) {
	t.Parallel()
	m := New[level](0)
	a, b := Fingerprint{1 << 63, 1}, Fingerprint{1 << 63, 2}
	held := m.Lock(a, b)
	defer held.Unlock()
	held.Put(a, 1, 0)
	require.Nil(t, held.Get(b))
	held.Put(b, 2, 0)
	require.Equal(t, level(1), *held.Get(a))
	require.Equal(t, level(2), *held.Get(b))
	held.Delete(a)
	require.Nil(t, held.Get(a))
	require.Equal(t, level(2), *held.Get(b))
	require.Equal(t, 1, m.Len())
}
