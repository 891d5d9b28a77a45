package localbucket

import (
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// log is the state of a sliding window log: when each token was taken. What was
// refused is not in it. It counts in µs, as the Redis script does for its log.
//
// A copy shares the ring, so after less only the result is good.
type log struct {
	ring
	fullAt int64
}

// FullAt returns until when the log is worth its memory.
func (l log) FullAt() int64 {
	return l.fullAt
}

// Weight returns how many places of the store's bound the log takes.
func (l log) Weight() int {
	return l.places()
}

func (log) unit() time.Duration { return time.Microsecond }

func (log) fresh(_ *limit.Rule, now int64) log { return log{fullAt: now} }

func (l log) under(*limit.Rule, int64) log { return l }

// span returns the rule's window in µs.
func span(rule *limit.Rule) int64 {
	return rule.WindowMillis * 1000
}

// logCapacity is the rule's capacity. A rule that took its algorithm from its
// handler's defaults was not held to what a log may hold.
func logCapacity(rule *limit.Rule) int64 {
	return min(rule.Capacity, limit.MaxLogCapacity)
}

// live returns the oldest entry that still counts, and how many tokens do.
func (l log) live(rule *limit.Rule, now int64) (first int32, used int64) {
	first = l.firstAfter(now - span(rule))
	if first == l.size {
		return first, 0
	}
	return first, l.newest().upTo - l.before(first)
}

func (l log) units(cost int64, rule *limit.Rule, now int64) int64 {
	_, used := l.live(rule, now)
	return max(0, logCapacity(rule)-used) / cost
}

func (l log) less(n int64, rule *limit.Rule, now int64) log {
	first, _ := l.live(rule, now)
	l.drop(first)
	l.add(now, n, logCapacity(rule))
	return l
}

// settled gives back tokens that were taken at a time or before, the newest first, and
// only where there are none, younger ones.
func (l log) settled(more, at int64, rule *limit.Rule, now int64) (log, int64) {
	if more >= 0 {
		return l, more
	}
	first, used := l.live(rule, now)
	if used == 0 || at <= now-span(rule) {
		return l, 0
	}
	l.drop(first)
	for back := min(-more, used); back > 0; {
		i := max(0, l.firstAfter(at)-1) // the youngest of then
		back -= l.giveBack(i, back)
	}
	return l, 0
}

// expiry returns how long it takes until tokens taken at a time are free again.
func expiry(at int64, rule *limit.Rule, now int64) time.Duration {
	micros := at + span(rule) - now
	return time.Duration((micros+999)/1000) * time.Millisecond
}

// wait returns how long it takes until enough of the oldest tokens are free again.
func (l log) wait(cost int64, rule *limit.Rule, now int64) time.Duration {
	first, used := l.live(rule, now)
	short := used + cost - logCapacity(rule)
	if short <= 0 {
		return 0
	}
	return expiry(l.holding(l.before(first)+short).at, rule, now)
}

func (l log) state(cost int64, rule *limit.Rule, now int64) limit.State {
	_, used := l.live(rule, now)
	state := limit.State{Remaining: max(0, logCapacity(rule)-used), RetryAfter: limit.Never}
	if used > 0 {
		state.ResetAfter = expiry(l.newest().at, rule, now)
	}
	if cost <= logCapacity(rule) {
		state.RetryAfter = l.wait(cost, rule, now)
	}
	return state
}

func (log) worth(full limit.State, rule *limit.Rule) time.Duration {
	return windowWorth(full, rule)
}

func (l log) until(fullAt int64) log {
	l.fullAt = fullAt
	return l
}

func (l log) places() int { return max(1, len(l.slots)) }

// Interface guards
var _ state[log] = log{}
