package regions

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestAllocate(t *testing.T) {
	t.Parallel()
	const safe = DefaultSafe
	for name, test := range map[string]struct {
		claims []claim
		want   []Share
	}{
		"nobody":                              {nil, []Share{}},
		"alone":                               {[]claim{{safe, 0, 0}}, []Share{Budget}},
		"two, nothing asked":                  {[]claim{{safe, 0, 0}, {safe, 0, 0}}, []Share{Budget / 2, Budget / 2}},
		"70/30":                               {[]claim{{safe, 496_000, 70_000}, {safe, 496_000, 30_000}}, []Share{694_301, 297_699}},
		"an idle region keeps its floor":      {[]claim{{safe, 496_000, 70_000}, {safe, 496_000, 0}}, []Share{Budget - safe, safe}},
		"one that joins has its floor":        {[]claim{{safe, Budget, 1e6}, {safe, 0, 0}}, []Share{Budget - safe, safe}},
		"a floor that was raised":             {[]claim{{safe, 892_000, 1e6}, {200_000, 100_000, 0}}, []Share{792_000, 200_000}},
		"under the hysteresis":                {[]claim{{safe, 700_000, 73_000}, {safe, 292_000, 27_000}}, []Share{700_000, 292_000}},
		"over it for one":                     {[]claim{{safe, 700_000, 77_000}, {safe, 292_000, 23_000}}, []Share{763_809, 228_191}},
		"a few requests in the night":         {[]claim{{safe, 496_000, 0}, {safe, 496_000, 5}}, []Share{496_000, 496_000}},
		"less than a hundredth":               {[]claim{{10_000, 932_000, 934_000}, {10_000, 60_000, 66_000}}, []Share{932_000, 60_000}},
		"three, two idle":                     {[]claim{{safe, 330_000, 1e6}, {safe, 330_000, 0}, {safe, 332_000, 0}}, []Share{Budget - 2*safe, safe, safe}},
		"floors that do not fit are cut":      {[]claim{{600_000, 0, 0}, {600_000, 0, 0}}, []Share{600_000, Budget - 600_000}},
		"demand beyond all numbers is demand": {[]claim{{safe, 496_000, 1e300}, {safe, 496_000, 1e300}}, []Share{496_000, 496_000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, allocate(test.claims))
		})
	}
}

// TestAllocateHoldsTheSum tries claims at random.
func TestAllocateHoldsTheSum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		claims := make([]claim, 1+random.IntN(MaxRegions))
		for i := range claims {
			claims[i] = claim{safe: 10_000 + Share(random.IntN(int(Budget)/len(claims)-10_000)), share: Share(random.IntN(int(Budget) / len(claims)))}
			if random.IntN(3) > 0 {
				claims[i].units = random.Float64() * 1e6
			}
		}
		sum, kept := Share(0), true
		for i, share := range allocate(claims) {
			sum += share
			kept = kept && share == claims[i].share
		}
		require.LessOrEqual(t, sum, Budget)
		if kept {
			continue
		}
		require.Equal(t, Budget, sum)
		for i, share := range allocate(claims) {
			require.GreaterOrEqual(t, share, claims[i].safe)
		}
	}
}

// TestStepHoldsTheSum moves limits at random: what is held never sums to more than
// the budget, nobody gives more than is held, and in the end all is as aimed at.
func TestStepHoldsTheSum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		row := Limit{Portions: make([]Portion, 1+random.IntN(5))}
		for i := range row.Portions {
			row.Portions[i].Region = string(rune('a' + i))
		}
		aim := func() {
			left := Budget
			for i := range row.Portions {
				row.Portions[i].Target = Share(random.IntN(int(left) + 1))
				left -= row.Portions[i].Target
			}
		}
		for range 50 {
			if random.IntN(4) == 0 {
				aim()
			}
			before := row.clone()
			row.step(func(string) bool { return random.IntN(2) == 0 })
			require.LessOrEqual(t, row.held(), Budget)
			for i, p := range row.Portions {
				require.LessOrEqual(t, p.Share, p.Held)
				require.GreaterOrEqual(t, p.Held, min(before.Portions[i].Held, before.Portions[i].Share), "held is let go of down to the share")
			}
		}
		for range 3 {
			row.step(func(string) bool { return true })
		}
		require.True(t, row.settled(), "%+v", row)
	}
}

// TestRaiseComesBack: a region that is to have less, and then more again before
// anyone has read of the less, has at once what it held.
func TestRaiseComesBack(t *testing.T) {
	t.Parallel()
	row := Limit{Portions: []Portion{{"eu", 300_000, 700_000, 700_000}, {"us", 692_000, 292_000, 292_000}}}
	nobody := func(string) bool { return false }
	require.True(t, row.step(nobody))
	require.Equal(t, []Portion{{"eu", 300_000, 300_000, 700_000}, {"us", 692_000, 292_000, 292_000}}, row.Portions)
	require.False(t, row.step(nobody))
	row.Portions[0].Target, row.Portions[1].Target = 600_000, 392_000
	require.True(t, row.step(nobody))
	require.Equal(t, []Portion{{"eu", 600_000, 600_000, 700_000}, {"us", 392_000, 292_000, 292_000}}, row.Portions)
	require.True(t, row.step(func(region string) bool { return region == "eu" }))
	require.Equal(t, []Portion{{"eu", 600_000, 600_000, 600_000}, {"us", 392_000, 392_000, 392_000}}, row.Portions)
}

