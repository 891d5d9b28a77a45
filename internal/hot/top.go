package hot

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Top finds the buckets that were noted most in the last minute, such as for a refusal. It is the
// space-saving sketch of Metwally, Agrawal and El Abbadi (Efficient Computation of
// Frequent and Top-k Elements in Data Streams, 2005) for each span of ten seconds,
// split into shards by bucket so that floods of different buckets do not meet at
// one lock. A shard counts topCounters buckets: another one takes the place of the
// least, and its count along, which is by how much its own may be too high. So a
// bucket with more than one in topCounters of a shard's notes is never missed,
// whatever else floods. All is about 300 KB, 800 KB at most, made when it is needed.
type Top struct {
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
	buckets [topCounters]Bucket
}

// Bucket is a bucket of the list.
type Bucket struct {
	Key    limit.Key
	Zone   string
	Tenant string // as it is told
	Count  int64  // how often it was noted, at most
	Over   int64  // by how much Count may be too high
}

// NewTop returns a list that is empty.
func NewTop(now func() time.Time) *Top { return &Top{now: now, seed: maphash.MakeSeed()} }

// Note counts the bucket once, of the zone and of the tenant as it is told.
func (t *Top) Note(key limit.Key, zone, tenant string) {
	hash := maphash.Comparable(t.seed, key)
	number := spanOf(t.now())
	shard := &t.shards[hash%topShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	counts := shard.span(number)
	if b := counts.bucket(hash, key); b != nil {
		b.Count++
		return
	}
	counts.replaceLeast(hash, kept(key, zone, tenant))
}

// kept is what is kept of a bucket. Its names may be parts of a request's buffer, so
// they are copied.
func kept(key limit.Key, zone, tenant string) Bucket {
	key.Tenant = strings.Clone(key.Tenant)
	b := Bucket{Key: key, Zone: zone, Tenant: key.Tenant}
	if tenant != key.Tenant {
		b.Tenant = strings.Clone(tenant)
	}
	return b
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
func (c *topCounts) bucket(hash uint64, key limit.Key) *Bucket {
	for i, known := range c.hashes[:c.size] {
		if known == hash && c.buckets[i].Key == key {
			return &c.buckets[i]
		}
	}
	return nil
}

// replaceLeast counts a bucket that has no counter.
func (c *topCounts) replaceLeast(hash uint64, b Bucket) {
	at := c.size
	if c.size < topCounters {
		c.size++
	} else {
		at = c.least()
		b.Over = c.buckets[at].Count
	}
	b.Count = b.Over + 1
	c.hashes[at], c.buckets[at] = hash, b
}

func (c *topCounts) least() int {
	least := 0
	for i := range c.buckets {
		if c.buckets[i].Count < c.buckets[least].Count {
			least = i
		}
	}
	return least
}

// List returns the buckets that were noted most, most at most of them, and since when and
// for how long they were counted: a minute, and what the span under way has.
func (t *Top) List(most int) (buckets []Bucket, since time.Time, counted time.Duration) {
	now := t.now()
	number := spanOf(now)
	all := map[limit.Key]Bucket{}
	for i := range t.shards {
		t.shards[i].addTo(all, number)
	}
	for _, b := range all {
		buckets = append(buckets, b)
	}
	slices.SortFunc(buckets, func(a, b Bucket) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Key.Tenant, b.Key.Tenant))
	})
	oldest := number - topSpans + 1
	since = time.Unix(0, oldest*int64(topSpan))
	return buckets[:min(len(buckets), most)], since, now.Sub(since)
}

// addTo adds up the counts of all spans that are not over for longer than a minute.
func (s *topShard) addTo(all map[limit.Key]Bucket, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, counts := range s.spans {
		if counts == nil || counts.number > number || counts.number <= number-topSpans {
			continue
		}
		for _, b := range counts.buckets[:counts.size] {
			sum := all[b.Key]
			b.Count += sum.Count
			b.Over += sum.Over
			all[b.Key] = b
		}
	}
}
