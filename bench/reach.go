package main

import (
	"fmt"
	"strings"
)

// goal is a figure that we want to reach.
type goal struct {
	what       string
	least, aim float64
	below      bool // whether less is better
	digits     int
	measured   func(*results) (float64, bool)
}

// ratioGoal is a goal for a paired ratio.
func ratioGoal(what string, least, aim float64, at ratioAt) goal {
	return goal{what: what, least: least, aim: aim, digits: 2, measured: func(r *results) (float64, bool) {
		return r.ratio(at.title, at.load, at.over, at.under)
	}}
}

// ratioAt says which ratio.
type ratioAt struct {
	title       string
	load        load
	over, under string
}

// goals are those of the gateway.
func goals() []goal {
	uniform, few, zipf := load{tenants: many}, load{tenants: 1000}, load{tenants: many, zipf: true}
	return []goal{
		ratioGoal("in memory, static answer, 100,000 tenants, of bare Caddy", 0.88, 0.95, ratioAt{titleStatic, uniform, nameAlone, nameBare}),
		ratioGoal("the same, of caddy-ratelimit", 1.5, 2.0, ratioAt{titleStatic, uniform, nameAlone, namePeer}),
		{
			what: "resident memory at 100,000 tenants, of caddy-ratelimit's", least: 1.0 / 15, aim: 1.0 / 40, below: true, digits: 3,
			measured: func(r *results) (float64, bool) { return r.memoryRatio(0) },
		},
		{
			what: "the same, of what both have more than bare Caddy", least: 1.0 / 15, aim: 1.0 / 40, below: true, digits: 3,
			measured: func(r *results) (float64, bool) { return r.memoryRatio(r.memory[nameBare]) },
		},
		ratioGoal("Redis, `reverse_proxy`, 1,000 tenants, of bare Caddy", 0.85, 0.93, ratioAt{titleProxy, few, nameStrict, nameBare}),
		ratioGoal("Redis, `reverse_proxy`, 100,000 tenants, of bare Caddy", 0.85, 0.93, ratioAt{titleProxy, uniform, nameStrict, nameBare}),
		ratioGoal("Redis, static answer, 100,000 tenants, of a handler that sends one PING", 1.05, 1.25, ratioAt{titleStatic, uniform, nameStrict, namePing}),
		ratioGoal("Redis, `reverse_proxy`, 100,000 tenants, of caddy-ratelimit in memory", 1.0, 1.2, ratioAt{titleProxy, uniform, nameStrict, namePeer}),
		ratioGoal("`prefetch auto`, static answer, zipf, of Redis without it", 1.2, 1.5, ratioAt{titleStatic, zipf, namePrefetch, nameStrict}),
		ratioGoal("flood: 429s, of a handler that refuses", 0.85, 0.95, ratioAt{titleFlood, load{tenants: 1}, nameStrict, nameRefuse}),
		{
			what: "flood: Redis calls a second", least: 130, aim: 105, below: true,
			measured: func(r *results) (float64, bool) {
				samples := r.find(titleFlood, load{tenants: 1}, nameStrict)
				return median(of(samples, sample.callsPerSecond)), len(samples) > 0
			},
		},
	}
}

// memoryRatio is our resident memory, in that of caddy-ratelimit, both without
// the first so many bytes.
func (r *results) memoryRatio(without int64) (float64, bool) {
	ours, theirs := r.memory[nameAlone]-without, r.memory[namePeer]-without
	if r.plan.touched != many || theirs <= 0 {
		return 0, false
	}
	return float64(max(0, ours)) / float64(theirs), true
}

// verdict says how far a goal was reached.
func (g goal) verdict(value float64) string {
	reached := func(bar float64) bool {
		if g.below {
			return value <= bar
		}
		return value >= bar
	}
	switch {
	case reached(g.aim):
		return "aim reached"
	case reached(g.least):
		return "met"
	default:
		return "**not met**"
	}
}

// reach is the table of goals, of those that were measured.
func (r *results) reach() string {
	var out strings.Builder
	void := len(r.void()) > 0
	out.WriteString("| | at least | aim | measured | |\n| --- | --- | --- | --- | --- |\n")
	for _, g := range goals() {
		value, measured := g.measured(r)
		if !measured {
			continue
		}
		verdict := g.verdict(value)
		if void {
			verdict = "void"
		}
		fmt.Fprintf(&out, "| %s | %.*f | %.*f | %.*f | %s |\n",
			g.what, g.digits, g.least, g.digits, g.aim, g.digits, value, verdict)
	}
	return out.String()
}
