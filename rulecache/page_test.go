package rulecache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestPagesHoldEveryRuleOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var entries []Entry
	for i := range 500 {
		entries = append(entries, entry(fmt.Sprintf("t%d", i/3), []string{"a", "b", "*"}[i%3], int64(i+1)))
	}
	random.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	s := snapshot(t, entries...)
	for _, query := range []Query{{}, {Limit: 1}, {Limit: 7}, {Limit: 500}, {Limit: 1000}, {Route: "a", Limit: 10}, {Tenant: "t7", Limit: 2}} {
		seen, last := 0, Pair{}
		for page := s.Page(query); len(page) > 0; page = s.Page(query) {
			require.LessOrEqual(t, len(page), max(query.Limit, defaultPage))
			for _, e := range page {
				require.Positive(t, e.compare(last), "in order, and none twice")
				last = e.Pair
				rule, found := s.Get(e.Tenant, e.Route)
				require.True(t, found)
				require.Equal(t, rule, e.Rule)
				seen++
			}
			query.After = last
		}
		want := map[bool]int{true: 500}[query.Route == "" && query.Tenant == ""]
		if query.Route != "" {
			want = 167
		}
		if query.Tenant != "" {
			want = 3
		}
		require.Equal(t, want, seen, "%+v", query)
	}
}

// TestPagesDoNotDependOnTheOrder compares pages of sets that were read in any order.
func TestPagesDoNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	var ascending []Entry
	for i := range 1000 {
		ascending = append(ascending, entry(fmt.Sprintf("t%04d", i/2), []string{"a", "b"}[i%2], int64(i+1)))
	}
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	shuffled := slices.Clone(ascending)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, entries := range [][]Entry{ascending, descending, shuffled} {
		s := snapshot(t, entries...)
		for _, limit := range []int{1, 2, 499, 500, 999, 1000, 2000} {
			for _, after := range []int{0, 1, 500, 998, 999} {
				want := ascending[after+1 : min(len(ascending), after+1+limit)]
				require.Len(t, s.Page(Query{Limit: limit, After: ascending[after].Pair}), len(want))
				for i, got := range s.Page(Query{Limit: limit, After: ascending[after].Pair}) {
					require.Equal(t, want[i].Pair, got.Pair)
				}
			}
		}
	}
}

func TestPageOfOne(t *testing.T) {
	t.Parallel()
	s := snapshot(t, entry("t1", "a", 1), entry("*", "a", 2))
	one := Query{Tenant: "t1", Route: "a"}
	require.Len(t, s.Page(one), 1)
	require.Len(t, s.Page(Query{Tenant: "*"}), 1, "a wildcard finds what is stored as one")
	require.Empty(t, s.Page(Query{Tenant: "t1", Route: "a", After: Pair{"t1", "a"}}))
	require.Len(t, s.Page(Query{Tenant: "t1", Route: "a", After: Pair{"t1", "a"}, Including: true}), 1)
	require.Empty(t, s.Page(Query{Tenant: "t2"}))
	require.Empty(t, s.Page(Query{Tenant: "t2", Route: "a"}))
	var none *Snapshot
	require.Empty(t, none.Page(Query{}))
	require.Empty(t, none.Page(one))
}

// TestCandidatesAreWhereFindLooks compares the two on random sets of rules.
func TestCandidatesAreWhereFindLooks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"t1", "t2", Guest, Wildcard}
	for range 500 {
		layers := make([]*Snapshot, 2)
		for i := range layers {
			var entries []Entry
			for _, tenant := range names {
				for _, route := range []string{"a", "b", Wildcard} {
					if random.IntN(4) == 0 {
						entries = append(entries, entry(tenant, route, random.Int64N(1000)+1))
					}
				}
			}
			layers[i] = snapshot(t, entries...)
		}
		for _, tenant := range []string{"t1", "t3", Guest, ""} {
			want, wanted := Find(tenant, "", "a", layers...)
			var got limit.Rule
			found := false
			for _, c := range Candidates(tenant, "", "a", len(layers)) {
				if got, found = layers[c.Layer].Get(c.Tenant, c.Route); found {
					break
				}
			}
			require.Equal(t, wanted, found)
			require.Equal(t, want, got)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	entries := make([]Entry, 0, 1_000_000)
	for i := range 1_000_000 {
		entries = append(entries, entry(fmt.Sprintf("tenant-%07d", i), "a", 1))
	}
	ascending := snapshot(b, entries...)
	slices.Reverse(entries)
	for name, s := range map[string]*Snapshot{"ascending": ascending, "descending": snapshot(b, entries...)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Page(Query{Limit: 1000})
			}
		})
	}
}
