package regions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestS5SteadyDemand lets the demand of two regions stay 80 to 20, with one gateway
// in one of them and three in the other. It moves nothing, once it is known, however
// the reports of gateways and the reckonings fall.
func TestS5SteadyDemand(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{MinRebalance, 30 * time.Second, DefaultRebalance} {
		moves := 0
		for seed := range uint64(50) {
			w := newWorld(t, seed)
			w.every = every
			for _, region := range []string{"eu", "us", "us", "us"} {
				w.add(region)
			}
			w.demand["eu"], w.demand["us"] = 80, 20
			w.passCalmly(180)
			const seconds = 600
			given, last := 0.0, w.store.limits[Everything()].Portions
			for range seconds {
				w.step()
				if now := w.store.limits[Everything()].Portions; now[0].Target != last[0].Target {
					moves, last = moves+1, now
				}
				for region, asked := range w.demand {
					given += min(asked, 100*w.inForce(region, Everything()).Fraction())
				}
			}
			require.GreaterOrEqual(t, given, 0.95*100*seconds, "every %s, seed %d", every, seed)
			require.LessOrEqual(t, w.most, Whole)
		}
		t.Logf("every %s: %d moves in 50 times 10 minutes", every, moves)
		require.Zero(t, moves, every)
	}
}

// TestDemandInEqualTimes raises what was told of less time.
func TestDemandInEqualTimes(t *testing.T) {
	t.Parallel()
	books := Books{
		Gateways: map[string]int{"eu": 1, "us": 2, "ap": 1, "sa": 0},
		Demands: []Demand{
			{Elapsed(), "eu", 20_000},
			{Elapsed(), "us", 20_000},
			{Elapsed(), "ap", 1000},
			{Elapsed(), "sa", 10},
			{Elapsed(), "old", 10},
			{hot, "eu", 1},
		},
	}
	require.Equal(t, map[string]float64{"eu": 1, "us": 2, "ap": mostFactor}, books.factors())
}
