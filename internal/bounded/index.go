package bounded

// slot is one place of a shard's index: the upper half of the hash, and the
// entry's place in the slab plus one. Zero is empty.
type slot uint64

func makeSlot(hash uint64, at int32) slot {
	return slot(hash>>32<<32 | uint64(at+1))
}

func (s slot) matches(hash uint64) bool {
	return uint64(s)>>32 == hash>>32
}

// at returns the place in the slab.
func (s slot) at() int32 {
	return int32(uint32(s)) - 1
}

// The index is a hash table with linear probing and no tombstones, at most three
// quarters full. A Go map would hash the key again and touch twice the memory,
// which is most of what a call costs when there are many keys.

// minSlots is the least size of an index that is not empty; sizes are powers of 2.
const minSlots = 8

// home returns where in the index the search for hash begins. The lowest bits
// are those that chose the shard.
func (s *shard[K, V]) home(hash uint64) int {
	return int(hash/maxShards) & (len(s.index) - 1)
}

func (s *shard[K, V]) next(i int) int {
	return (i + 1) & (len(s.index) - 1)
}

// slotOf returns where the index holds the entry at a place of the slab.
func (s *shard[K, V]) slotOf(at int32) int {
	i := s.home(s.slab[at].hash)
	for s.index[i].at() != at {
		i = s.next(i)
	}
	return i
}

// addToIndex adds the newest entry of the slab to the index, which grows if need be.
func (s *shard[K, V]) addToIndex() {
	if len(s.slab)*4 > len(s.index)*3 {
		s.reindex(max(minSlots, 2*len(s.index)))
		return
	}
	s.fillSlot(int32(len(s.slab) - 1))
}

func (s *shard[K, V]) fillSlot(at int32) {
	hash := s.slab[at].hash
	i := s.home(hash)
	for s.index[i] != 0 {
		i = s.next(i)
	}
	s.index[i] = makeSlot(hash, at)
}

// reindex makes the index anew with n slots.
func (s *shard[K, V]) reindex(n int) {
	s.index = make([]slot, n)
	for at := range s.slab {
		s.fillSlot(int32(at))
	}
}

// emptySlot empties slot i, and moves those after it that would not be found
// behind a gap.
func (s *shard[K, V]) emptySlot(i int) {
	mask := len(s.index) - 1
	for next := s.next(i); s.index[next] != 0; next = s.next(next) {
		home := s.home(s.slab[s.index[next].at()].hash)
		if (next-home)&mask >= (next-i)&mask {
			s.index[i] = s.index[next]
			i = next
		}
	}
	s.index[i] = 0
}
