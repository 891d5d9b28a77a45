package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// The tables are about 100 requests a minute, over ten minutes.
const (
	capacity = 100
	second   = int64(1_000_000)
	minute   = 60 * second
	length   = 10 * minute
)

// passed are the times of those requests that an algorithm admits.
func passed(t *testing.T, algorithm limit.Algorithm, asked []int64) (times []int64) {
	t.Helper()
	rule, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: capacity / 60.0, Algorithm: algorithm})
	require.NoError(t, err)
	model := New()
	for _, at := range asked {
		request := limit.Request{Buckets: []limit.Bucket{{Rule: rule}}, Cost: 1, Count: 1}
		if model.Take(begin+at, request).Granted == 1 {
			times = append(times, at)
		}
	}
	return times
}

// busiest is the most that passed in any span of a minute.
func busiest(times []int64) (most int) {
	first := 0
	for i, at := range times {
		for times[first] <= at-minute {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// steady is so many requests a minute, evenly, over the whole time.
func steady(perMinute int64) (asked []int64) {
	for at := int64(0); at < length; at += minute / perMinute {
		asked = append(asked, at)
	}
	return asked
}

// bursts is n requests within a second, again and again, first at a time.
func bursts(n, every, first int64) (asked []int64) {
	for start := first; start < length; start += every {
		for i := range n {
			asked = append(asked, start+i*second/n)
		}
	}
	return asked
}

// random is so many requests a minute on average, at times that know nothing of
// each other.
func random(perMinute float64) (asked []int64) {
	source := rand.New(rand.NewPCG(1, 1))
	for at := 0.0; at < float64(length); at -= math.Log(1-source.Float64()) / perMinute * float64(minute) {
		asked = append(asked, int64(at))
	}
	return asked
}

// edges is all of the limit in the last second of each second minute, and all of
// it again in the first of the next; the first request begins the first window.
func edges() []int64 {
	asked := []int64{0}
	for start := int64(0); start < length; start += 2 * minute {
		for i := range int64(2 * capacity) {
			asked = append(asked, start+minute-second+i*second/capacity)
		}
	}
	return asked
}

// TestTraffic shows, with -v, what the algorithms admit of one traffic.
func TestTraffic(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, traffic := range []struct {
		name  string
		asked []int64
		exact bool // the counter and the log admit the same
	}{
		{"steady, 90 a minute", steady(90), true},
		{"steady, 100 a minute", steady(100), false},
		{"steady, 200 a minute", steady(200), false},
		{"steady, 1000 a minute", steady(1000), false},
		{"random, 90 a minute", random(90), false},
		{"random, 200 a minute", random(200), false},
		{"bursts of 50, each 30 s", bursts(50, 30*second, 0), false},
		{"bursts of 100, each minute", bursts(100, minute, 0), false},
		{"bursts of 100, each 2 minutes", bursts(100, 2*minute, 0), true},
		{"bursts of 300, each 90 s", bursts(300, 90*second, 0), false},
		{"edges of each second minute", edges(), false},
	} {
		bucket := passed(t, limit.TokenBucket, traffic.asked)
		log := passed(t, limit.SlidingWindowLog, traffic.asked)
		counter := passed(t, limit.SlidingWindowCounter, traffic.asked)
		require.LessOrEqual(t, busiest(log), capacity)
		require.Less(t, busiest(counter), 2*capacity)
		require.LessOrEqual(t, busiest(bucket), 2*capacity)
		require.LessOrEqual(t, len(counter), len(log)*2)
		if traffic.exact {
			require.Len(t, counter, len(log), traffic.name)
		}
		fmt.Fprintf(&table, "| %s | %d | %d (%d) | %d (%d) | %d (%d) | %+.0f %% |\n", traffic.name, len(traffic.asked),
			len(log), busiest(log), len(counter), busiest(counter), len(bucket), busiest(bucket),
			100*(float64(len(counter))/float64(len(log))-1))
	}
	t.Logf("admitted in 10 minutes (in the busiest minute)\n"+
		"| traffic | asked | log | counter | bucket | counter against log |\n"+
		"| --- | --- | --- | --- | --- | --- |\n%s", &table)
}

// TestEdge shows, with -v, what passes where all of the limit is asked for just
// before the edge of a window, and all of it again at times after.
func TestEdge(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, pause := range []int64{second / 5, 6 * second, 15 * second, 30 * second, 45 * second, 59 * second, minute, 2 * minute} {
		asked := []int64{0}
		for i := range int64(capacity - 1) {
			asked = append(asked, minute-second/10+i)
		}
		again := minute - second/10 + pause
		for i := range int64(capacity) {
			asked = append(asked, again+i)
		}
		slices.Sort(asked)
		var counts []int
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			n := 0
			for _, at := range passed(t, algorithm, asked) {
				if at >= again {
					n++
				}
			}
			counts = append(counts, n)
		}
		require.LessOrEqual(t, counts[1], capacity)
		if pause < minute-second {
			require.LessOrEqual(t, counts[1], 1, "the log has room for the one that began")
		}
		require.Less(t, counts[2], capacity+1)
		fmt.Fprintf(&table, "| %.1f s | %d | %d | %d | %d |\n", float64(pause)/float64(second), capacity, counts[1], counts[2], counts[0])
	}
	t.Logf("admitted of the second 100\n"+
		"| the second 100 come after | fixed window | log | counter | bucket |\n"+
		"| --- | --- | --- | --- | --- |\n%s", &table)
}

// TestWorstCounter looks for the worst that a counter admits in any minute: all
// that there is at the end of one window, and what has faded through the next.
func TestWorstCounter(t *testing.T) {
	t.Parallel()
	worst := map[limit.Algorithm]int{}
	asked := []int64{0}
	for i := range int64(capacity - 1) {
		asked = append(asked, minute-second/100+i)
	}
	for at := minute; at < 2*minute-second/100; at += second / 50 {
		asked = append(asked, at)
	}
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		worst[algorithm] = busiest(passed(t, algorithm, asked))
	}
	require.LessOrEqual(t, worst[limit.SlidingWindowLog], capacity)
	require.Less(t, worst[limit.SlidingWindowCounter], 2*capacity)
	require.Greater(t, worst[limit.SlidingWindowCounter], 2*capacity-5, "the bound is met")
	t.Logf("the most in any minute: %v", worst)
}
