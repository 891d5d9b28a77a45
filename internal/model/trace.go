package model

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// begin is when traces begin, in µs since the Unix epoch.
const begin = 1_785_000_000_000_000

// Traces is how many traces a test runs for each algorithm, with the seeds from 0
// on: 10,000, or 500 under the race detector, but no more than most, unless the
// environment says it in RATELIMIT_TRACES.
func Traces(most uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("RATELIMIT_TRACES"), 10, 64); err == nil {
		return n
	}
	return min(most, usualTraces)
}

// Step is one request of a trace and the right answer.
type Step struct {
	// Micros is when the request comes, in µs since the Unix epoch.
	Micros int64

	// Request is what is asked.
	Request limit.Request

	// Want is the answer, without its source.
	Want limit.Decision
}

// Options say what a trace is about.
type Options struct {
	// Seed makes a trace the same in every run.
	Seed uint64

	// Algorithm is that of every bucket. Default: each bucket has any, and its
	// rule may change to another.
	Algorithm limit.Algorithm

	// Trims has a log forget at most twice what it grants and 16 tokens more, the
	// oldest first, as the script does, so that more is there to count again where
	// a window becomes longer. Default: it forgets all that has left the window.
	Trims bool

	// Apart has every request ask its buckets apart.
	Apart bool

	// Monotonic is a trace whose clock is never set back. Default: it is.
	Monotonic bool

	// Steps is how many requests the trace has. Default: 25.
	Steps int
}

// Trace returns random requests for one bucket or two, with costs and counts,
// rules that change, pauses of every length, waits that are kept to the
// millisecond or are one too short, and clocks that are set back.
func Trace(o Options) []Step {
	random := rand.New(rand.NewPCG(o.Seed, uint64(o.Algorithm))) //nolint:gosec // a trace is no secret
	w := &walk{Options: o, random: random, model: New(), now: begin}
	w.model.trims = o.Trims
	for i := range w.rules {
		w.rules[i] = w.rule()
	}
	if w.Steps == 0 {
		w.Steps = 25
	}
	steps := make([]Step, w.Steps)
	for i := range steps {
		steps[i] = w.step()
	}
	return steps
}

// walk is a trace in the making.
type walk struct {
	Options
	random *rand.Rand
	model  *Limiter
	now    int64
	rules  [2]limit.Rule
}

func (w *walk) step() Step {
	if w.random.IntN(10) == 0 {
		i := w.random.IntN(len(w.rules))
		w.rules[i] = w.changed(w.rules[i])
	}
	request := w.request()
	step := Step{Micros: w.now, Request: request, Want: w.model.Take(w.now, request)}
	w.now += w.pause(request.Buckets[0].Rule, step.Want.First.RetryAfter)
	return step
}

func (w *walk) request() limit.Request {
	routes := []string{"a", "b"}[:1+w.random.IntN(2)]
	buckets := make([]limit.Bucket, 0, len(routes))
	for i, route := range routes {
		buckets = append(buckets, limit.Bucket{Key: limit.Key{Tenant: "t", Route: route}, Rule: w.rules[i]})
	}
	capacity := w.rules[0].Capacity
	return limit.Request{
		Buckets: buckets,
		Cost:    1 + int64(math.Pow(float64(capacity), w.random.Float64()*w.random.Float64()*1.1)-1),
		Count:   []int64{0, 1, 1, 1, 1, 3, capacity}[w.random.IntN(7)],
		Apart:   w.Apart,
	}
}

// changed is another rule: in everything, or the same with another capacity and
// the same window, or the same capacity and another window.
func (w *walk) changed(rule limit.Rule) limit.Rule {
	other := w.rule()
	switch w.random.IntN(3) {
	case 0:
		other.Capacity, other.Algorithm = rule.Capacity, rule.Algorithm
		other.Refill = float64(other.Capacity) * 1000 / float64(other.WindowMillis)
	case 1:
		other.Algorithm = rule.Algorithm
		other.Capacity = min(other.Capacity, most(rule.Algorithm))
		other.Refill = float64(other.Capacity) * 1000 / float64(rule.WindowMillis)
	}
	checked, err := limit.NewRule(other)
	if err != nil {
		return rule
	}
	return checked
}

// most is the largest capacity in a trace. A log is small, because the model's is
// slow, and because the script repairs at most 100 tokens at a time.
func most(algorithm limit.Algorithm) int64 {
	if algorithm == limit.SlidingWindowLog {
		return 100
	}
	return 100_000
}

// rule is any rule with a window of 1 ms to 28 hours, for which sums of floats
// are within the slack.
func (w *walk) rule() limit.Rule {
	for {
		rule := limit.Rule{Algorithm: w.Algorithm}
		if rule.Algorithm == 0 {
			rule.Algorithm = limit.Algorithm(1 + w.random.IntN(3))
		}
		largest := min([]int64{1, 5, 20, 100, 100_000}[w.random.IntN(5)], most(rule.Algorithm))
		rule.Capacity = int64(math.Pow(float64(largest), w.random.Float64()))
		rule.Refill = float64(rule.Capacity) * 1000 / math.Round(math.Pow(1e8, w.random.Float64()))
		if w.random.IntN(3) == 0 { // fractions that come near whole tokens again
			rule.Refill = []float64{0.1, 0.3, 0.7, 1, 7, 1.0 / 3, 1.0 / 60}[w.random.IntN(7)]
		}
		if checked, err := limit.NewRule(rule); err == nil && checked.WindowMillis <= 1e8 {
			return checked
		}
	}
}

// pause is how many µs pass before the next request.
func (w *walk) pause(rule limit.Rule, wait time.Duration) int64 {
	window := rule.WindowMillis * 1000
	switch w.random.IntN(14) {
	case 0:
		return 0
	case 1:
		return 1 + w.random.Int64N(2000)
	case 2:
		if back := w.random.Int64N(4_000_000); !w.Monotonic {
			return -back
		}
		return 0
	case 3, 4:
		return w.random.Int64N(3 * window)
	case 5, 6, 7:
		return max(0, wait.Microseconds())
	case 8, 9:
		return max(0, wait.Microseconds()-1000)
	case 10:
		return window
	default:
		return 1 + w.random.Int64N(1+3*window/rule.Capacity)
	}
}
