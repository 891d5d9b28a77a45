package hot

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func same(said string) string { return said }

func TestSamplerTellsTheFirst(t *testing.T) {
	t.Parallel()
	s, clock := NewSampler(time.Second, func(said string) string { return said + ", kept" }), new(timepiece)
	began := clock.now()
	kept, first, over := s.Note(clock.now(), bucketOf("a"), "1st")
	require.Equal(t, []any{"1st, kept", true, Sample[string]{}}, []any{kept, first, over})
	for range 9 {
		clock.advance(100 * time.Millisecond)
		_, first, over = s.Note(clock.now(), bucketOf("a"), "other")
		require.Equal(t, []any{false, Sample[string]{}}, []any{first, over})
	}
	_, first, _ = s.Note(clock.now(), bucketOf("b"), "b")
	require.True(t, first, "another bucket has its own")
	clock.advance(100 * time.Millisecond)
	kept, first, over = s.Note(clock.now(), bucketOf("a"), "2nd")
	require.Equal(t, []any{"2nd, kept", true, Sample[string]{First: "1st, kept", Since: began, More: 9}}, []any{kept, first, over})

	samples, others := s.Over(clock.now(), false)
	require.Empty(t, samples, "no interval is over that has more than a first")
	require.Zero(t, others)
	s.Note(clock.now(), bucketOf("a"), "other")
	samples, _ = s.Over(clock.now(), true)
	require.Equal(t, []Sample[string]{{First: "2nd, kept", Since: clock.now(), More: 1}}, samples)
	samples, _ = s.Over(clock.now(), true)
	require.Empty(t, samples, "it is told once")
}

// TestH8SamplerCountsAll floods a sampler with more buckets than it keeps, for several
// intervals that nobody asks for in between: each is a first, in the count of its
// bucket or among the others, and no bucket is credited with another's.
func TestH8SamplerCountsAll(t *testing.T) {
	t.Parallel()
	const buckets, each = 20_000, 3
	s, clock := NewSampler(time.Second, same), new(timepiece)
	firsts, counts := 0, map[string]int64{}
	note := func(tenant string) {
		_, first, over := s.Note(clock.now(), bucketOf(tenant), tenant)
		if first {
			firsts++
			counts[tenant]++
		}
		counts[over.First] += over.More
	}
	const intervals = 3
	for interval := range intervals {
		before := firsts
		for range each {
			for i := range buckets {
				note(strconv.Itoa(interval*buckets/2 + i))
			}
		}
		require.Equal(t, Buckets, firsts-before, "interval %d: those of the one before make room", interval)
		clock.advance(time.Second)
	}
	samples, others := s.Over(clock.now(), false)
	sum := others
	for _, sample := range samples {
		counts[sample.First] += sample.More
	}
	for tenant, count := range counts {
		sum += count
		require.LessOrEqual(t, count, int64(each*intervals), "tenant %s has another's count", tenant)
	}
	require.EqualValues(t, buckets*each*intervals, sum)
}

func TestSamplerDoesNotRace(t *testing.T) {
	t.Parallel()
	s, clock := NewSampler(time.Millisecond, same), new(timepiece)
	var together sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for n := range 8 {
		together.Go(func() {
			sum := int64(0)
			for i := range 2000 {
				_, first, over := s.Note(clock.now(), bucketOf(fmt.Sprint(n%3)), "")
				if sum += over.More; first {
					sum++
				}
				if i%100 == 0 {
					clock.advance(time.Millisecond)
					samples, others := s.Over(clock.now(), false)
					for _, sample := range samples {
						sum += sample.More
					}
					sum += others
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total += sum
		})
	}
	together.Wait()
	samples, others := s.Over(clock.now(), true)
	for _, sample := range samples {
		total += sample.More
	}
	require.EqualValues(t, 16_000, total+others)
}

func BenchmarkSampler(b *testing.B) {
	s := NewSampler(time.Minute, same)
	now := time.Now()
	keys := make([]limit.Key, 1000)
	for i := range keys {
		keys[i] = bucketOf(fmt.Sprint("tenant-", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Note(now, keys[i%len(keys)], "said")
	}
}
