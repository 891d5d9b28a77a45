// Package model says in the plainest way what each algorithm admits, exactly and
// without regard for speed: it is what the tests hold the real ones to. Sums are
// of whole numbers, so capacity times window_ms must stay below 2⁶², or of floats
// of 256 bits.
package model

import (
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// ahead is how far in the future a stamp may be, in µs. One further ahead comes
// from a clock that was wrong, and counts as now.
const ahead = int64(2 * time.Second / time.Microsecond)

// Limiter decides as every limit.Limiter should. Make one with New. It is for one
// goroutine.
type Limiter struct {
	buckets map[name]bucket
	trims   bool // as Options.Trims says
}

type name struct {
	key       limit.Key
	algorithm limit.Algorithm
}

// bucket is the state of one tenant and route under one algorithm. Times are in µs.
type bucket interface {
	// room is how many tokens there are, whole ones.
	room(rule limit.Rule, now int64) int64
	// take takes tokens that there are.
	take(tokens int64, rule limit.Rule, now int64)
	// repair sets stamps that are too far ahead to now.
	repair(rule limit.Rule, now int64)
	// wait is how many ms it takes until there is room for cost.
	wait(cost int64, rule limit.Rule, now int64) int64
	// reset is how many ms it takes until nothing is missing.
	reset(rule limit.Rule, now int64) int64
}

// New returns a Limiter whose buckets are full.
func New() *Limiter {
	return &Limiter{buckets: map[name]bucket{}}
}

// Take decides at a time in µs, with the source that the caller expects.
func (l *Limiter) Take(now int64, req limit.Request) limit.Decision {
	if req.Splits() {
		all, _ := req.TakeEach(func(one limit.Request) (limit.Decision, error) { return l.Take(now, one), nil })
		return all
	}
	buckets := make([]bucket, len(req.Buckets))
	granted := req.Count
	for i, b := range req.Buckets {
		buckets[i] = l.find(b)
		granted = min(granted, buckets[i].room(b.Rule, now)/req.Cost)
	}
	d := limit.Decision{Granted: granted}
	for i, b := range buckets {
		rule := req.Buckets[i].Rule
		switch {
		case granted > 0:
			b.take(granted*req.Cost, rule, now)
		case req.Count > 0:
			b.repair(rule, now)
		}
		state := stateOf(b, req.Cost, rule, now)
		if i == 0 {
			d.First = state
		} else {
			d.Rest = append(d.Rest, state)
		}
	}
	return d
}

// Reset forgets a bucket under every algorithm.
func (l *Limiter) Reset(key limit.Key) {
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		delete(l.buckets, name{key, algorithm})
	}
}

func (l *Limiter) find(b limit.Bucket) bucket {
	of := name{b.Key, max(b.Rule.Algorithm, limit.TokenBucket)}
	if l.buckets[of] == nil {
		switch of.algorithm {
		case limit.SlidingWindowLog:
			l.buckets[of] = &log{trims: l.trims}
		case limit.SlidingWindowCounter:
			l.buckets[of] = new(counter)
		default:
			l.buckets[of] = new(tokens)
		}
	}
	return l.buckets[of]
}

func stateOf(b bucket, cost int64, rule limit.Rule, now int64) limit.State {
	state := limit.State{
		Remaining:  b.room(rule, now),
		RetryAfter: limit.Never,
		ResetAfter: time.Duration(b.reset(rule, now)) * time.Millisecond,
	}
	if cost <= rule.Capacity {
		state.RetryAfter = time.Duration(b.wait(cost, rule, now)) * time.Millisecond
	}
	return state
}

// least returns the least whole number from 0 on that is enough, where every
// number from most on is.
func least(most int64, enough func(int64) bool) int64 {
	low := int64(0)
	for low < most {
		if middle := low + (most-low)/2; enough(middle) {
			most = middle
		} else {
			low = middle + 1
		}
	}
	return low
}
