package front

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// DefaultBound is how many buckets a MemoryStore or a PrefetchStore knows at most
// where no bound is in force.
const DefaultBound = bounded.DefaultBound

// store is what a layer knows of buckets, by the fingerprint of their keys. It
// outlives the layers that work on it, and so holds no logger, context or clock.
type store[V bounded.Value] struct {
	entries *bounded.Map[V]
	prints  bounded.Fingerprints
	bounds  bounded.Bounds

	// epoch is the zero of all times in the store, which are in ns. It has a
	// monotonic reading, so a step of the wall clock moves none of them.
	epoch time.Time
}

type (
	storeKey              = bounded.Fingerprint
	hold[V bounded.Value] = bounded.Held[V]
)

// longAgo is before all times in a store.
const longAgo int64 = math.MinInt64

func newStore[V bounded.Value]() store[V] {
	return store[V]{
		entries: bounded.New[V](0),
		prints:  bounded.NewFingerprints(),
		epoch:   time.Now(),
	}
}

// Bound makes most the number of buckets that the store knows at most; 0 or less
// means DefaultBound. What is too much is dropped at once. The newest bound that
// is not released is in force, as configs overlap in a reload: the old one's
// release then changes nothing, and the release of one that failed brings the old
// bound back. A second call of release does nothing.
func (s *store[V]) Bound(most int) (release func()) {
	return s.bounds.Add(most, s.entries.SetBound)
}

// Len returns how many buckets the store knows something of, which may be out of
// date for some.
func (s *store[V]) Len() int { return s.entries.Len() }

// Destruct fits a pool of stores. There is nothing to close, and a Take that comes
// later still works. It never fails.
func (s *store[V]) Destruct() error { return nil }

// key is what the store knows a bucket by.
func (s *store[V]) key(key limit.Key) storeKey {
	var room limit.KeyRoom
	return s.prints.Of(key.Append(room[:0]))
}

// elapsed returns the time since the epoch by a layer's clock; nil is time.Now.
func (s *store[V]) elapsed(clock func() time.Time) int64 {
	if clock == nil {
		return int64(time.Since(s.epoch))
	}
	return int64(clock().Sub(s.epoch))
}
