package rulecache

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// fill makes a snapshot of size rules as a load does: each tenant has two.
func fill(size int) *Snapshot {
	b := newBuilder(size)
	for i := range size {
		b.add(&row{
			fmt.Append(nil, i), fmt.Appendf(nil, "tenant-%016d", i/2), fmt.Appendf(nil, "route-%d", i%2+i/2%10*2),
			strconv.AppendInt(nil, int64(i%1000+1), 10), []byte("5"),
		})
	}
	return b.snapshot(time.Now())
}

func TestFindDoesNotAllocate(t *testing.T) {
	table, static := fill(1000), fill(10)
	for _, tenant := range []string{"tenant-0000000000000100", "unknown", Guest, ""} {
		require.Zero(t, testing.AllocsPerRun(100, func() { Find(tenant, "", "route-0", table, static) }))
	}
}

// BenchmarkFind looks up among 100,000 rules, and in a few static ones where
// there is none for the tenant.
func BenchmarkFind(b *testing.B) {
	table, static := fill(100_000), fill(10)
	tenants := make([]string, 1024)
	for i := range tenants {
		tenants[i] = fmt.Sprintf("tenant-%016d", i*48)
	}
	for name, route := range map[string]string{"hit": "route-", "miss": "other-"} {
		routes := make([]string, len(tenants))
		for i := range routes {
			routes[i] = route + strconv.Itoa(i*48%10*2)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_, found := Find(tenants[i%1024], "", routes[i%1024], table, static)
				if found != (name == "hit") {
					b.Fatal(tenants[i%1024], routes[i%1024])
				}
				i++
			}
		})
	}
}

// BenchmarkSnapshotHeap reports what a snapshot keeps on the heap.
func BenchmarkSnapshotHeap(b *testing.B) {
	for _, size := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				s := fill(size)
				b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestSnapshotHeapIsBounded(t *testing.T) {
	before := heap()
	s := fill(100_000)
	used := heap() - before
	require.Equal(t, 100_000, s.Len())
	require.Less(t, used, int64(20<<20))
}

// BenchmarkLoad reads a whole table, and then only its digest.
func BenchmarkLoad(b *testing.B) {
	for _, size := range []int{100_000, 1_000_000} {
		server := servertest.Postgres(b)
		server.Exec(b, plainTable)
		server.Exec(b, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
			SELECT 'tenant-' || i / 2, 'route-' || i % 2, i % 1000 + 1, 5 FROM generate_series(1, $1::int) i`, size)
		server.Exec(b, `ANALYZE rate_limit_rule`)
		source, err := NewSource(Options{DSN: server.URL("")})
		require.NoError(b, err)
		s, err := source.poller.dialing(nil).Connect(b.Context())
		require.NoError(b, err)
		defer s.Close()
		r := source.poller.reading()
		b.Run(fmt.Sprintf("%d/all", size), func(b *testing.B) {
			for b.Loop() {
				r.known = ""
				found, err := r.read(b.Context(), s)
				require.NoError(b, err)
				require.Equal(b, size, found.rules.snapshot(time.Now()).Len())
				r.known = found.mark
			}
		})
		b.Run(fmt.Sprintf("%d/unchanged", size), func(b *testing.B) {
			for b.Loop() {
				found, err := r.read(b.Context(), s)
				require.NoError(b, err)
				require.Nil(b, found.rules)
			}
		})
	}
}

// BenchmarkStored encodes and decodes a snapshot of 100,000 rules.
func BenchmarkStored(b *testing.B) {
	before := fill(100_000)
	text, err := before.encode()
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_, err := before.encode()
			require.NoError(b, err)
		}
		b.ReportMetric(float64(len(text))/(1<<20), "MB")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_, err := decode(text, 100_000)
			require.NoError(b, err)
		}
	})
}
