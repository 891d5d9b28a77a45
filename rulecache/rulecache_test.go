package rulecache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// entry is a rule that is told apart by its capacity.
func entry(tenant, route string, capacity int64) Entry {
	return Entry{Pair: Pair{Tenant: tenant, Route: route}, Rule: limit.Rule{Capacity: capacity, Refill: 1}}
}

func snapshot(t testing.TB, entries ...Entry) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(entries)
	require.NoError(t, err)
	return s
}

func TestFindPrecedence(t *testing.T) {
	t.Parallel()
	all := []Entry{entry("t1", "a", 1), entry("t1", "*", 2), entry("*", "a", 3), entry("*", "*", 4)}
	static := []Entry{entry("t1", "a", 11), entry("t1", "*", 12), entry("*", "a", 13), entry("*", "*", 14)}
	guest := []Entry{entry(Guest, "a", 21), entry(Guest, "*", 22), entry("*", "*", 4)}
	for name, test := range map[string]struct {
		table, static []Entry
		tenant, route string
		want          int64
	}{
		"the pair":                 {all, static, "t1", "a", 1},
		"the pair, static":         {all[1:], static, "t1", "a", 11},
		"the tenant":               {all[1:], static[1:], "t1", "a", 2},
		"the tenant, static":       {all[2:], static[1:], "t1", "a", 12},
		"the route":                {all[2:], static[2:], "t1", "a", 3},
		"the route, static":        {all[3:], static[2:], "t1", "a", 13},
		"everything":               {all[3:], static[3:], "t1", "a", 4},
		"everything, static":       {nil, static[3:], "t1", "a", 14},
		"nothing":                  {nil, nil, "t1", "a", 0},
		"another route":            {all, static, "t1", "b", 2},
		"another tenant":           {all, static, "t2", "a", 3},
		"another tenant and route": {all, static, "t2", "b", 4},
		"a static pair before a table's wildcard": {all[1:], static[:1], "t1", "a", 11},
		"a guest":                          {guest, all, Guest, "a", 21},
		"a guest on another route":         {guest, all, Guest, "b", 22},
		"a guest without a row of his own": {all, nil, Guest, "b", 4},
		"no tenant":                        {append(guest, all[:2]...), all[2:], "", "a", 3},
		"no tenant on another route":       {append(guest, all[:2]...), nil, "", "b", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, found := Find(test.tenant, "", test.route, snapshot(t, test.table...), nil, snapshot(t, test.static...))
			require.Equal(t, test.want != 0, found)
			require.Equal(t, test.want, rule.Capacity)
		})
	}
	_, found := Find("t1", "", "a", nil, (*Snapshot)(nil))
	require.False(t, found)
	_, found = Find("t1", "", "a")
	require.False(t, found)
}

func TestNewSnapshotRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entries []Entry
		want    string
	}{
		"twice":            {[]Entry{entry("t1", "a", 1), entry("t1", "a", 2)}, `two rules are for one tenant and route "a"`},
		"no tenant":        {[]Entry{entry("", "a", 1)}, "the tenant is empty"},
		"no route":         {[]Entry{entry("t1", "", 1)}, "the route is empty"},
		"a path":           {[]Entry{entry("t1", "/a", 1)}, "is neither a name"},
		"over-long tenant": {[]Entry{entry(strings.Repeat("x", 65), "a", 1)}, "too long"},
		"over-long route":  {[]Entry{entry("t1", strings.Repeat("x", 65), 1)}, "too long"},
		"no text":          {[]Entry{entry("\xff", "a", 1)}, "UTF-8"},
		"capacity":         {[]Entry{entry("t1", "a", 0)}, "capacity 0 is out of bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewSnapshot(test.entries)
			require.ErrorContains(t, err, test.want)
		})
	}
	rule, found := snapshot(t, entry(strings.Repeat("ж", 64), "*", 5)).Get(strings.Repeat("ж", 64), "*")
	require.True(t, found)
	require.EqualValues(t, 5000, rule.WindowMillis)
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	var none *Snapshot
	require.Zero(t, none.Len())
	require.True(t, none.LoadedAt().IsZero())
	require.False(t, none.HasTenant("t1"))
	require.Empty(t, none.Hash())
	count, _ := none.Rejected()
	require.Zero(t, count)

	one, other := snapshot(t, entry("t1", "a", 1), entry("t2", "b", 2)), snapshot(t, entry("t2", "b", 2), entry("t1", "a", 1))
	require.Equal(t, one.Hash(), other.Hash(), "the order does not count")
	require.Len(t, one.Hash(), 32)
	require.NotEqual(t, one.Hash(), snapshot(t, entry("t1", "a", 1), entry("t2", "b", 3)).Hash())
	require.NotEqual(t, snapshot(t, entry("t1a", "b", 1)).Hash(), snapshot(t, entry("t1", "ab", 1)).Hash())
	require.True(t, one.HasTenant("t2"))
	require.False(t, one.HasTenant("a"))
}

func TestRejectionsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBuilder(0)
	for i := range 1000 {
		b.add(&row{columnID: fmt.Append(nil, i)})
	}
	count, reasons := b.snapshot(time.Time{}).Rejected()
	require.Equal(t, 1000, count)
	require.Len(t, reasons, maxRejections)
	require.Equal(t, Rejection{ID: "0", Reason: "the tenant is empty"}, reasons[0])
}

func TestPace(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_785_000_000, 0)
	for name, test := range map[string]struct {
		took     time.Duration
		failures int
		changed  bool
		after    time.Duration
		chance   float64
		want     time.Duration
	}{
		"a poll":                           {want: 24 * time.Second},
		"a poll, at the latest":            {chance: 1, want: 27 * time.Second},
		"a change":                         {changed: true, want: 500 * time.Millisecond},
		"a change after a long load":       {changed: true, took: 2 * time.Second, want: 4 * time.Second},
		"a change in a quiet time":         {changed: true, after: 10 * time.Second, want: 10 * time.Second},
		"such a change, at the latest":     {changed: true, after: 10 * time.Second, chance: 1, want: 10*time.Second + 250*time.Millisecond},
		"a change in a storm, with luck":   {changed: true, chance: 0, want: 500 * time.Millisecond},
		"a change in a storm, without":     {changed: true, chance: 1, want: 500 * time.Millisecond},
		"a poll after a very long load":    {took: 20 * time.Second, want: 40 * time.Second},
		"the first failure":                {failures: 1, want: 500 * time.Millisecond},
		"a failure that took long":         {failures: 1, took: 15 * time.Second, want: 15 * time.Second},
		"many failures that took long":     {failures: 100, took: 15 * time.Second, chance: 1, want: 20 * time.Second},
		"such a failure, and a change":     {failures: 100, took: 15 * time.Second, changed: true, want: 15 * time.Second},
		"the fourth failure":               {failures: 4, want: 800 * time.Millisecond},
		"many failures":                    {failures: 100, want: 4 * time.Second},
		"many failures, at the latest":     {failures: 100, chance: 1, want: 5 * time.Second},
		"many failures, and then a change": {failures: 100, changed: true, want: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{gap: 500 * time.Millisecond, most: 5 * time.Second, start: start, took: test.took, failures: test.failures}
			changed := time.Time{}
			if test.changed {
				changed = start.Add(test.after)
			}
			require.Equal(t, test.want, p.next(30*time.Second, changed, test.chance).Sub(start))
		})
	}
	p := pace{gap: 500 * time.Millisecond, most: 5 * time.Second, start: start, failures: 100}
	require.Equal(t, 800*time.Millisecond, p.next(time.Second, time.Time{}, 0).Sub(start), "never later than a poll")
}

func TestSettingsBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings Settings
		want     string
	}{
		"defaults":        {Settings{}, ""},
		"least":           {Settings{Refresh: time.Second, MaxRules: 1, Channel: "x"}, ""},
		"most":            {Settings{Refresh: 24 * time.Hour, MaxRules: 10_000_000}, ""},
		"refresh, little": {Settings{Refresh: 10 * time.Millisecond}, "refresh 10ms is out of bounds: allowed are 1s to 24h"},
		"refresh, much":   {Settings{Refresh: 25 * time.Hour}, "refresh 25h0m0s is out of bounds"},
		"refresh, no":     {Settings{Refresh: -1}, "refresh"},
		"max_rules":       {Settings{MaxRules: -1}, "max_rules -1 is out of bounds: allowed are 1 to 10000000"},
		"channel":         {Settings{Channel: strings.Repeat("x", 64)}, "64 bytes long: allowed are up to 63"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.settings.Validate()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
	complete := Settings{}.complete()
	require.Equal(t, 30*time.Second, complete.Refresh)
	require.Equal(t, "rate_limit_rule", complete.Channel)
	require.Equal(t, 1_000_000, complete.MaxRules)
}
