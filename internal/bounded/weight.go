package bounded

import "math/rand/v2"

// lighten drops entries while the values weigh too much: each time, of a sample
// of shards, the one that is full again soonest, but never keep. Shards that
// another caller has locked are left out, as waiting for them could deadlock;
// what is then still too much is for the next Put.
func (h *Held[V]) lighten(keep *Fingerprint) {
	for h.table.tooHeavy() {
		place := h.soonestShard(keep)
		if place < 0 || !h.dropIn(place, keep) {
			return
		}
	}
}

// soonestShard returns the shard that holds the best entry to drop, or -1.
func (h *Held[V]) soonestShard(keep *Fingerprint) int {
	shards := h.table.shards
	start, best, seen := rand.IntN(len(shards)), -1, 0 //nolint:gosec // a sample is no secret
	var bestAt int64
	for i := range shards {
		place := (start + i) & int(h.table.mask)
		if shards[place].size.Load() == 0 {
			continue
		}
		if fullAt, found := h.soonestIn(place, keep); found && (best < 0 || fullAt < bestAt) {
			best, bestAt = place, fullAt
		}
		if seen++; seen == sample && best >= 0 {
			break
		}
	}
	return best
}

// soonestIn returns when the best entry of a shard to drop is full again.
func (h *Held[V]) soonestIn(place int, keep *Fingerprint) (fullAt int64, found bool) {
	unlock, ok := h.tryLock(place)
	if !ok {
		return 0, false
	}
	defer unlock()
	s := &h.table.shards[place]
	if at := s.soonestBut(keep); at >= 0 {
		return s.entries[at].value.FullAt(), true
	}
	return 0, false
}

// dropIn drops the best entry of a shard, and reports whether there was one.
func (h *Held[V]) dropIn(place int, keep *Fingerprint) bool {
	unlock, ok := h.tryLock(place)
	if !ok {
		return false
	}
	defer unlock()
	s := &h.table.shards[place]
	at := s.soonestBut(keep)
	if at >= 0 {
		s.remove(at)
	}
	return at >= 0
}

// tryLock locks a shard that this hold has not locked already.
func (h *Held[V]) tryLock(place int) (unlock func(), ok bool) {
	s := &h.table.shards[place]
	if s == h.only || h.set != nil && h.set.has(place) {
		return func() {}, true
	}
	return s.mu.Unlock, s.mu.TryLock()
}
