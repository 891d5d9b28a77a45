package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// accountOf notes requests at a tenth of a ms each, the first so many granted.
func accountOf(capacity int64, asked, granted int) *account {
	t := newTraffic(1)
	t.add(0, limit.Rule{Capacity: capacity, Refill: float64(capacity), WindowMillis: 1000})
	a := newAccounts(t, time.Second)[0]
	for i := range asked {
		at := time.Duration(i) * 100 * time.Microsecond
		d := limit.Decision{Source: limit.SourceRedis}
		if i < granted {
			d.Granted = 1
		}
		a.note(at, at+time.Millisecond, &d)
	}
	return a
}

func TestAnAccountTellsWhatIsOver(t *testing.T) {
	t.Parallel()
	a := accountOf(100, 1000, 100) // in a tenth of a second
	require.Zero(t, a.over(&a.all))
	a = accountOf(100, 1000, 150)
	require.InDelta(t, 50, a.over(&a.all), 3)
	require.InDelta(t, 50, a.over(&a.shared), 3)
}

func TestAnAccountTellsWhatOneBucketAllows(t *testing.T) {
	t.Parallel()
	sum := total(accountOf(100, 1000, 90).perSecond())
	require.InDelta(t, 110, sum.allowed, 1)
	require.InDelta(t, 90, sum.admitted, 0)
}

func TestParseBench(t *testing.T) {
	t.Parallel()
	found := parseBench("goos: linux\nBenchmarkClient/64_callers-2   \t 5\t 3.37 of-one-by-one\t 100 decisions/s\nPASS\n")
	value, ok := found.at("BenchmarkClient/64_callers", "of-one-by-one")
	require.True(t, ok)
	require.InDelta(t, 3.37, value, 0)
	_, ok = found.at("BenchmarkClient/64_callers", "ns/op")
	require.False(t, ok)
}

func TestWriteResultsKeepsOtherParts(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/RESULTS.md"
	require.NoError(t, writeResults(path, "one\n"))
	requireFile(t, path, beginMark+"\none\n"+endMark+"\n")
	require.NoError(t, os.WriteFile(path, []byte("head\n"+beginMark+"\none\n"+endMark+"\ntail\n"), 0o600))
	require.NoError(t, writeResults(path, "two\n"))
	requireFile(t, path, "head\n"+beginMark+"\ntwo\n"+endMark+"\ntail\n")
}

func TestWriteResultsRefusesBrokenMarks(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{beginMark, endMark, endMark + beginMark} {
		path := t.TempDir() + "/RESULTS.md"
		require.NoError(t, os.WriteFile(path, []byte(broken), 0o600))
		require.Error(t, writeResults(path, "one\n"))
		requireFile(t, path, broken)
	}
}

func requireFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// told is a load that told so much of fallbacks.
func told(s scenario, local float64) *measured {
	m := &measured{scenario: s}
	m.shares[limit.SourceLocal] = local
	return m
}

func TestALoadIsVoidWhereItsControlIs(t *testing.T) {
	t.Parallel()
	r := &report{options: options{rate: 50_000}, offered: 10_000, delayed: 5000}
	for _, control := range []float64{0, 0.2} {
		r.measured = nil
		for _, s := range r.scenarios() {
			local := 0.0
			switch {
			case s.kill, s.delay > 0:
				local = 0.5
			case s.proxied, s.name == "prefetch auto":
				local = control
			}
			r.measured = append(r.measured, told(s, local))
		}
		markVoid(r.measured)
		for _, m := range r.measured {
			starved := m.proxied || m.mode.name == "prefetch auto"
			require.Equal(t, starved && control > 0, m.void, m.name)
		}
		said := map[string]string{}
		for _, g := range r.goals() {
			said[g.what] = g.met()
		}
		want := map[bool]string{true: "void", false: "**no**"}[control > 0]
		require.Equal(t, want, said["cluster at +1 ms, 5000/s: decisions that end in the fallback, %"])
		require.Equal(t, control > 0, said["cluster at +1 ms, 5000/s: decision p99, ms"] == "void")
	}
}

func TestScenariosOfferWhatTheProbesFound(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		r := &report{options: options{quick: quick}, offered: 10_000, delayed: 5000}
		names := map[string]bool{}
		for _, s := range r.scenarios() {
			require.False(t, names[s.name], "%s is run twice", s.name)
			names[s.name] = true
			require.Equal(t, s.proxied, s.perSecond == 5000, s.name)
			require.True(t, s.proxied || s.delay == 0, s.name)
		}
		require.True(t, names[control])
		require.True(t, names["strict, +1ms"])
	}
}

func TestAProbeKeepsUp(t *testing.T) {
	t.Parallel()
	require.True(t, (&measured{}).keepsUp())
	require.False(t, told(scenario{}, 0.001).keepsUp())
	require.False(t, (&measured{unasked: 0.001}).keepsUp())
	require.False(t, (&measured{errors: 1}).keepsUp())
	require.False(t, (&measured{sinceDue: [3]time.Duration{0, 6 * time.Millisecond, 0}}).keepsUp())
}

func TestRatesAreTold(t *testing.T) {
	t.Parallel()
	r := &report{options: options{rate: 50_000}, offered: 9000, delayed: 1500, tooMuchDelayed: true}
	require.Contains(t, r.rates(), "9000/s, and 1500/s (it cannot do that either)")
}

func TestAGoalIsMet(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]goal{
		"aim":          {least: 2, aim: 1, value: 1, less: true},
		"yes":          {least: 0.98, aim: 0.995, value: 0.99},
		"**no**":       {least: 0.98, aim: 0.995, value: 1.4, most: 1.005},
		"void":         {least: 2, aim: 1, value: 1, void: true},
		"not measured": {missing: true},
	} {
		require.Equal(t, want, g.met())
	}
	never := goal{value: 3, less: true}
	require.Equal(t, "**no**", never.met())
	never.value = 0
	require.Equal(t, "aim", never.met())
}
