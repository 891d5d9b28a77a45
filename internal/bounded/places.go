package bounded

import "math/bits"

// mark is what a shard knows of one of its places without looking at the entry:
// zero where there is none, and else seven bits of its key's hash.
type mark uint8

// markOf has bits of the hash that neither choose the shard nor the place.
func markOf(hash uint64) mark {
	return mark(hash>>8) | 0x80
}

// A shard's places are a hash table with linear probing and no tombstones, at
// most three quarters full. The marks are apart, so that those of many places
// fit into the processor's caches: a call for a known key then misses them once,
// at the entry itself. A Go map would hash the key again and touch more memory,
// and a table that leads to a slab of entries misses twice.
//
// They are any number, and grow by half: a power of two would leave as many
// empty as full.

// minPlaces is the least number of places of a shard that is not empty.
const minPlaces = 8

// home returns where the search for hash begins. Its highest bits choose, and
// the lowest have chosen the shard.
func (s *shard[V]) home(hash uint64) int {
	high, _ := bits.Mul64(hash, uint64(len(s.marks)))
	return int(high)
}

func (s *shard[V]) next(at int) int {
	if at++; at < len(s.marks) {
		return at
	}
	return 0
}

// behind returns how many places at is behind another.
func (s *shard[V]) behind(at, other int) int {
	if at >= other {
		return at - other
	}
	return at - other + len(s.marks)
}

// find returns the place of key, or -1.
func (s *shard[V]) find(key Fingerprint) int {
	if len(s.marks) == 0 {
		return -1
	}
	wanted := markOf(key.hash())
	for at := s.home(key.hash()); s.marks[at] != 0; at = s.next(at) {
		if s.marks[at] == wanted && s.entries[at].key == key {
			return at
		}
	}
	return -1
}

// place puts e, whose key is not there, into the first place that is free for
// its hash, and returns that.
func (s *shard[V]) place(hash uint64, e entry[V]) int {
	at := s.home(hash)
	for s.marks[at] != 0 {
		at = s.next(at)
	}
	s.marks[at], s.entries[at] = markOf(hash), e
	return at
}

// clear empties a place, and moves up those behind it that would not be found
// behind a gap.
func (s *shard[V]) clear(gap int) {
	for at := s.next(gap); s.marks[at] != 0; at = s.next(at) {
		home := s.home(s.entries[at].key.hash())
		if s.behind(at, home) >= s.behind(at, gap) {
			s.marks[gap], s.entries[gap] = s.marks[at], s.entries[at]
			gap = at
		}
	}
	s.marks[gap], s.entries[gap] = 0, entry[V]{}
}

// resize gives the shard n places, which is more than it has entries.
func (s *shard[V]) resize(n int) {
	marks, entries := s.marks, s.entries
	s.marks, s.entries = make([]mark, n), make([]entry[V], n)
	for at := range marks {
		if marks[at] != 0 {
			s.place(entries[at].key.hash(), entries[at])
		}
	}
}
