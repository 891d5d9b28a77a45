package localbucket

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// The arithmetic of this file is that of the Redis script, on the same numbers:
// whole milliseconds and double floats. Change both or neither. The clock is
// monotonic, so no stamp is repaired here, as the script does after a step of Redis'.
const (
	// tokenSlack is how much of a token may be missing, because sums of
	// fractions are not exact.
	tokenSlack = 1e-9
	// waitSlack is how much of a millisecond a wait is rounded down by first, so
	// that a wait of 40,000.0000001 ms is not 40,001.
	waitSlack = 1e-6
	// longestWait is in ms.
	longestWait = int64(limit.MaxWait / time.Millisecond)
)

// level is the state of a token bucket: what it held at its stamp, in ms of the
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

func (level) unit() time.Duration { return time.Millisecond }

func (level) fresh(rule *limit.Rule, now int64) level {
	return level{tokens: float64(rule.Capacity), stamp: now, fullAt: now}
}

// under cuts what is over the capacity, or beyond the debt that it allows.
func (l level) under(rule *limit.Rule, _ int64) level {
	l.tokens = max(-float64(rule.Capacity), min(l.tokens, float64(rule.Capacity)))
	return l
}

// balance returns what the bucket holds at a time. Time before a change of the
// rule is credited at today's rate.
func (l level) balance(rule *limit.Rule, at int64) float64 {
	if at <= l.stamp {
		return l.tokens
	}
	return min(float64(rule.Capacity), l.tokens+float64(at-l.stamp)*rule.Refill/1000)
}

func (l level) units(cost int64, rule *limit.Rule, now int64) int64 {
	return max(0, int64(math.Floor((l.balance(rule, now)+tokenSlack)/float64(cost))))
}

func (l level) less(n int64, rule *limit.Rule, now int64) level {
	l.tokens = max(0, l.balance(rule, now)-float64(n))
	l.stamp = max(l.stamp, now)
	return l
}

func (l level) settled(more, _ int64, rule *limit.Rule, now int64) (level, int64) {
	left := l.balance(rule, now) - float64(more)
	cut := max(0, math.Ceil(-float64(rule.Capacity)-left-tokenSlack))
	l.tokens = min(float64(rule.Capacity), left+cut)
	l.stamp = max(l.stamp, now)
	return l, int64(cut)
}

// wait returns how long it takes until the bucket, which holds balance now, holds
// n tokens, in ms. Its last step asks the sum that will be made then, which may
// round another way.
func (l level) wait(n int64, balance float64, rule *limit.Rule, now int64) int64 {
	need := float64(n) - tokenSlack
	if balance >= need {
		return 0
	}
	wait := math.Ceil((float64(n)-l.tokens)*1000/rule.Refill - float64(now-l.stamp) - waitSlack)
	if math.IsNaN(wait) || wait >= float64(longestWait) {
		return longestWait
	}
	ms := int64(wait)
	if l.balance(rule, now+ms) < need {
		ms++
	}
	return ms
}

func (l level) state(cost int64, rule *limit.Rule, now int64) limit.State {
	balance := l.balance(rule, now)
	state := limit.State{
		Remaining:  max(0, int64(math.Floor(balance+tokenSlack))),
		ResetAfter: time.Duration(l.wait(rule.Capacity, balance, rule, now)) * time.Millisecond,
		RetryAfter: limit.Never,
	}
	if cost <= rule.Capacity {
		state.RetryAfter = time.Duration(l.wait(cost, balance, rule, now)) * time.Millisecond
	}
	return state
}

func (level) worth(full limit.State, _ *limit.Rule) time.Duration { return full.ResetAfter }

func (l level) until(fullAt int64) level {
	l.fullAt = fullAt
	return l
}

func (level) places() int { return 1 }

// Interface guards
var _ state[level] = level{}
