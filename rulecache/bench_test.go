package rulecache

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		require.Zero(t, testing.AllocsPerRun(100, func() { Find(tenant, "route-0", table, static) }))
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
				_, found := Find(tenants[i%1024], routes[i%1024], table, static)
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
