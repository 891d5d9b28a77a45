package rulecache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestRuleTableIsAMap holds the table to what a map of Go does, also where it was
// made for fewer rules than it gets.
func TestRuleTableIsAMap(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 5000} {
		random := rand.New(rand.NewPCG(1, uint64(size)))
		table, model := newRuleTable(size), map[Pair]limit.Rule{}
		for i := range 5000 {
			pair := Pair{Tenant: fmt.Sprint("t", random.IntN(900)), Route: fmt.Sprint("r", random.IntN(9))}
			rule := limit.Rule{Capacity: int64(i)}
			_, known := model[pair]
			require.Equal(t, known, table.set(pair, rule))
			model[pair] = rule
		}
		require.Equal(t, len(model), table.len())
		require.Equal(t, model, maps.Collect(table.all()))
		for pair, rule := range model {
			got, found := table.get(pair)
			require.True(t, found)
			require.Equal(t, rule, got)
			require.True(t, table.hasTenant(pair.Tenant))
		}
		for _, pair := range []Pair{{"t900", "r1"}, {"t1", "r9"}, {"r1", "t1"}, {"", ""}, {"t1", ""}} {
			_, found := table.get(pair)
			require.False(t, found, pair)
		}
		require.False(t, table.hasTenant("r1"), "a route's name is no tenant")
	}
}

// TestRuleTableNames keeps names apart, although they stand side by side.
func TestRuleTableNames(t *testing.T) {
	t.Parallel()
	table := newRuleTable(0)
	table.set(Pair{"ab", "c"}, limit.Rule{Capacity: 1})
	table.set(Pair{"a", "bc"}, limit.Rule{Capacity: 2})
	table.set(Pair{"same", "same"}, limit.Rule{Capacity: 3})
	for pair, capacity := range map[Pair]int64{{"ab", "c"}: 1, {"a", "bc"}: 2, {"same", "same"}: 3} {
		rule, found := table.get(pair)
		require.True(t, found)
		require.Equal(t, capacity, rule.Capacity)
	}
}
