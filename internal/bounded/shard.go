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

// entry is one key and its value; the hash leads to it in the index.
type entry[K comparable, V Value] struct {
	hash  uint64
	key   K
	value V
}

// shard is a slab without gaps, so that a random entry is a random number, and
// an index of it by hash.
type shard[K comparable, V Value] struct {
	mu    sync.Mutex
	slab  []entry[K, V]
	index []slot
	size  atomic.Int32 // of slab, for Len without the lock

	weight *atomic.Int64 // of the whole table; nil where values have none

	_ [64]byte // keeps the locks of two shards in different cache lines
}

// find returns the place of key, or -1.
func (s *shard[K, V]) find(key *Hashed[K]) int32 {
	if len(s.index) == 0 {
		return -1
	}
	for i := s.home(key.hash); s.index[i] != 0; i = s.next(i) {
		if !s.index[i].matches(key.hash) {
			continue
		}
		at := s.index[i].at()
		if e := &s.slab[at]; e.hash == key.hash && e.key == key.Key {
			return at
		}
	}
	return -1
}

// insert adds e, whose key is not there.
func (s *shard[K, V]) insert(e entry[K, V]) {
	s.slab = append(s.slab, e)
	s.weigh(&s.slab[len(s.slab)-1].value, 1)
	s.size.Store(int32(len(s.slab)))
	s.addToIndex()
}

// set replaces the value at a place.
func (s *shard[K, V]) set(at int32, value V) {
	s.weigh(&s.slab[at].value, -1)
	s.slab[at].value = value
	s.weigh(&s.slab[at].value, 1)
}

// weigh adds a value's weight to the table's, times sign.
func (s *shard[K, V]) weigh(value *V, sign int64) {
	if s.weight == nil {
		return
	}
	if weighed, ok := any(value).(Weighed); ok {
		s.weight.Add(sign * int64(weighed.Weight()))
	}
}

// remove closes the gap with the last entry.
func (s *shard[K, V]) remove(at int32) {
	last := int32(len(s.slab) - 1)
	s.weigh(&s.slab[at].value, -1)
	s.emptySlot(s.slotOf(at))
	if at != last {
		s.index[s.slotOf(last)] = makeSlot(s.slab[last].hash, at)
		s.slab[at] = s.slab[last]
	}
	s.slab[last] = entry[K, V]{}
	s.slab = s.slab[:last]
	s.size.Store(last)
	if cap(s.slab) >= minCompact && int(last) < cap(s.slab)/4 {
		s.compact()
	}
}

// compact gives back the memory of a shard that has shrunk, which a slice never
// does. It runs after at least as many removals as it copies entries.
func (s *shard[K, V]) compact() {
	s.slab = append(make([]entry[K, V], 0, 2*len(s.slab)+1), s.slab...)
	n := minSlots
	for len(s.slab)*2 > n {
		n *= 2
	}
	s.reindex(n)
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
			at = rand.IntN(n) //nolint:gosec // a sample is no secret
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
		at := rand.IntN(len(s.slab)) //nolint:gosec // a sample is no secret
		if s.slab[at].value.FullAt() <= now {
			s.remove(int32(at))
		}
	}
}
