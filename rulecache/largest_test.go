package rulecache

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestD7LargestTable loads as many rules as max_rules may allow, keeps them, and
// finds them again: 20,000, or in full ten million, which take 8 GB of memory and two
// minutes. The race detector makes that 21 GB and ten, and finds no more in them than
// in a million.
func TestD7LargestTable(t *testing.T) {
	size, patience := 20_000, time.Minute
	if servertest.Thorough(t, "ten million rules instead of 20,000") {
		size, patience = MaxMaxRules, 10*time.Minute
		if racing() {
			size = 1_000_000
		}
	}
	server := servertest.Postgres(t)
	server.Exec(t, Schema("", ""))
	for first := 1; first <= size; first += 1_000_000 {
		server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
			SELECT 'tenant-' || i, 'a', i % 1000 + 1, 5 FROM generate_series($1::int, $2::int) i`, first, min(first+999_999, size))
	}
	store := new(memoryStore)
	began := time.Now()
	rules := begin(t, server.URL(""), Settings{MaxRules: size, Store: store})
	within(t, patience, "they are loaded", func() bool { return rules.Status().Rules == size })
	t.Logf("%d rules: loaded after %v", size, time.Since(began).Round(time.Millisecond))
	within(t, patience, "they are stored", func() bool { _, saves := store.stats(); return saves == 1 })
	t.Logf("stored after %v", time.Since(began).Round(time.Millisecond))
	last := fmt.Sprint("tenant-", size)
	find := func(s *Snapshot) int64 { rule, _ := s.Get(last, "a"); return rule.Capacity }
	require.EqualValues(t, size%1000+1, find(rules.Snapshot()))

	began = time.Now()
	server.Exec(t, `UPDATE rate_limit_rule SET capacity = 7777 WHERE tenant_id = $1`, last)
	within(t, patience, "a change is in force", func() bool { return find(rules.Snapshot()) == 7777 })
	t.Logf("a change is in force after %v", time.Since(began).Round(time.Millisecond))
	require.Zero(t, rules.Status().FailedLoads)
	require.Zero(t, rules.count(EventStoreFailed))
	rules.stop()

	began = time.Now()
	again := begin(t, nowhere, Settings{MaxRules: size, Store: store})
	within(t, patience, "the stored rules", func() bool { return again.Snapshot().Len() == size })
	t.Logf("the stored rules are in force after %v", time.Since(began).Round(time.Millisecond))
	require.Positive(t, find(again.Snapshot()), "the change may be later than what could be stored")
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("memory that was taken from the system: %d MB", memory.Sys>>20)
}

// racing tells whether the test is built with the race detector.
func racing() bool {
	info, known := debug.ReadBuildInfo()
	return known && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
