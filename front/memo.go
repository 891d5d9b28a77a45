package front

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// longestWait is longer than any window takes, and short enough to reckon with.
const longestWait = 10 * limit.MaxWindow

// memo is what an answer said of one bucket, or, without a rule, that it was reset
// here. Times are in ns of the store's epoch.
type memo struct {
	rule    limit.Rule // the essence of it
	cost    int64      // what one unit cost then
	sent    int64      // when the question was sent, or the bucket was reset
	replied int64      // when the answer came
	until   int64      // nothing of cost or more can be had before; longAgo: it can
	retryAt int64      // when a unit of cost can be had
	fullAt  int64      // when the bucket is full

	remaining  int64
	retryAfter time.Duration
	freeAt     int64 // when a ban is over; longAgo: there is none

	flight *flight // who asks now that until is over; it may have ended
}

// settledSpan is how long a refusal is believed of a bucket whose requests may give
// back what they took.
const settledSpan = memorySpan / 4

// believed is how long a refusal of a bucket is believed at most. The first of one that
// bans is asked for: it begins the ban, or tells that it is due to requests under way. A
// ban holds whatever comes.
func believed(bucket *limit.Bucket, granted int64, state limit.State) int64 {
	switch {
	case state.Banned > 0:
		return memorySpan
	case bucket.Ban > 0 && (granted > 0 || !bucket.Settles):
		return 0
	case bucket.Settles:
		return settledSpan
	default:
		return memorySpan
	}
}

// newMemo returns what an answer says, not yet dated.
func newMemo(bucket *limit.Bucket, cost int64, state limit.State) memo {
	return memo{
		rule: essence(bucket.Rule), cost: cost, remaining: state.Remaining, freeAt: int64(state.Banned),
		retryAfter: min(state.RetryAfter, longestWait), fullAt: int64(min(state.ResetAfter, longestWait)),
		until: longAgo,
	}
}

// date counts the waits from when the question was sent, for what is believed, and
// from when the answer came, for what clients are told. A refusal is believed for so
// long at most.
func (m *memo) date(believed int64) {
	if m.freeAt > 0 {
		m.freeAt += m.replied
		m.cost = 1 // whatever is asked for
	} else {
		m.freeAt = longAgo
	}
	m.retryAt = m.replied + int64(max(0, m.retryAfter))
	m.fullAt += m.replied
	switch {
	case believed == 0:
	case m.retryAfter == limit.Never:
		m.until = m.sent + believed
	case m.retryAfter > 0:
		m.until = m.sent + min(int64(m.retryAfter), believed)
	}
}

// FullAt returns when what is known is of no more use.
func (m memo) FullAt() int64 { return m.sent + 2*memorySpan }

// holds reports whether anything is known of the bucket under a rule. It may be
// asked of nil.
func (m *memo) holds(rule *limit.Rule, now int64) bool {
	return m != nil && now < m.FullAt() && m.rule == essence(*rule)
}

// isSince reports whether a question that was sent at a time tells nothing new. One
// that was sent when the bucket was reset may have been decided before that.
func (m *memo) isSince(sent int64) bool {
	return sent < m.sent || sent == m.sent && m.rule == limit.Rule{}
}

// refuses reports whether nothing of cost can be had yet.
func (m *memo) refuses(cost, now int64) bool { return cost >= m.cost && now < m.until }

// refusesLess reports whether a refusal of less than was asked for now still holds.
func (m *memo) refusesLess(now *memo) bool {
	return m.rule == now.rule && m.cost < now.cost && m.until > now.replied
}

// tells reports whether the bucket's state is known well enough to be told, and
// the wait for cost: of a window only what an answer said.
func (m *memo) tells(cost, now int64) bool {
	known := cost <= m.cost || cost > m.rule.Capacity || m.rule.Algorithm <= limit.TokenBucket
	return known && now < m.sent+memorySpan
}

// ranOut reports whether a refusal of cost held until a moment ago.
func (m *memo) ranOut(cost, now int64) bool {
	return cost >= m.cost && m.until != longAgo && now >= m.until
}

// state is the bucket's for a refused request.
func (m *memo) state(cost, now int64) limit.State {
	state := limit.State{
		Remaining:  m.remaining,
		RetryAfter: m.wait(cost, now),
		ResetAfter: time.Duration(max(0, m.fullAt-now)),
	}
	if m.refuses(cost, now) {
		state.Remaining = min(m.remaining, cost-1)
	}
	if m.freeAt > now {
		state.Banned = atLeastMilli(m.freeAt - now)
		state.RetryAfter = max(state.RetryAfter, state.Banned)
	}
	return state
}

// wait is how long it takes until cost can be had. For more than was asked for then
// the rest is reckoned, which a token bucket refills steadily.
func (m *memo) wait(cost, now int64) time.Duration {
	there := m.remaining // at retryAt
	if m.retryAfter > 0 {
		there = m.cost
	}
	switch {
	case cost > m.rule.Capacity:
		return limit.Never
	case cost <= m.remaining && (m.retryAfter == 0 || cost < m.cost):
		return 0
	case cost <= there:
		return atLeastMilli(m.retryAt - now)
	}
	missing := math.Ceil(float64(cost-there) / m.rule.Refill * 1000)
	return atLeastMilli(min(m.retryAt+int64(missing)*int64(time.Millisecond), m.fullAt) - now)
}

// atLeastMilli is a wait, which must not be 0 where there is one.
func atLeastMilli(ns int64) time.Duration { return max(time.Duration(ns), time.Millisecond) }

// essence is what a rule says about the state of a bucket.
func essence(rule limit.Rule) limit.Rule {
	rule.Algorithm = max(rule.Algorithm, limit.TokenBucket)
	rule.Prefetch, rule.Mode, rule.Shards, rule.Concurrent = 0, 0, 0, 0
	return rule
}

// Interface guards
var _ bounded.Value = memo{}
