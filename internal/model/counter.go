package model

import "github.com/caddygate/ratelimit/limit"

// counter is a sliding window counter. Windows follow each other from the first
// token on. What counts as taken, e ms into a window, is what was taken in it and
// the part (window - e) / window of what was taken in the one before. A counter
// that is empty again forgets when its windows began.
type counter struct {
	used      bool
	start     int64 // of the window of cur, in ms
	cur, prev int64
}

// seen is the counter as it counts at a time in ms.
func (c counter) seen(rule limit.Rule, ms int64) counter {
	if c.used && c.start > ms+ahead/1000 {
		c.start = ms
	}
	return c.rolled(rule, ms)
}

// rolled is the counter at a time in ms, if nothing is taken until then.
func (c counter) rolled(rule limit.Rule, ms int64) counter {
	for c.used && ms >= c.start+rule.WindowMillis {
		c.start += rule.WindowMillis
		c.prev, c.cur = c.cur, 0
		c.used = c.prev > 0
	}
	if !c.used {
		return counter{start: ms}
	}
	return c
}

// times is window_ms times what counts as taken at a time in ms.
func (c counter) times(rule limit.Rule, ms int64) int64 {
	left := min(max(rule.WindowMillis-(ms-c.start), 0), rule.WindowMillis)
	return c.cur*rule.WindowMillis + c.prev*left
}

// slack is window_ms times the 1e-9 tokens that a sum of fractions may miss.
func slack(rule limit.Rule) int64 { return rule.WindowMillis / 1_000_000_000 }

func (c *counter) room(rule limit.Rule, now int64) int64 {
	ms := floor(now, 1000)
	room := rule.Capacity*rule.WindowMillis - c.seen(rule, ms).times(rule, ms) + slack(rule)
	return min(rule.Capacity, max(0, floor(room, rule.WindowMillis)))
}

func (c *counter) take(n int64, rule limit.Rule, now int64) {
	*c = c.seen(rule, floor(now, 1000))
	c.used = true
	c.cur += n
}

func (c *counter) repair(rule limit.Rule, now int64) {
	if ms := floor(now, 1000); c.used && c.start > ms+ahead/1000 {
		*c = c.seen(rule, ms)
	}
}

func (c *counter) wait(cost int64, rule limit.Rule, now int64) int64 {
	goal := (rule.Capacity-cost)*rule.WindowMillis + slack(rule)
	return c.until(rule, now, func(then counter, ms int64) bool { return then.times(rule, ms) <= goal })
}

// reset counts until both windows are past, even where less than a token's slack
// is left of them.
func (c *counter) reset(rule limit.Rule, now int64) int64 {
	return c.until(rule, now, func(then counter, _ int64) bool { return then.cur == 0 && then.prev == 0 })
}

// until is how many ms it takes until the counter is as wanted.
func (c *counter) until(rule limit.Rule, now int64, wanted func(then counter, ms int64) bool) int64 {
	ms := floor(now, 1000)
	seen := c.seen(rule, ms)
	return least(2*rule.WindowMillis+ahead/1000, func(wait int64) bool {
		return wanted(seen.rolled(rule, ms+wait), ms+wait)
	})
}

// floor divides and rounds down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
