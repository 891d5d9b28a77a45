// Package bounded holds a concurrent map that never has more than a given number
// of entries. When it is full it makes room by dropping, of a small random
// sample, the entry whose loss matters least: the one that is full again soonest.
package bounded

import (
	"sync"
	"sync/atomic"
)

// DefaultBound is the bound of a Map that is given none.
const DefaultBound = 1_000_000

// Value is what a Map holds.
type Value interface {
	// FullAt is the time from which the value is worth nothing, because an
	// absent one means the same. Its unit and zero are the caller's.
	FullAt() int64
}

// Weighed is a Value that may take the memory of several. Where the values of a
// Map are Weighed, their weights together are held to the bound as well.
type Weighed interface {
	Value

	// Weight is how many places of the bound the value takes, at least 1. The
	// weight of a value that is in a map changes by Put alone.
	Weight() int
}

// Map is a map with a hard bound, split into shards with a lock each: 256 of
// them, fewer for a bound under 16,384, so that each has at least 64 places.
// Because the shards fill unevenly, a map with nearly as many live keys as its
// bound drops some early. It is safe for concurrent use.
type Map[V Value] struct {
	table atomic.Pointer[table[V]]

	// rebound makes changes of the bound wait for each other.
	rebound sync.Mutex
}

// New returns an empty map that holds the given number of entries at most; 0 or less
// means DefaultBound.
func New[V Value](most int) *Map[V] {
	m := new(Map[V])
	m.table.Store(newTable[V](boundOrDefault(most)))
	return m
}

// Lock locks all that the keys need, in an order that cannot deadlock, and
// returns the hold on them. It must be ended with Unlock, and until then the
// caller must not lock again.
func (m *Map[V]) Lock(keys ...Fingerprint) Held[V] {
	for {
		held := Held[V]{table: m.table.Load()}
		held.lock(keys)
		if held.table == m.table.Load() {
			return held
		}
		held.Unlock() // the entries have moved while it waited
	}
}

// Len returns how many entries there are, those that are full again included.
func (m *Map[V]) Len() int {
	n := 0
	t := m.table.Load()
	for i := range t.shards {
		n += int(t.shards[i].size.Load())
	}
	return n
}

// SetBound changes the most entries that the map holds; 0 or less means
// DefaultBound. What is too much is dropped at once, one shard after another, so
// that other callers wait for one shard's share of the work at most; only a
// change of the number of shards, then of at most 16,384 entries, stops them all.
func (m *Map[V]) SetBound(most int) {
	m.rebound.Lock()
	defer m.rebound.Unlock()
	most = boundOrDefault(most)
	old := m.table.Load()
	if shardsFor(most) == len(old.shards) {
		old.bound.Store(int64(most))
		old.setBound(most / len(old.shards))
		m.lighten(old)
		return
	}
	// Keep enough in each that few shards lose nothing to an uneven spread, and
	// little enough that moving the rest is quick.
	old.setBound(max(minShardBound, most/len(old.shards)))
	next := newTable[V](most)
	m.replace(old, next)
	m.lighten(next)
}

// replace moves the entries of old to next.
func (m *Map[V]) replace(old, next *table[V]) {
	every := old.lockAll()
	defer old.unlock(&every)
	next.fillFrom(old)
	m.table.Store(next)
}

// lighten holds the weights to the bound.
func (m *Map[V]) lighten(t *table[V]) {
	held := Held[V]{table: t, set: new(shardSet)}
	held.lighten(nil)
}

func boundOrDefault(most int) int {
	if most <= 0 {
		return DefaultBound
	}
	return most
}