// TestDroppedRowStaysHeld: a gateway that has not read yet that a limit has no row
// any more gives what that row said, so what is held of all limits covers it.
func TestDroppedRowStaysHeld(t *testing.T) {
	t.Parallel()
	books := Books{
		Version: 32, Due: true,
		Regions: []Region{{"eu", DefaultSafe}, {"us", DefaultSafe}},
		Acked:   map[string]int64{"eu": 31, "us": 32},
		Limits: []Limit{
			{Key: Everything(), Version: 32, Portions: []Portion{{"eu", 380_000, 380_000, 455_000}, {"us", 612_000, 537_000, 537_000}}},
			{Key: hot, Version: 20, Portions: []Portion{{"eu", 455_000, 455_000, 455_000}, {"us", 537_000, 537_000, 537_000}}},
		},
	}
	made := books.rebalance()
	require.Equal(t, []limit.Key{hot}, made.Deleted)
	require.Len(t, made.Limits, 1)
	require.Equal(t, int64(33), made.Limits[0].Version)

	books = Books{Version: 33, Acked: map[string]int64{"eu": 32, "us": 33}, Regions: books.Regions, Limits: made.Limits}
	require.Empty(t, books.rebalance().Limits, "eu has read the lowering, but not that the row is gone")
	books.Acked["eu"] = 33
	made = books.rebalance()
	require.Equal(t, []Portion{{"eu", 380_000, 380_000, 380_000}, {"us", 612_000, 612_000, 612_000}}, made.Limits[0].Portions)
}

// TestRowBeginsAsItsGatewaysGoByIt: a limit that is given shares of its own begins
// with what is held of all limits, also of a lowering that nobody has read yet.
func TestRowBeginsAsItsGatewaysGoByIt(t *testing.T) {
	t.Parallel()
	books := Books{
		Version: 7, Due: true,
		Regions: []Region{{"eu", DefaultSafe}, {"us", DefaultSafe}},
		Acked:   map[string]int64{"eu": 6, "us": 7},
		Limits:  []Limit{{Key: Everything(), Version: 7, Portions: []Portion{{"eu", 500_000, 500_000, 700_000}, {"us", 492_000, 292_000, 292_000}}}},
		Demands: []Demand{
			{hot, "us", 5000},
			{Everything(), "eu", 50_000},
			{Everything(), "us", 45_000},
		},
	}
	made := books.rebalance()
	require.Len(t, made.Limits, 1)
	require.Equal(t, hot, made.Limits[0].Key)
	require.Equal(t, []Portion{{"eu", 50_000, 50_000, 700_000}, {"us", 942_000, 292_000, 292_000}}, made.Limits[0].Portions)
}

// TestOwnRowsAreBounded makes no more rows than are allowed, for those asked for most.
func TestOwnRowsAreBounded(t *testing.T) {
	t.Parallel()
	books := Books{Version: 1, Due: true, Regions: []Region{{"eu", DefaultSafe}, {"us", DefaultSafe}}}
	for i := range 3000 {
		books.Demands = append(books.Demands,
			Demand{limit.Key{Tenant: string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)), Route: "api"}, "us", float64(i)},
			Demand{Everything(), "eu", 1e4})
	}
	made := books.rebalance()
	require.Len(t, made.Limits, maxLimits+1)
	require.False(t, slices.ContainsFunc(made.Limits, func(l Limit) bool { return l.Key.Tenant == "aaa" }))
}

// TestRegionThatIsDeleted is lowered to nothing and then taken out.
func TestRegionThatIsDeleted(t *testing.T) {
	t.Parallel()
	books := Books{
		Version: 7, Due: true, Regions: []Region{{"eu", DefaultSafe}}, Acked: map[string]int64{"eu": 7, "gone": 7},
		Limits: []Limit{{Key: Everything(), Version: 7, Portions: []Portion{{"eu", 500_000, 500_000, 500_000}, {"gone", 492_000, 492_000, 492_000}}}},
	}
	made := books.rebalance()
	require.Equal(t, []Portion{{"eu", Budget, 500_000, 500_000}, {"gone", 0, 0, 492_000}}, made.Limits[0].Portions)
	books = Books{Version: 8, Regions: books.Regions, Acked: map[string]int64{"eu": 8}, Limits: made.Limits}
	made = books.rebalance()
	require.Equal(t, []Portion{{"eu", Budget, Budget, Budget}}, made.Limits[0].Portions)
}
