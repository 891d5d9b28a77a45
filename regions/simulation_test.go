package regions

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestSharesInForceNeverSumToMoreThanTheWhole runs 10,000 steps with faults for
// two and for three regions, and more of them in other orders.
func TestSharesInForceNeverSumToMoreThanTheWhole(t *testing.T) {
	t.Parallel()
	seeds := uint64(1)
	if servertest.Thorough(t, "three orders of faults instead of one") {
		seeds = 3
	}
	for _, names := range [][]string{{"eu", "us"}, {"eu", "us", "ap"}} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%d regions, seed %d", len(names), seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, seed)
				w.faulty = true
				for i, name := range names {
					w.demand[name], w.own[name] = 100, 50
					w.add(name)
					if i == 0 {
						w.pass(100)
					}
				}
				for range 10_000 {
					w.trouble(names)
					w.step()
					require.LessOrEqual(t, w.most, Whole, "at %v", w.time)
				}
				t.Logf("at most %.6f in force; jobs that died: %v; version %d", w.most.Fraction(), w.killed, w.store.version)
				require.Greater(t, w.store.version, int64(50), "shares did move")

				// When all is well again, shares follow the demand.
				w.calm(names)
				w.demand, w.own = map[string]float64{}, map[string]float64{}
				w.demand[names[0]], w.demand[names[1]] = 150, 50
				w.passCalmly(900)
				require.InDelta(t, 0.75, w.inForce(names[0], Everything()).Fraction(), 0.09)
				require.InDelta(t, 0.25, w.inForce(names[1], Everything()).Fraction(), 0.09)
				require.LessOrEqual(t, w.most, Whole)
			})
		}
	}
}

// TestSimulationSeesABrokenJob: a job that does not wait for anyone to have read
// is found out, so that the simulation proves something.
func TestSimulationSeesABrokenJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.store.careless, w.faulty = true, true
	names := []string{"eu", "us"}
	for _, name := range names {
		w.demand[name] = 100
		w.add(name)
	}
	for range 10_000 {
		w.trouble(names)
		w.step()
	}
	require.Greater(t, w.most, Whole)
}

// TestSimulationSeesAMissingMargin: one whose gateways go by what they read for
// longer than they tell.
func TestSimulationSeesAMissingMargin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.faulty = true
	names := []string{"eu", "us"}
	for _, name := range names {
		w.demand[name] = 100
		w.add(name)
	}
	for range 10_000 {
		w.trouble(names)
		for _, g := range w.gateways {
			if force := *g.member.force.Load(); force.valid == w.valid {
				force.valid = 3 * w.valid
				g.member.force.Store(&force)
			}
		}
		w.step()
	}
	require.Greater(t, w.most, Whole)
}

// TestJobDiesAtEachPoint kills the job wherever it can die, and lets another go on.
func TestJobDiesAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"update", "opened", "rebalanced", "committed"} {
		w := newWorld(t, 7)
		w.add("eu")
		w.add("eu")
		w.add("us")
		w.demand["eu"], w.demand["us"] = 140, 60
		w.passCalmly(200)
		require.InDelta(t, 0.7, w.inForce("eu", Everything()).Fraction(), 0.08, point)
		w.demand["eu"], w.demand["us"] = 60, 140
		for range 3 {
			w.killAt = point
			w.passCalmly(40)
			w.add("eu")
			w.add("us")
		}
		w.passCalmly(300)
		require.Equal(t, 3, w.killed[point])
		require.InDelta(t, 0.3, w.inForce("eu", Everything()).Fraction(), 0.08, point)
		require.LessOrEqual(t, w.most, Whole, point)
	}
}

// TestRegionThatIsCutOff falls back to its safe share, and the other has the rest
// from then on, not before.
func TestRegionThatIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.add("eu")
	w.add("us")
	w.demand["eu"], w.demand["us"] = 140, 60
	w.passCalmly(300)
	us := w.inForce("us", Everything())
	require.InDelta(t, 0.3, us.Fraction(), 0.08)
	w.cut["us"] = true
	cut := w.time
	for w.inForce("us", Everything()) == us {
		w.step()
	}
	fell := w.time.Sub(cut)
	require.LessOrEqual(t, fell, w.valid+2*time.Second)
	require.Equal(t, DefaultSafe, w.inForce("us", Everything()))
	for w.inForce("eu", Everything()) < Budget-DefaultSafe && w.time.Sub(cut) < 10*time.Minute {
		w.step()
	}
	require.Equal(t, Budget-DefaultSafe, w.inForce("eu", Everything()))
	t.Logf("us fell back after %v, eu had the rest after %v", fell, w.time.Sub(cut))
	delete(w.cut, "us")
	w.passCalmly(300)
	require.InDelta(t, 0.3, w.inForce("us", Everything()).Fraction(), 0.08)
	require.LessOrEqual(t, w.most, Whole)
}

// TestOneLimitElsewhere: a limit whose demand is elsewhere than that of the others
// has shares of its own, and gives them up with it.
func TestOneLimitElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	w.add("eu")
	w.add("us")
	w.demand["eu"], w.demand["us"] = 140, 60
	w.own["us"] = 20
	w.passCalmly(300)
	require.Greater(t, w.inForce("us", hot).Fraction(), 0.8)
	require.Less(t, w.inForce("us", Everything()).Fraction(), 0.5)
	w.own["us"] = 0
	w.passCalmly(900)
	require.Len(t, w.store.limits, 1, "it is as all others again")
	require.Equal(t, w.inForce("us", Everything()), w.inForce("us", hot))
	require.LessOrEqual(t, w.most, Whole)
}
