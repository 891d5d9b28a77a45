// Package hot keeps what there is to tell of the buckets that refuse much, in bounded
// memory and without holding up a request. There are two structures, because no one
// keeps both promises. A Sampler (sampler.go, where to begin) finds the first of each
// bucket in an interval and counts the others exactly; under a flood of buckets it
// names those that came first, and credits nobody with another's count. A Top (top.go)
// never misses a bucket that refuses much, whatever else floods, and its counts are
// too high by what it says.
package hot

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Sampler tells the first of each bucket in an interval from those after it, which it
// counts. It keeps Buckets buckets at most; what comes from others is one count.
type Sampler[V any] struct {
	every  time.Duration
	keep   func(V) V
	seed   maphash.Seed
	shards [samplerShards]samplerShard[V]
}

const (
	// samplerShards keep floods of different buckets from meeting at one lock.
	samplerShards = 16
	shardBuckets  = 512

	// Buckets is how many a Sampler keeps at most.
	Buckets = samplerShards * shardBuckets
)

// Sample is what a bucket did in an interval.
type Sample[V any] struct {
	First V
	Since time.Time // when the first was
	More  int64     // after the first
}

type samplerShard[V any] struct {
	mu      sync.Mutex
	buckets map[limit.Key]*Sample[V]
	swept   time.Time
	others  int64 // counted for no bucket
}

// NewSampler returns a sampler with an interval. What is said of a first is kept for
// longer than the request, as the copy that keep makes of it.
func NewSampler[V any](every time.Duration, keep func(V) V) *Sampler[V] {
	return &Sampler[V]{every: every, keep: keep, seed: maphash.MakeSeed()}
}

// Note counts one of the bucket, of which said is told. First reports whether it is the
// first in an interval, and kept is then the copy of said. Over is the interval of the
// bucket before that, with More 0 where there is none to tell of.
func (s *Sampler[V]) Note(now time.Time, key limit.Key, said V) (kept V, first bool, over Sample[V]) {
	shard := &s.shards[maphash.Comparable(s.seed, key)%samplerShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	known := shard.buckets[key]
	switch {
	case known != nil && now.Sub(known.Since) < s.every:
		known.More++
		return kept, false, over
	case known != nil:
		over = *known
	case !shard.hasRoom(now, s.every):
		shard.others++
		return kept, false, over
	default:
		known = shard.add(key)
	}
	kept = s.keep(said)
	*known = Sample[V]{First: kept, Since: now}
	return kept, true, over
}

// Over takes out the intervals that are over at now, or all of them: those with more
// than a first, and the count of what belongs to no bucket.
func (s *Sampler[V]) Over(now time.Time, all bool) (samples []Sample[V], others int64) {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for key, known := range shard.buckets {
			if !all && now.Sub(known.Since) < s.every {
				continue
			}
			if known.More > 0 {
				samples = append(samples, *known)
			}
			delete(shard.buckets, key)
		}
		others += shard.others
		shard.others = 0
		shard.mu.Unlock()
	}
	return samples, others
}

// hasRoom reports whether there is room for another bucket. Where there is none, it
// looks once in an interval for buckets whose own is over, which nobody has asked for:
// what they counted is then counted for no bucket.
func (s *samplerShard[V]) hasRoom(now time.Time, every time.Duration) bool {
	if len(s.buckets) < shardBuckets || now.Sub(s.swept) < every {
		return len(s.buckets) < shardBuckets
	}
	s.swept = now
	for key, known := range s.buckets {
		if now.Sub(known.Since) >= every {
			s.others += known.More
			delete(s.buckets, key)
		}
	}
	return len(s.buckets) < shardBuckets
}

// add makes room for a bucket. Its names may be parts of a request's buffer, so
// they are copied.
func (s *samplerShard[V]) add(key limit.Key) *Sample[V] {
	if s.buckets == nil {
		s.buckets = make(map[limit.Key]*Sample[V])
	}
	key.Tenant = strings.Clone(key.Tenant)
	known := new(Sample[V])
	s.buckets[key] = known
	return known
}
