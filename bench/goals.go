package main

import (
	"math"
	"slices"
)

// Why goals of the same kind are missed, where they are.
const (
	noMetrics = "a version that has metrics could not be had from the Go proxy"
	noEarlier = "name an earlier commit with `-against`"

	whyHandler = "Ours adds a few µs: most of them for three headers on each answer and what net/http does with them, little for the bucket. " +
		"A static answer takes Caddy but some 25 µs of a processor, so each µs counts 4 %."
	whyTrip = "A round trip costs the gateway the writing and reading of a socket and the change of goroutines, more than all else that the handler does. " +
		"wrk waits for 64 answers at a time, so that a batch has a handful of requests to share it, and Redis needs its part of the cores."
	whyFelt = "A decision may wait for the call that is under way before its own; a PING has a connection of its own."
	whyOver = "Where the gateway has no processor left, an answer of Redis that has come lies unread until its deadline has passed, and the request is decided in memory."
)

// The loads that goals are about.
var (
	uniform = load{tenants: many}             //nolint:gochecknoglobals // a constant
	few     = load{tenants: 1000}             //nolint:gochecknoglobals // a constant
	zipf    = load{tenants: many, zipf: true} //nolint:gochecknoglobals // a constant
)

// goals are those of the gateway.
func goals() []goal {
	all := memoryGoals()
	all = append(all, redisGoals()...)
	all = append(all, feltGoals()...)
	all = append(all, overloadGoals()...)
	return append(all, sizeGoals()...)
}

// memoryGoals are about limits without a Redis.
func memoryGoals() []goal {
	return []goal{
		ratioGoal("in memory, static answer, 100,000 tenants, of a handler that does nothing", 0.95, 0.98, ratioAt{titleStatic, uniform, nameAlone, nameNothing}).because(whyHandler),
		ratioGoal("in memory, static answer, 100,000 tenants, of bare Caddy", 0.88, 0.95, ratioAt{titleStatic, uniform, nameAlone, nameBare}).because(whyHandler),
		cannotGoal("in memory, static answer, 100,000 tenants, of caddy-ratelimit with its defaults", 1.5, 2.0, noMetrics),
		ratioGoal("in memory, static answer, 100,000 tenants, of caddy-ratelimit with `disable_metrics` (v0.1.0)", 1.15, 1.4, ratioAt{titleStatic, uniform, nameAlone, namePeer}).
			because("It counts nothing and sends no header but in a refusal; ours does both. And its heap spares it the collector: see above."),
	}
}

// redisGoals are about rates with a Redis, and what they cost.
func redisGoals() []goal {
	return []goal{
		ratioGoal("Redis, `reverse_proxy`, 100,000 tenants, of bare Caddy", 0.88, 0.93, ratioAt{titleProxy, uniform, nameStrict, nameBare}).because(whyTrip),
		ratioGoal("Redis, `reverse_proxy`, 1,000 tenants, of bare Caddy", 0.85, 0.93, ratioAt{titleProxy, few, nameStrict, nameBare}).because(whyTrip),
		ratioGoal("Redis, static answer, 100,000 tenants, of a handler that sends one PING", 1.1, 1.2, ratioAt{titleStatic, uniform, nameStrict, namePing}).because(whyTrip),
		earlierGoal(),
		callsGoal("Redis calls per request at 64 connections, static answer", titleStatic),
		callsGoal("Redis calls per request at 64 connections, `reverse_proxy`", titleProxy),
		{
			what: "decided without Redis at saturation, Redis being up, in the worst of the tables, %", least: 0.3, below: true, digits: 2,
			why:      "The machine's cores are shared with wrk and Redis: where none is free in 5 ms, an answer comes too late or lies unread.",
			measured: (*results).worstLocal,
		},
		cannotGoal("Redis, `reverse_proxy`, 100,000 tenants, of caddy-ratelimit in memory with its defaults", 1.0, 1.2, noMetrics),
		toldRatio("the same, of v0.1.0, which has no metrics", ratioAt{titleProxy, uniform, nameStrict, namePeer}),
		toldRatio("the same, garbage seldom collected in each", ratioAt{titleEqual, uniform, nameStrict, namePeer}),
		ratioGoal("`prefetch auto`, static answer, zipf, of Redis without it", 1.2, 1.5, ratioAt{titleStatic, zipf, namePrefetch, nameStrict}).
			because("Most of the 100,000 tenants ask too seldom for tokens to be worth taking ahead; only the few hot ones are spared their calls, and batches have made those cheap already."),
		ratioGoal("flood: 429s, of a handler that refuses", 0.85, 0.95, ratioAt{titleFlood, load{tenants: 1}, nameStrict, nameRefuse}).because(whyHandler),
		{
			what: "flood: Redis calls a second", least: 130, aim: 105, below: true,
			why: "One call for each token that is refilled, 100 a second, is the least; the rest are calls that came a moment before their token.",
			measured: func(r *results) (float64, bool) {
				samples := r.find(titleFlood, load{tenants: 1}, nameStrict)
				return median(of(samples, sample.callsPerSecond)), len(samples) > 0
			},
		},
	}
}

