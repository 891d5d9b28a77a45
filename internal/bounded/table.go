package bounded

import (
	"math/bits"
	"sync/atomic"
)

const (
	// maxShards is how many locks a map has at most.
	maxShards = 256
	// minShardBound is the least number of places that is worth a lock, and
	// enough for a sample to tell entries apart.
	minShardBound = 64
)

// table is the shards of a map for one range of bounds. A map gets another when
// its bound asks for another number of shards.
type table[V Value] struct {
	shards []shard[V]
	mask   uint64
	most   atomic.Int64 // entries in one shard
	bound  atomic.Int64 // of all weights together
	weight atomic.Int64 // of all values, where they are Weighed
}

// shardsFor returns the number of shards for a bound, a power of two.
func shardsFor(most int) int {
	wanted := min(maxShards, max(1, most/minShardBound))
	return 1 << (bits.Len(uint(wanted)) - 1)
}

func newTable[V Value](most int) *table[V] {
	n := shardsFor(most)
	t := &table[V]{shards: make([]shard[V], n), mask: uint64(n - 1)}
	t.most.Store(int64(most / n))
	t.bound.Store(int64(most))
	_, weighed := any(new(V)).(Weighed)
	for i := range t.shards {
		if weighed {
			t.shards[i].weight = &t.weight
		}
	}
	return t
}

func (t *table[V]) place(hash uint64) int {
	return int(hash & t.mask)
}

func (t *table[V]) shard(hash uint64) *shard[V] {
	return &t.shards[t.place(hash)]
}

// tooHeavy reports whether the values weigh more than the bound.
func (t *table[V]) tooHeavy() bool {
	return t.weight.Load() > t.bound.Load()
}

// setBound drops what is over each entries in a shard.
func (t *table[V]) setBound(each int) {
	t.most.Store(int64(each))
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for s.len() > each {
			s.remove(s.soonest())
		}
		s.mu.Unlock()
	}
}

// fillFrom takes over the entries of old, all of whose shards are locked.
func (t *table[V]) fillFrom(old *table[V]) {
	for i := range old.shards {
		from := &old.shards[i]
		for at := range from.all() {
			e := &from.entries[at]
			hash := e.key.hash()
			s := t.shard(hash)
			s.makeRoom(int(t.most.Load()))
			s.insert(hash, e.key, e.value)
		}
	}
}

// shardSet is a set of shards, one bit each, so that several are locked in one
// order without sorting, and none twice.
type shardSet [maxShards / 64]uint64

func (s *shardSet) add(place int) {
	s[place/64] |= 1 << (place % 64)
}

func (s *shardSet) has(place int) bool {
	return s[place/64]&(1<<(place%64)) != 0
}

func (t *table[V]) lockAll() shardSet {
	var every shardSet
	for i := range t.shards {
		every.add(i)
	}
	t.lock(&every)
	return every
}

func (t *table[V]) lock(set *shardSet) {
	for word, left := range set {
		for ; left != 0; left &= left - 1 {
			t.shards[word*64+bits.TrailingZeros64(left)].mu.Lock()
		}
	}
}

func (t *table[V]) unlock(set *shardSet) {
	for word, left := range set {
		for ; left != 0; left &= left - 1 {
			t.shards[word*64+bits.TrailingZeros64(left)].mu.Unlock()
		}
	}
}
