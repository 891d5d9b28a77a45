package front

import (
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Refusal is what a MemoryStore knows to be refused. The zero value is nothing.
type Refusal struct {
	// Cost is the least cost that is refused.
	Cost int64
	// For is how much longer it is, at most a second.
	For time.Duration
}

// Refusal returns what is known to be refused of a bucket under its rule now. A
// bucket that is split has none itself, but its Parts may. It changes nothing.
func (s *MemoryStore) Refusal(bucket limit.Bucket) Refusal {
	now := s.elapsed(nil)
	seen, found := s.peek(s.key(bucket.Key))
	if !found || !seen.holds(&bucket.Rule, now) || !seen.refuses(seen.cost, now) {
		return Refusal{}
	}
	return Refusal{Cost: seen.cost, For: time.Duration(seen.until - now)}
}

// InHand returns how many tokens are in hand of a bucket under its rule now. It
// changes nothing.
func (s *PrefetchStore) InHand(bucket limit.Bucket) int64 {
	h, found := s.peek(s.key(bucket.Key))
	if !found || h.rule != bucket.Rule || s.elapsed(nil) >= h.dropAt {
		return 0
	}
	return h.tokens
}

// Parts returns the parts into which Shards splits a bucket, or the bucket alone
// where it is not split.
func Parts(bucket limit.Bucket) []limit.Bucket {
	n := parts(&bucket)
	if n <= 1 {
		return []limit.Bucket{bucket}
	}
	list := make([]limit.Bucket, n)
	for i := range n {
		list[i] = partOf(bucket, i)
	}
	return list
}

// peek returns a copy of what the store knows under a key.
func (s *store[V]) peek(key storeKey) (value V, found bool) {
	held := s.entries.Lock(key)
	defer held.Unlock()
	if known := held.Get(key); known != nil {
		return *known, true
	}
	return value, false
}