// earlierGoal is about what a decision through Redis costs the gateway.
func earlierGoal() goal {
	return goal{
		what:  "gateway CPU of a decision through Redis beyond a handler that does nothing, static answer, of the earlier commit's",
		least: 0.75, aim: 0.5, below: true, digits: 2, why: whyTrip, cannot: noEarlier,
		at: ratioAt{titleStatic, uniform, nameStrict, nameEarlier},
		measured: func(r *results) (float64, bool) {
			find := func(name string) []sample { return r.find(titleStatic, uniform, name) }
			return beyond(find(nameStrict), find(nameEarlier), find(nameNothing), sample.gatewayMicros)
		},
	}
}

func callsGoal(what, title string) goal {
	return goal{
		what: what, least: 0.07, aim: 0.05, below: true, digits: 3, why: whyTrip, at: ratioAt{title, uniform, nameStrict, nameStrict},
		measured: func(r *results) (float64, bool) {
			samples := r.find(title, uniform, nameStrict)
			return median(of(samples, sample.callsPerRequest)), len(samples) > 0
		},
	}
}

// worstLocal is the largest part of requests that a gateway decided in memory under
// a load of wrk, in percent.
func (r *results) worstLocal() (float64, bool) {
	worst, measured := 0.0, false
	for i, g := range r.plan.groups {
		for j, c := range g.cells {
			if g.paced == nil && c.name == nameStrict && len(r.samples[i][j]) > 0 {
				worst, measured = max(worst, 100*median(of(r.samples[i][j], sample.localPart))), true
			}
		}
	}
	return worst, measured
}

// feltGoals are about what users feel, in ms.
func feltGoals() []goal {
	of := func(what string, at ratioAt, figure func(sample) float64) goal {
		return goal{what: what, below: true, digits: 3, at: at, measured: func(r *results) (float64, bool) {
			over, under := r.find(titleFelt, at.load, at.over), r.find(titleFelt, at.load, at.under)
			return added(over, under, figure), len(over) > 0 && len(under) > 0
		}}
	}
	all := make([]goal, 0, 6)
	for _, quantile := range []struct {
		name   string
		figure func(sample) float64
	}{{"p50", sample.p50Millis}, {"p99", sample.p99Millis}} {
		bar := of("`reverse_proxy` at half of bare Caddy's rate: "+quantile.name+" added by Redis, beyond what a PING adds, ms",
			ratioAt{titleFelt, uniform, nameStrict, namePing}, quantile.figure)
		bar.least, bar.why = 0.1, whyFelt
		bar.loud = func(r *results) bool { return r.feltNoise(quantile.figure) > bar.least }
		strict := of("the same: added to bare Caddy's by Redis", ratioAt{titleFelt, uniform, nameStrict, nameBare}, quantile.figure)
		ping := of("the same: added to bare Caddy's by a PING", ratioAt{titleFelt, uniform, namePing, nameBare}, quantile.figure)
		strict.told, ping.told = true, true
		all = append(all, bar, strict, ping)
	}
	return all
}

