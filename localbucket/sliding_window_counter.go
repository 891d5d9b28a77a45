package localbucket

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// counter is the state of a sliding window counter: the tokens of this window,
// and those of the window before, which count in proportion to how much of it
// the last WindowMillis still cover. The arithmetic is that of the Redis script;
// see token_bucket.go. Products are rounded before they are added, on every
// processor, as Lua does.
type counter struct {
	start     int64 // of this window, in ms of the store's clock
	cur, prev int32 // no more than limit.MaxCapacity
	fullAt    int64
}

// FullAt returns until when the counter is worth its memory.
func (c counter) FullAt() int64 {
	return c.fullAt
}

func (counter) unit() time.Duration { return time.Millisecond }

func (counter) fresh(_ *limit.Rule, now int64) counter {
	return counter{start: now, fullAt: now}
}

// under brings the counter forward to the window that now lies in. A changed
// window keeps the start, and one that is empty again begins like a new one.
func (c counter) under(rule *limit.Rule, now int64) counter {
	passed := (now - c.start) / rule.WindowMillis
	if passed < 1 {
		return c
	}
	c.prev, c.cur = c.cur, 0
	c.start += passed * rule.WindowMillis
	if passed > 1 || c.prev == 0 {
		c.prev, c.start = 0, now
	}
	return c
}

// weighed returns what counts as taken at elapsed ms into a window.
func weighed(cur, prev, elapsed, window float64) float64 {
	return cur + float64(prev*(1-min(max(elapsed/window, 0), 1)))
}

// used returns what counts as taken now.
func (c counter) used(rule *limit.Rule, now int64) float64 {
	return weighed(float64(c.cur), float64(c.prev), float64(now-c.start), float64(rule.WindowMillis))
}

func (c counter) units(cost int64, rule *limit.Rule, now int64) int64 {
	room := float64(rule.Capacity) - c.used(rule, now) + tokenSlack
	return max(0, int64(math.Floor(room/float64(cost))))
}

func (c counter) less(n int64, _ *limit.Rule, _ int64) counter {
	c.cur = int32(min(int64(c.cur)+n, limit.MaxCapacity))
	return c
}

func (c counter) settled(more, at int64, rule *limit.Rule, now int64) (counter, int64) {
	switch {
	case more > 0:
		room := 2*float64(rule.Capacity) - c.used(rule, now) + tokenSlack
		taken := max(0, min(more, int64(math.Floor(room)), limit.MaxCapacity-int64(c.cur)))
		c.cur += int32(taken)
		return c, more - taken
	case at >= c.start:
		c.cur = int32(max(0, int64(c.cur)+more))
	case at >= c.start-rule.WindowMillis:
		c.prev = int32(max(0, int64(c.prev)+more))
	}
	return c, 0
}

// faded returns how many ms into a window prev has faded so far that no more than
// goal counts as taken.
func faded(cur, prev, goal, window float64) int64 {
	if prev <= 0 {
		return 0
	}
	elapsed := max(0, math.Ceil(float64(window*(1-(goal-cur)/prev))-waitSlack))
	if weighed(cur, prev, elapsed, window) > goal+tokenSlack {
		elapsed++
	}
	return int64(elapsed)
}

// wait returns how long it takes until the counter has room for cost, in ms.
func (c counter) wait(cost int64, rule *limit.Rule, now int64) int64 {
	goal, window := float64(rule.Capacity-cost), float64(rule.WindowMillis)
	elapsed := now - c.start
	switch {
	case c.used(rule, now) <= goal+tokenSlack:
		return 0
	case float64(c.cur) <= goal:
		return faded(float64(c.cur), float64(c.prev), goal, window) - elapsed
	default:
		return rule.WindowMillis - elapsed + faded(0, float64(c.cur), goal, window)
	}
}

// reset returns how long it takes until nothing counts as taken, in ms.
func (c counter) reset(rule *limit.Rule, now int64) int64 {
	switch {
	case c.cur > 0:
		return 2*rule.WindowMillis - (now - c.start)
	case c.prev > 0:
		return rule.WindowMillis - (now - c.start)
	default:
		return 0
	}
}

func (c counter) state(cost int64, rule *limit.Rule, now int64) limit.State {
	state := limit.State{
		Remaining:  min(rule.Capacity, c.units(1, rule, now)),
		ResetAfter: time.Duration(c.reset(rule, now)) * time.Millisecond,
		RetryAfter: limit.Never,
	}
	if cost <= rule.Capacity {
		state.RetryAfter = time.Duration(c.wait(cost, rule, now)) * time.Millisecond
	}
	return state
}

func (counter) worth(full limit.State, rule *limit.Rule) time.Duration {
	return windowWorth(full, rule)
}

func (c counter) until(fullAt int64) counter {
	c.fullAt = fullAt
	return c
}

func (counter) places() int { return 1 }

// Interface guards
var _ state[counter] = counter{}
