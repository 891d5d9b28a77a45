package bounded

import (
	"iter"
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

// entry is one key and its value.
type entry[V Value] struct {
	key   Fingerprint
	value V
}

// shard is a part of a map's entries, each in the place that its hash leads to.
type shard[V Value] struct {
	mu      sync.Mutex
	marks   []mark
	entries []entry[V]   // one for each mark
	size    atomic.Int32 // how many entries there are, for Len without the lock

	weight *atomic.Int64 // of the whole table; nil where values have none

	_ [48]byte // makes it two cache lines: what finds a key is in the first, and no other's lock
}

func (s *shard[V]) len() int { return int(s.size.Load()) }

// all yields the places that hold an entry.
func (s *shard[V]) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := range s.marks {
			if s.marks[at] != 0 && !yield(at) {
				return
			}
		}
	}
}

// insert adds an entry whose key is not there.
func (s *shard[V]) insert(hash uint64, key Fingerprint, value V) {
	n := s.len() + 1
	if n*4 > len(s.marks)*3 {
		s.resize(max(minPlaces, len(s.marks)*3/2))
	}
	at := s.place(hash, entry[V]{key: key, value: value})
	s.weigh(&s.entries[at].value, 1)
	s.size.Store(int32(n))
}

// set replaces the value at a place.
func (s *shard[V]) set(at int, value V) {
	s.weigh(&s.entries[at].value, -1)
	s.entries[at].value = value
	s.weigh(&s.entries[at].value, 1)
}

// weigh adds a value's weight to the table's, times sign.
func (s *shard[V]) weigh(value *V, sign int64) {
	if s.weight == nil {
		return
	}
	if weighed, ok := any(value).(Weighed); ok {
		s.weight.Add(sign * int64(weighed.Weight()))
	}
}

// remove drops the entry at a place. Others may move.
func (s *shard[V]) remove(at int) {
	s.weigh(&s.entries[at].value, -1)
	s.clear(at)
	left := s.len() - 1
	s.size.Store(int32(left))
	if len(s.marks) >= minCompact && left < len(s.marks)/4 {
		s.resize(2*left + minPlaces)
	}
}

// makeRoom drops one entry if a new one would be over most.
func (s *shard[V]) makeRoom(most int) {
	if s.len() >= most {
		s.remove(s.soonest())
	}
}

// random returns the place of a random entry. There must be one; few of the
// places are empty, so a few draws find it.
func (s *shard[V]) random() int {
	for {
		at := rand.IntN(len(s.marks)) //nolint:gosec // a sample is no secret
		if s.marks[at] != 0 {
			return at
		}
	}
}

// soonest returns the place of the entry that is full again soonest among a
// sample, which is all of a small shard.
func (s *shard[V]) soonest() int {
	best := -1
	note := func(at int) {
		if best < 0 || s.entries[at].value.FullAt() < s.entries[best].value.FullAt() {
			best = at
		}
	}
	if s.len() <= sample {
		for at := range s.all() {
			note(at)
		}
		return best
	}
	for range sample {
		note(s.random())
	}
	return best
}

// soonestBut is soonest among the entries that are not keep, or -1.
func (s *shard[V]) soonestBut(keep *Fingerprint) int {
	if s.len() == 0 {
		return -1
	}
	at := s.soonest()
	if keep == nil || s.entries[at].key != *keep {
		return at
	}
	for other := s.next(at); other != at; other = s.next(other) {
		if s.marks[other] != 0 {
			return other
		}
	}
	return -1
}

// dropFull looks at a few random entries and drops those that are full again.
func (s *shard[V]) dropFull(now int64) {
	for range glances {
		if s.len() == 0 {
			return
		}
		if at := s.random(); s.entries[at].value.FullAt() <= now {
			s.remove(at)
		}
	}
}
