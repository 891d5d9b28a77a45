package main

import (
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// goal is one row of what is to be reached. Least and aim are worse than a value
// that reaches them in the direction that less says.
type goal struct {
	what       string
	least, aim float64
	value      float64
	format     string
	less       bool    // less is better
	most       float64 // where more is better, but too much is wrong: from where on
	missing    bool    // nothing was measured
	void       bool    // measured, but in a load that is void
}

func (g *goal) met() string {
	switch {
	case g.missing:
		return "not measured"
	case g.void:
		return "void"
	case g.most > 0 && g.value > g.most:
		return "**no**"
	case g.value == g.aim || g.less == (g.value < g.aim):
		return "aim"
	case g.value == g.least || g.less == (g.value < g.least):
		return "yes"
	default:
		return "**no**"
	}
}

func (g *goal) row() string {
	value := fmt.Sprintf(g.format, g.value)
	if g.missing {
		value = ""
	}
	return fmt.Sprintf("| %s | "+g.format+" | "+g.format+" | %s | %s |\n", g.what, g.least, g.aim, value, g.met())
}

// part is a goal for a figure of a benchmark, times a factor.
func (r *report) part(g goal, bench, unit string, factor float64) goal {
	value, found := r.parts.at(bench, unit)
	g.value, g.missing = value*factor, !found
	return g
}

// of is a goal for what a scenario told.
func (r *report) of(g goal, scenario string, value func(*measured) float64) goal {
	for _, m := range r.measured {
		if m.name == scenario {
			g.value, g.void = value(m), m.void
			return g
		}
	}
	g.missing = true
	return g
}

// worst is a goal for the largest that any of some scenarios told.
func (r *report) worst(g goal, scenarios []string, value func(*measured) float64) goal {
	found := r.of(g, scenarios[0], value)
	for _, name := range scenarios[1:] {
		other := r.of(g, name, value)
		found.value, found.void = max(found.value, other.value), found.void || other.void
	}
	return found
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// goals are the rows, in the order in which they were set.
func (r *report) goals() []goal {
	const script, client, latency = "BenchmarkScript", "BenchmarkClient/", "BenchmarkLatency/"
	return append([]goal{
		r.of(goal{what: "prefetch 50 on one hot key (limit 1.25 × the load): decisions per Redis call", least: 40, aim: 48, format: "%.1f"},
			"one key, prefetch 50", func(m *measured) float64 {
				return (m.shares[limit.SourceRedis] + m.shares[limit.SourcePrefetch]) / max(1e-9, m.calls)
			}),
		r.part(goal{what: "Redis µs per decision against the plain script, one entry", least: 1, aim: 0.9, format: "%.2f", less: true}, script, "granted-1-of-plain", 1),
		r.part(goal{what: "the same, 32 entries, each", least: 0.8, aim: 0.65, format: "%.2f", less: true}, script, "granted-32-of-plain", 1),
		r.part(goal{what: "the same, refusal, one entry (its three calls alone are 0.65)", least: 0.75, aim: 0.7, format: "%.2f", less: true}, script, "refused-1-of-plain", 1),
		r.part(goal{what: "Redis µs of a second bucket in an entry, of an entry of one alone", least: 1.1, aim: 1, format: "%.2f", less: true}, secondBucket, ofOne, 1),
		r.part(goal{what: "decisions/s against one call each (HGETALL, client's time, pooled), 64 callers", least: 2, aim: 3, format: "%.2f"}, client+"64_callers", "of-one-by-one", 1),
		r.part(goal{what: "the same, 512 callers", least: 3.5, aim: 5, format: "%.2f"}, client+"512_callers", "of-one-by-one", 1),
		r.part(goal{what: "decision p99 in the process at 2,500/s, ms", least: 2, aim: 0.5, format: "%.2f", less: true}, latency+"2500_per_second", "p99-µs", 0.001),
		r.part(goal{what: "decision p99 in the process at 20,000/s, ms", least: 2, aim: 0.5, format: "%.2f", less: true}, latency+"20000_per_second", "p99-µs", 0.001),
	}, append(r.clusterGoals(),
		r.part(goal{what: "local Take, 100,000 keys, 64 goroutines, allocations", format: "%.0f", less: true}, "BenchmarkTake/keys=100000", "allocs/op", 1),
		r.part(goal{what: "the same, ns", least: 180, aim: 120, format: "%.0f", less: true}, "BenchmarkTake/keys=100000", "ns/op", 1),
		r.part(goal{what: "Redis memory for 100,000 tenants, MB", least: 25, aim: 20, format: "%.1f", less: true}, "BenchmarkMemory/token_bucket/requests=1", "B/guest", 0.1),
		r.part(goal{what: "rule cache for 100,000 rules, heap, MB", least: 40, aim: 20, format: "%.1f", less: true}, "BenchmarkSnapshotHeap/100000", "MB", 1),
	)...)
}

func (r *report) clusterGoals() []goal {
	local := func(m *measured) float64 { return 100 * m.shares[limit.SourceLocal] }
	p99 := func(m *measured) float64 { return millis(m.sinceDue[1]) }
	percent := func(m *measured) float64 { return 100 * m.error }
	strict := []string{"strict", "strict, +500µs", "strict, +1ms", "full demand, strict"}
	return []goal{
		r.worst(goal{what: "cluster, strict: most tokens over capacity + refill × time, any hot tenant, any span", format: "%.0f", less: true},
			strict, func(m *measured) float64 { return m.over }),
		r.worst(goal{what: "the same, of what Redis granted", format: "%.0f", less: true}, strict, func(m *measured) float64 { return m.overShared }),
		r.of(goal{what: fmt.Sprintf("cluster at +1 ms, %.0f/s: decisions that end in the fallback, %%", r.delayed), least: 0.1, format: "%.3f", less: true},
			"strict, +1ms", local),
		r.of(goal{what: fmt.Sprintf("cluster at +1 ms, %.0f/s: decision p99, ms", r.delayed), least: 4, aim: 2.5, format: "%.2f", less: true}, "strict, +1ms", p99),
		r.of(goal{what: "cluster: strict under full demand, admitted of allowed", least: 0.98, aim: 0.995, most: 1.005, format: "%.3f"}, "full demand, strict",
			func(m *measured) float64 { return m.demanded.admitted / max(1, m.demanded.allowed) }),
		r.worst(goal{what: "cluster: error of prefetch auto and 50, %", least: 3, aim: 1, format: "%.2f", less: true}, []string{"prefetch auto", "prefetch 50"}, percent),
		r.of(goal{what: "cluster: error of 4 shards, %", least: 3, aim: 1, format: "%.2f", less: true}, "4 shards", percent),
		r.of(goal{what: fmt.Sprintf("cluster: decision p99 at %.0f/s (wanted %.0f/s), ms", r.offered, r.rate), least: 2, aim: 1, format: "%.2f", less: true}, "strict", p99),
	}
}
