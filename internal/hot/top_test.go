package hot

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// timepiece is a clock that stands still unless it is advanced.
type timepiece struct{ at atomic.Int64 }

func (c *timepiece) now() time.Time          { return time.Unix(1_785_000_000, c.at.Load()) }
func (c *timepiece) advance(d time.Duration) { c.at.Add(int64(d)) }

func bucketOf(tenant string) limit.Key {
	return limit.Key{Tenant: limit.EscapeName(tenant), Route: "a"}
}

// note counts a refusal of the tenant.
func (t *Top) note(tenant string) { t.Note(bucketOf(tenant), "a", tenant) }

func testTop() (*Top, *timepiece) {
	clock := new(timepiece)
	return NewTop(clock.now), clock
}

func TestTopOfTheLastMinute(t *testing.T) {
	t.Parallel()
	top, clock := testTop()
	for range 3 {
		top.note("x")
	}
	top.note("y")
	clock.advance(30 * time.Second)
	for range 5 {
		top.note("y")
	}
	buckets, since, counted := top.List(10)
	require.Len(t, buckets, 2)
	require.Equal(t, []any{"y", int64(6), int64(0)}, []any{buckets[0].Tenant, buckets[0].Count, buckets[0].Over})
	require.Equal(t, []any{"x", int64(3)}, []any{buckets[1].Tenant, buckets[1].Count})
	require.LessOrEqual(t, counted, 70*time.Second)
	require.GreaterOrEqual(t, counted, time.Minute)
	require.Equal(t, clock.now(), since.Add(counted))
	buckets, _, _ = top.List(1)
	require.Len(t, buckets, 1)

	clock.advance(41 * time.Second)
	buckets, _, _ = top.List(10)
	require.Len(t, buckets, 1, "the first span is over for a minute")
	require.Equal(t, int64(5), buckets[0].Count)
	clock.advance(24 * time.Hour)
	buckets, _, _ = top.List(10)
	require.Empty(t, buckets)
}

// TestTopIsNeverMissed floods the sketch with made-up tenants: one that refuses
// more than a 32nd of its shard's is there, and its count is right to its bound.
func TestTopIsNeverMissed(t *testing.T) {
	t.Parallel()
	top, _ := testTop()
	const flood, hot = 20_000, 1500
	for i := range flood {
		top.note(fmt.Sprintf("made-up-%d", i))
		if i*hot/flood != (i+1)*hot/flood {
			top.note("hot")
		}
	}
	buckets, _, _ := top.List(200)
	require.Equal(t, "hot", buckets[0].Tenant)
	require.GreaterOrEqual(t, buckets[0].Count, int64(hot))
	require.LessOrEqual(t, buckets[0].Count-buckets[0].Over, int64(hot))
	require.LessOrEqual(t, len(buckets), topShards*topCounters)
}

func TestTopDoesNotRace(t *testing.T) {
	t.Parallel()
	top, clock := testTop()
	var done sync.WaitGroup
	for n := range 8 {
		done.Go(func() {
			for i := range 2000 {
				top.note(fmt.Sprint("t", n%3))
				if i%100 == 0 {
					clock.advance(time.Millisecond)
					top.List(5)
				}
			}
		})
	}
	done.Wait()
	buckets, _, _ := top.List(5)
	require.Len(t, buckets, 3)
	total := int64(0)
	for _, b := range buckets {
		total += b.Count
	}
	require.Equal(t, int64(16_000), total)
}

func BenchmarkTop(b *testing.B) {
	top := NewTop(time.Now)
	keys := make([]limit.Key, 1000)
	for i := range keys {
		keys[i] = bucketOf(fmt.Sprint("tenant-", i))
	}
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprint(tenants, " buckets"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				top.Note(keys[i%tenants], "a", "tenant")
			}
		})
	}
}
