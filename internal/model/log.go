package model

import (
	"slices"

	"github.com/caddygate/ratelimit/limit"
)

// log is a sliding window log: one time for each token that was taken. At any
// time t at most capacity of them lie in (t - window, t].
type log struct {
	times []int64
	trims bool // as Options.Trims says
}

// seen are the times as they count now.
func (l *log) seen(now int64) log {
	seen := log{make([]int64, 0, len(l.times)), l.trims}
	for _, at := range l.times {
		if at > now+ahead {
			at = now
		}
		seen.times = append(seen.times, at)
	}
	return seen
}

// within is how many tokens lie in the window that ends at a time.
func (l log) within(rule limit.Rule, end int64) (n int64) {
	for _, at := range l.times {
		if at > end-rule.WindowMillis*1000 {
			n++
		}
	}
	return n
}

func (l *log) room(rule limit.Rule, now int64) int64 {
	return max(0, rule.Capacity-l.seen(now).within(rule, now))
}

// take forgets what has left the window: a rule that makes the window longer
// again finds no more than that.
func (l *log) take(n int64, rule limit.Rule, now int64) {
	*l = l.seen(now)
	slices.Sort(l.times)
	gone := int64(len(l.times)) - l.within(rule, now)
	if l.trims {
		gone = min(gone, 2*n+16)
	}
	l.times = l.times[gone:]
	for range n {
		l.times = append(l.times, now)
	}
}

func (l *log) repair(_ limit.Rule, now int64) {
	*l = l.seen(now)
}

func (l *log) wait(cost int64, rule limit.Rule, now int64) int64 {
	seen := l.seen(now)
	return least(rule.WindowMillis+ahead/1000+1, func(ms int64) bool {
		return seen.within(rule, now+ms*1000) <= rule.Capacity-cost
	})
}

func (l *log) reset(rule limit.Rule, now int64) int64 {
	return l.wait(rule.Capacity, rule, now)
}
