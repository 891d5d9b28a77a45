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
