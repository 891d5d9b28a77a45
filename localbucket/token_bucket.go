package localbucket

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// The arithmetic of this file is that of the Redis script, on the same numbers:
// whole milliseconds and double floats. Change both or neither.
const (
	// tokenSlack is how much of a token may be missing, because sums of
	// fractions are not exact.
	tokenSlack = 1e-9
	// waitSlack is how much of a millisecond a wait is rounded down by first, so
	// that a wait of 40,000.0000001 ms is not 40,001.
	waitSlack = 1e-6
	// maxAhead is how far ahead of the clock a stamp may be, in ms: further, the
	// clock has been set back, and the stamp would lock the bucket.
	maxAhead = 2000
	// longestWait is the longest wait that a time.Duration can say, in ms.
	longestWait = int64(math.MaxInt64 / time.Millisecond)
)

// level is the state of a token bucket: the balance at a stamp, in ms of the
// store's clock.
type level struct {
	tokens float64
	stamp  int64
	fullAt int64 // when it is full again, in ms; an absent bucket is full
}

// FullAt returns when the bucket is full again.
func (l level) FullAt() int64 {
	return l.fullAt
}

// fullLevel returns a bucket that nothing was ever taken from.
func fullLevel(rule *limit.Rule, now int64) level {
	return level{tokens: float64(rule.Capacity), stamp: now, fullAt: now}
}

// at returns the bucket as it is now: what came in since the stamp is credited
// at today's rate, also for time before a change of the rule, and what is over
// today's capacity is cut. A stamp ahead of now is kept and gives nothing.
func (l level) at(rule *limit.Rule, now int64) level {
	if l.stamp-now > maxAhead {
		l.stamp = now
	}
	if elapsed := now - l.stamp; elapsed > 0 {
		l.tokens += float64(elapsed) * rule.Refill / 1000
		l.stamp = now
	}
	l.tokens = min(l.tokens, float64(rule.Capacity))
	return l
}

// units returns how many units of cost the bucket can give.
func (l level) units(cost int64) int64 {
	return int64(math.Floor((l.tokens + tokenSlack) / float64(cost)))
}

// less returns the bucket after n tokens were taken.
func (l level) less(n int64) level {
	l.tokens = max(0, l.tokens-float64(n))
	return l
}

// wait returns how long it takes until the bucket holds n tokens, in ms.
func (l level) wait(n int64, rule *limit.Rule, now int64) int64 {
	missing := float64(n) - l.tokens
	if missing <= tokenSlack {
		return 0
	}
	wait := math.Ceil(missing*1000/rule.Refill - waitSlack)
	ahead := max(0, l.stamp-now)
	if !(wait < float64(longestWait-ahead)) { // or not a number
		return longestWait
	}
	return int64(wait) + ahead
}

// state returns what a decision says of the bucket.
func (l level) state(cost int64, rule *limit.Rule, now int64) limit.State {
	state := limit.State{
		Remaining:  int64(math.Floor(l.tokens + tokenSlack)),
		ResetAfter: time.Duration(l.wait(rule.Capacity, rule, now)) * time.Millisecond,
		RetryAfter: limit.Never,
	}
	if cost <= rule.Capacity {
		state.RetryAfter = time.Duration(l.wait(cost, rule, now)) * time.Millisecond
	}
	return state
}
