package ratelimit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
)

func refusedBy(tenant string) *charge {
	return &charge{
		zone: &zone{name: "a", route: "a"}, tenant: tenant,
		bucket: limit.Bucket{Key: limit.Key{Tenant: limit.EscapeName(tenant), Route: "a"}},
	}
}

func testTop() (*top, *timepiece) {
	clock := new(timepiece)
	return newTop(clock.now), clock
}

func TestTopOfTheLastMinute(t *testing.T) {
	t.Parallel()
	top, clock := testTop()
	for range 3 {
		top.note(refusedBy("x"))
	}
	top.note(refusedBy("y"))
	clock.advance(30 * time.Second)
	for range 5 {
		top.note(refusedBy("y"))
	}
	buckets, since := top.list(10)
	require.Len(t, buckets, 2)
	require.Equal(t, []any{"y", int64(6), int64(0)}, []any{buckets[0].tenant, buckets[0].refused, buckets[0].over})
	require.Equal(t, []any{"x", int64(3)}, []any{buckets[1].tenant, buckets[1].refused})
	require.LessOrEqual(t, top.now().Sub(since), 70*time.Second)
	require.GreaterOrEqual(t, top.now().Sub(since), time.Minute)
	buckets, _ = top.list(1)
	require.Len(t, buckets, 1)

	clock.advance(41 * time.Second)
	buckets, _ = top.list(10)
	require.Len(t, buckets, 1, "the first span is over for a minute")
	require.Equal(t, int64(5), buckets[0].refused)
	clock.advance(24 * time.Hour)
	buckets, _ = top.list(10)
	require.Empty(t, buckets)
}

// TestTopIsNeverMissed floods the sketch with made-up tenants: one that refuses
// more than a 32nd of its shard's is there, and its count is right to its bound.
func TestTopIsNeverMissed(t *testing.T) {
	t.Parallel()
	top, _ := testTop()
	const flood, hot = 20_000, 1500
	for i := range flood {
		top.note(refusedBy(fmt.Sprintf("made-up-%d", i)))
		if i*hot/flood != (i+1)*hot/flood {
			top.note(refusedBy("hot"))
		}
	}
	buckets, _ := top.list(adminapi.MaxTop)
	require.Equal(t, "hot", buckets[0].tenant)
	require.GreaterOrEqual(t, buckets[0].refused, int64(hot))
	require.LessOrEqual(t, buckets[0].refused-buckets[0].over, int64(hot))
	require.LessOrEqual(t, len(buckets), topShards*topCounters)
}

func TestTopNames(t *testing.T) {
	t.Parallel()
	forged := guestName + strings.Repeat("0", 64)
	for tenant, want := range map[string][2]string{
		"a/b":                    {"a/b", "a/b"},
		strings.Repeat("x", 97):  {limit.EscapeName(strings.Repeat("x", 97)), limit.EscapeName(strings.Repeat("x", 97))},
		strings.Repeat("/", 200): {limit.EscapeName(strings.Repeat("/", 200)), limit.EscapeName(strings.Repeat("/", 200))},
		strings.Repeat("€", 64):  {strings.Repeat("€", 64), strings.Repeat("€", 64)}, // may have rules
		"~guest":                 {"~guest", ""},
		"~blank":                 {"~blank", ""},
		forged:                   {forged, ""},
		"caf\xe9":                {"caf\xe9", ""},
	} {
		top, _ := testTop()
		top.note(refusedBy(tenant))
		buckets, _ := top.list(1)
		require.Equal(t, want, [2]string{buckets[0].tenant, adminapi.StoredName(buckets[0].tenant, buckets[0].key.Tenant)})
	}
	guest := refusedBy("x")
	name := guestName + strings.Repeat("0", 64)
	guest.tenant, guest.bucket.Key.Tenant = name, name
	top, _ := testTop()
	top.note(guest)
	buckets, _ := top.list(1)
	require.Equal(t, name, adminapi.StoredName(buckets[0].tenant, buckets[0].key.Tenant))
}

func TestTopDoesNotRace(t *testing.T) {
	t.Parallel()
	top, clock := testTop()
	var done sync.WaitGroup
	for n := range 8 {
		done.Go(func() {
			for i := range 2000 {
				top.note(refusedBy(fmt.Sprint("t", n%3)))
				if i%100 == 0 {
					clock.advance(time.Millisecond)
					top.list(5)
				}
			}
		})
	}
	done.Wait()
	buckets, _ := top.list(5)
	require.Len(t, buckets, 3)
	total := int64(0)
	for _, b := range buckets {
		total += b.refused
	}
	require.Equal(t, int64(16_000), total)
}

func BenchmarkTop(b *testing.B) {
	top := newTop(time.Now)
	charges := make([]*charge, 1000)
	for i := range charges {
		charges[i] = refusedBy(fmt.Sprint("tenant-", i))
	}
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprint(tenants, " buckets"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				top.note(charges[i%tenants])
			}
		})
	}
}
