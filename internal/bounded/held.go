package bounded

// Held is a hold on the keys given to Map.Lock. Its calls are for these keys
// only, and for one goroutine.
type Held[V Value] struct {
	table *table[V]

	// What is locked: one shard, or if that is nil, several.
	only *shard[V]
	set  *shardSet
}

func (h *Held[V]) lock(keys []Fingerprint) {
	if len(keys) == 1 {
		h.only = h.table.shard(keys[0].hash())
		h.only.mu.Lock()
		return
	}
	h.set = new(shardSet)
	for i := range keys {
		h.set.add(h.table.place(keys[i].hash()))
	}
	h.table.lock(h.set)
}

// Get returns the value of key, which may be changed in place, or nil. It is
// good until the next Put, Delete or Unlock.
func (h *Held[V]) Get(key Fingerprint) *V {
	s := h.table.shard(key.hash())
	if at := s.find(key); at >= 0 {
		return &s.entries[at].value
	}
	return nil
}

// Put stores value under key; now is the time in the values' unit. For a key
// that is new it first drops up to two random entries that are full again, so
// that the map shrinks with what is live, and one more where there is no room.
// Where the values weigh too much it drops others until they do not; a value
// that is heavier than the bound is left alone in the map.
func (h *Held[V]) Put(key Fingerprint, value V, now int64) {
	s := h.table.shard(key.hash())
	if at := s.find(key); at >= 0 {
		s.set(at, value)
	} else {
		s.dropFull(now)
		s.makeRoom(int(h.table.most.Load()))
		s.insert(key.hash(), key, value)
	}
	h.lighten(&key)
}

// Delete removes key, if it is there.
func (h *Held[V]) Delete(key Fingerprint) {
	s := h.table.shard(key.hash())
	if at := s.find(key); at >= 0 {
		s.remove(at)
	}
}

// Unlock ends the hold.
func (h *Held[V]) Unlock() {
	if h.only != nil {
		h.only.mu.Unlock()
		return
	}
	h.table.unlock(h.set)
}
