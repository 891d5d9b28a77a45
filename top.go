package ratelimit

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// top finds the buckets that refused most in the last minute. It is the
// space-saving sketch of Metwally, Agrawal and El Abbadi (Efficient Computation of
// Frequent and Top-k Elements in Data Streams, 2005) for each span of ten seconds,
// split into shards by bucket so that floods of different buckets do not meet at
// one lock. A shard counts topCounters buckets: another one takes the place of the
// least, and its count along, which is by how much its own may be too high. So a
// bucket with more than one in topCounters of a shard's refusals is never missed,
// whatever else floods. All is about 300 KB, 800 KB at most, made when it is needed.
type top struct {
	now    func() time.Time
	seed   maphash.Seed
	shards [topShards]topShard
}

const (
	topShards   = 8
	topCounters = 32 // of a shard, in a span
	topSpan     = 10 * time.Second

	// topSpans are the one that is under way, and those of the minute before it.
	topSpans = 7
)

// topShard has the counts of those buckets that fall into it.
type topShard struct {
	mu    sync.Mutex
	spans [topSpans]*topCounts
	_     [64]byte // keeps the locks of two shards in different cache lines
}

// topCounts are the counts of one span.
type topCounts struct {
	number  int64 // of the span
	size    int
	hashes  [topCounters]uint64
	buckets [topCounters]refusedBucket
}

// refusedBucket is a bucket that refused.
type refusedBucket struct {
	key     limit.Key
	zone    string
	tenant  string // as placeholders tell it, or where that is long as keys have it
	refused int64  // at most
	over    int64  // by how much refused may be too high
}

func newTop(now func() time.Time) *top { return &top{now: now, seed: maphash.MakeSeed()} }

// note counts a refusal by the charge's bucket.
func (t *top) note(c *charge) {
	hash := maphash.Comparable(t.seed, c.bucket.Key)
	number := spanOf(t.now())
	shard := &t.shards[hash%topShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	counts := shard.span(number)
	if b := counts.bucket(hash, c.bucket.Key); b != nil {
		b.refused++
		return
	}
	counts.replaceLeast(hash, c)
}

// spanOf is the number of the span that a time is in.
func spanOf(now time.Time) int64 { return now.UnixNano() / int64(topSpan) }

// span returns the counts of a span, in place of those of one that is long over.
func (s *topShard) span(number int64) *topCounts {
	place := &s.spans[number%topSpans]
	switch {
	case *place == nil:
		*place = &topCounts{number: number}
	case (*place).number != number:
		**place = topCounts{number: number}
	}
	return *place
}

// bucket returns the bucket's counter, or nil.
func (c *topCounts) bucket(hash uint64, key limit.Key) *refusedBucket {
	for i, known := range c.hashes[:c.size] {
		if known == hash && c.buckets[i].key == key {
			return &c.buckets[i]
		}
	}
	return nil
}

// replaceLeast counts a bucket that has no counter. Its names may be parts of a
// request's buffer, so they are copied.
func (c *topCounts) replaceLeast(hash uint64, said *charge) {
	at, over := c.size, int64(0)
	if c.size < topCounters {
		c.size++
	} else {
		at = c.least()
		over = c.buckets[at].refused
	}
	key := said.bucket.Key
	key.Tenant = strings.Clone(key.Tenant)
	b := refusedBucket{key: key, zone: said.zone.name, tenant: key.Tenant, refused: over + 1, over: over}
	if told := said.told(); told != key.Tenant {
		b.tenant = strings.Clone(told)
	}
	c.hashes[at], c.buckets[at] = hash, b
}

func (c *topCounts) least() int {
	least := 0
	for i := range c.buckets {
		if c.buckets[i].refused < c.buckets[least].refused {
			least = i
		}
	}
	return least
}

// list returns the buckets that refused most, most at most of them, and since when
// they were counted: a minute, and what the span under way has.
func (t *top) list(most int) (buckets []refusedBucket, since time.Time) {
	number := spanOf(t.now())
	all := map[limit.Key]refusedBucket{}
	for i := range t.shards {
		t.shards[i].addTo(all, number)
	}
	for _, b := range all {
		buckets = append(buckets, b)
	}
	slices.SortFunc(buckets, func(a, b refusedBucket) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.zone, b.zone), cmp.Compare(a.key.Tenant, b.key.Tenant))
	})
	oldest := number - topSpans + 1
	return buckets[:min(len(buckets), most)], time.Unix(0, oldest*int64(topSpan))
}

// addTo adds up the counts of all spans that are not over for longer than a minute.
func (s *topShard) addTo(all map[limit.Key]refusedBucket, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, counts := range s.spans {
		if counts == nil || counts.number > number || counts.number <= number-topSpans {
			continue
		}
		for _, b := range counts.buckets[:counts.size] {
			sum := all[b.key]
			b.refused += sum.refused
			b.over += sum.over
			all[b.key] = b
		}
	}
}
