package bounded

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

const (
	// sample is how many random entries the one to drop is chosen from.
	sample = 8
	// glances is how many random entries an insert looks at for full ones.
	glances = 2
	// minCompact is the least room that is worth giving back.
	minCompact = 64
)

// entry is one key and its value; the hash finds it in the index.
type entry[K comparable, V Value] struct {
	hash  uint64
	key   K
	value V
}

// shard is a slab without gaps, so that a random entry is a random number, and
// an index from hashes to places in it.
type shard[K comparable, V Value] struct {
	mu    sync.Mutex
	slab  []entry[K, V]
	index map[uint64]int32
	size  atomic.Int32 // of slab, for Len without the lock

	_ [64]byte // keeps the locks of two shards in different cache lines
}

// find returns the place of key, or -1.
func (s *shard[K, V]) find(key *Hashed[K]) int32 {
	at, found := s.index[key.hash]
	if !found || s.slab[at].key != key.Key {
		return -1
	}
	return at
}

// insert adds e, in place of another key with the same hash if there is one.
func (s *shard[K, V]) insert(e entry[K, V]) {
	if at, taken := s.index[e.hash]; taken {
		s.remove(at)
	}
	if s.index == nil {
		s.index = make(map[uint64]int32)
	}
	s.index[e.hash] = int32(len(s.slab))
	s.slab = append(s.slab, e)
	s.size.Store(int32(len(s.slab)))
}

// remove closes the gap with the last entry.
func (s *shard[K, V]) remove(at int32) {
	last := len(s.slab) - 1
	delete(s.index, s.slab[at].hash)
	if int(at) != last {
		s.slab[at] = s.slab[last]
		s.index[s.slab[at].hash] = at
	}
	s.slab[last] = entry[K, V]{}
	s.slab = s.slab[:last]
	s.size.Store(int32(last))
	if cap(s.slab) >= minCompact && last < cap(s.slab)/4 {
		s.compact()
	}
}

// compact gives back the memory of a shard that has shrunk; Go's maps and slices
// never do. It runs after at least as many removals as it copies entries.
func (s *shard[K, V]) compact() {
	slab := make([]entry[K, V], len(s.slab), 2*len(s.slab)+1)
	copy(slab, s.slab)
	s.slab = slab
	s.index = make(map[uint64]int32, len(slab))
	for at := range slab {
		s.index[slab[at].hash] = int32(at)
	}
}

// makeRoom drops one entry if a new one would be over most.
func (s *shard[K, V]) makeRoom(most int) {
	if len(s.slab) >= most {
		s.remove(s.soonest())
	}
}

// soonest returns the place of the entry that is full again soonest among a
// sample, which is all of a small shard.
func (s *shard[K, V]) soonest() int32 {
	n := len(s.slab)
	best := 0
	for i := range min(n, sample) {
		at := i
		if n > sample {
			at = rand.IntN(n)
		}
		if i == 0 || s.slab[at].value.FullAt() < s.slab[best].value.FullAt() {
			best = at
		}
	}
	return int32(best)
}

// dropFull looks at a few random entries and drops those that are full again.
func (s *shard[K, V]) dropFull(now int64) {
	for range glances {
		if len(s.slab) == 0 {
			return
		}
		at := rand.IntN(len(s.slab))
		if s.slab[at].value.FullAt() <= now {
			s.remove(int32(at))
		}
	}
}