// feltNoise is what a handler that does nothing seems to add to bare Caddy's times,
// or to take from them: where it is more than what is to be told apart, the machine
// was not quiet enough.
func (r *results) feltNoise(figure func(sample) float64) float64 {
	return math.Abs(added(r.find(titleFelt, uniform, nameNothing), r.find(titleFelt, uniform, nameBare), figure))
}

// overloadGoals are about more than the gateway can do.
func overloadGoals() []goal {
	find := func(r *results, name string) []sample { return r.find(titleOverload, uniform, name) }
	ofMaximum := func(what, name string) goal {
		return goal{what: what, digits: 2, why: whyOver, measured: func(r *results) (float64, bool) {
			samples, most := find(r, name), r.findBases(titleOverload, uniform)
			return pairedOf(samples, most, sample.byRedis), len(samples) > 0
		}}
	}
	bar := ofMaximum("overload 1.5 × the strict gateway's maximum under wrk, `reverse_proxy`: decisions by Redis, of those at the maximum", nameBeyond)
	bar.least, bar.aim = 0.6, 0.9
	bar.loud = func(r *results) bool { // the maximum would be too small
		return median(of(r.findBases(titleOverload, uniform), sample.localPart)) > muchLocal
	}
	told := []goal{
		ofMaximum("the same at 1.0 ×, due at fixed times too", nameMost),
		ofMaximum("a handler that sends one PING, as many requests due as ours has at 1.5 ×: PINGs, of the same", namePinged),
		{what: "overload: decided in memory at 1.5 ×, %", digits: 1, measured: func(r *results) (float64, bool) {
			return 100 * median(of(find(r, nameBeyond), sample.localPart)), len(find(r, nameBeyond)) > 0
		}},
	}
	for i := range told {
		told[i].told, told[i].why = true, ""
	}
	return slices.Concat([]goal{bar}, told, []goal{{
		what: "overload: breaker openings at 1.0 × and 1.5 ×, all rounds together", below: true,
		why: "Answers that come too late in a row look like a Redis that is gone.",
		measured: func(r *results) (float64, bool) {
			samples := slices.Concat(find(r, nameMost), find(r, nameBeyond))
			return float64(openings(samples)), len(samples) > 0
		},
	}})
}

// sizeGoals are about memory.
func sizeGoals() []goal {
	return []goal{
		{
			what: "resident memory at 100,000 tenants, of caddy-ratelimit's", least: 1.0 / 15, aim: 1.0 / 40, below: true, digits: 3,
			why:      "Caddy itself is most of ours, and caddy-ratelimit's 24 KB for each tenant are in use only in part after one request: the system gives a page when it is written.",
			measured: func(r *results) (float64, bool) { return r.memoryRatio(0) },
		},
		{
			what: "resident memory at 100,000 tenants beyond bare Caddy's, of caddy-ratelimit's", least: 1.0 / 15, aim: 1.0 / 40, below: true, digits: 3,
			why:      "A tenant takes under 250 bytes here and 24 KB there, of which a part is in use after one request.",
			measured: func(r *results) (float64, bool) { return r.memoryRatio(r.memory[nameBare]) },
		},
	}
}

// memoryRatio is our resident memory, in that of caddy-ratelimit, both without
// the first so many bytes.
func (r *results) memoryRatio(without int64) (float64, bool) {
	ours, theirs := r.memory[nameAlone]-without, r.memory[namePeer]-without
	if r.plan.touched != many || r.memory[nameAlone] == 0 || theirs <= 0 {
		return 0, false
	}
	return float64(max(0, ours)) / float64(theirs), true
}
