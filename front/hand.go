package front

import (
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// hotDemand is from how many requests in a span a bucket is hot. With fewer, too
// many tokens would be dropped unused.
const hotDemand = 5

// toldSpan is for how long an answer tells what is left in the bucket.
const toldSpan = int64(time.Second)

// hand is what is known of one bucket that tokens may be taken ahead from. Times
// are in ns of the store's epoch.
type hand struct {
	rule   limit.Rule
	demand demand
	told   answer
	tokens int64
	dropAt int64 // when the tokens are too old
	call   *call // the last one; it may have ended
}

// answer is the state of the bucket by the last answer.
type answer struct {
	state limit.State
	at    int64 // longAgo: there was none
}

// newHand returns an empty hand, for the first request under its rule.
func newHand(rule limit.Rule, now int64) hand {
	h := hand{rule: rule, told: answer{at: longAgo}, dropAt: longAgo}
	h.demand.count(now)
	return h
}

// FullAt returns when nothing of the hand is of use any more, if no request comes.
func (h hand) FullAt() int64 { return h.demand.start + int64(holdSpan) + toldSpan }

// spend takes a token from hand, if there is one.
func (h *hand) spend(now int64) bool {
	if h.tokens < 1 || now >= h.dropAt {
		h.tokens = 0
		return false
	}
	h.tokens--
	return true
}

// decision is that on a token from hand.
func (h *hand) decision(now int64) limit.Decision {
	state := withHand(later(h.told.state, now-h.told.at), h.tokens)
	state.Remaining = min(state.Remaining, h.rule.Capacity)
	return limit.Decision{Granted: 1, Source: limit.SourcePrefetch, First: state}
}

// wanted is how many tokens a call would take, at least 1.
func (h *hand) wanted(now, instances int64) int64 {
	if !h.demand.hot() || h.told.at == longAgo || now-h.told.at >= toldSpan {
		return 1
	}
	share := (h.told.state.Remaining + instances - 1) / instances
	return max(1, min(1+h.demand.last/2, share, most(&h.rule)))
}

// mostOfLog bounds what is taken ahead of a log, which writes an entry for each
// token: more would hold up Redis for everyone.
const mostOfLog = 400

// most is how many tokens may be in hand and under way together.
func most(rule *limit.Rule) int64 {
	refills := max(1, int64(rule.Refill*holdSpan.Seconds()))
	if rule.Algorithm == limit.SlidingWindowLog {
		refills = min(refills, mostOfLog)
	}
	if rule.Prefetch == limit.PrefetchAuto {
		return refills
	}
	return min(refills, int64(rule.Prefetch))
}

// demand counts requests in spans of time.
type demand struct {
	start   int64 // of the current span
	current int64
	last    int64 // in the span before
}

// count counts a request.
func (d *demand) count(now int64) {
	switch age := now - d.start; {
	case age >= 2*int64(holdSpan) || age < 0:
		*d = demand{start: now}
	case age >= int64(holdSpan):
		*d = demand{start: d.start + int64(holdSpan), last: d.current}
	}
	d.current++
}

// hot reports whether there is enough demand to take ahead.
func (d *demand) hot() bool { return d.last >= hotDemand }

// Interface guards
var _ bounded.Value = hand{}
