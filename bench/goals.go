package main

// Why goals of the same kind are missed, where they are.
const (
	noMetrics = "a version that has metrics could not be had from the Go proxy"

	whyHandler = "Ours adds a few µs: most of them for three headers on each answer and what net/http does with them, little for the bucket. " +
		"A static answer takes Caddy but some 25 µs of a processor, so each µs counts 4 %."
	whyTrip = "A round trip costs the gateway the writing and reading of a socket and the change of goroutines, more than all else that the handler does. " +
		"wrk waits for 64 answers at a time, so that a batch has a handful of requests to share it, and Redis needs its part of the cores."
)

// goals are those of the gateway.
func goals() []goal {
	uniform, few, zipf := load{tenants: many}, load{tenants: 1000}, load{tenants: many, zipf: true}
	return append([]goal{
		ratioGoal("in memory, static answer, 100,000 tenants, of bare Caddy", 0.88, 0.95, ratioAt{titleStatic, uniform, nameAlone, nameBare}).because(whyHandler),
		cannotGoal("in memory, static answer, 100,000 tenants, of caddy-ratelimit with its defaults", 1.5, 2.0, noMetrics),
		ratioGoal("in memory, static answer, 100,000 tenants, of caddy-ratelimit with `disable_metrics` (v0.1.0)", 1.15, 1.4, ratioAt{titleStatic, uniform, nameAlone, namePeer}).
			because("It counts nothing and sends no header but in a refusal; ours does both. And its heap spares it the collector: see above."),
		ratioGoal("Redis, `reverse_proxy`, 1,000 tenants, of bare Caddy", 0.85, 0.93, ratioAt{titleProxy, few, nameStrict, nameBare}).because(whyTrip),
		ratioGoal("Redis, `reverse_proxy`, 100,000 tenants, of bare Caddy", 0.85, 0.93, ratioAt{titleProxy, uniform, nameStrict, nameBare}).because(whyTrip),
		ratioGoal("Redis, static answer, 100,000 tenants, of a handler that sends one PING", 1.05, 1.25, ratioAt{titleStatic, uniform, nameStrict, namePing}).because(whyTrip),
		cannotGoal("Redis, `reverse_proxy`, 100,000 tenants, of caddy-ratelimit in memory with its defaults", 1.0, 1.2, noMetrics),
		ratioGoal("the same, of v0.1.0, which has no metrics", 0, 0, ratioAt{titleProxy, uniform, nameStrict, namePeer}),
		ratioGoal("the same, garbage seldom collected in each", 0, 0, ratioAt{titleEqual, uniform, nameStrict, namePeer}),
		ratioGoal("`prefetch auto`, static answer, zipf, of Redis without it", 1.2, 1.5, ratioAt{titleStatic, zipf, namePrefetch, nameStrict}).
			because("Most of the 100,000 tenants ask too seldom for tokens to be worth taking ahead; only the few hot ones are spared their calls, and batches have made those cheap already."),
		ratioGoal("flood: 429s, of a handler that refuses", 0.85, 0.95, ratioAt{titleFlood, load{tenants: 1}, nameStrict, nameRefuse}).because(whyHandler),
	}, countGoals()...)
}

// countGoals are those that are no ratio of rates.
func countGoals() []goal {
	return []goal{
		{
			what: "flood: Redis calls a second", least: 130, aim: 105, below: true,
			why: "One call for each token that is refilled, 100 a second, is the least; the rest are calls that came a moment before their token.",
			measured: func(r *results) (float64, bool) {
				samples := r.find(titleFlood, load{tenants: 1}, nameStrict)
				return median(of(samples, sample.callsPerSecond)), len(samples) > 0
			},
		},
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
	if r.plan.touched != many || theirs <= 0 {
		return 0, false
	}
	return float64(max(0, ours)) / float64(theirs), true
}
