package localbucket

import (
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// state is what one algorithm keeps of a bucket, with its arithmetic: functions
// of the state, the rule and the time in the algorithm's unit. The zero value is
// no state; it knows its unit and makes fresh ones.
type state[S any] interface {
	bounded.Value

	// unit is what stamps are counted in.
	unit() time.Duration
	// fresh returns a bucket that nothing was ever taken from.
	fresh(rule *limit.Rule, now int64) S
	// under returns the bucket held to today's rule.
	under(rule *limit.Rule, now int64) S
	// units returns how many units of cost the bucket can give, 0 or more.
	units(cost int64, rule *limit.Rule, now int64) int64
	// less returns the bucket after n tokens were taken, which it has.
	less(n int64, rule *limit.Rule, now int64) S
	// settled returns the bucket after more was taken than it gave at a time, or less,
	// and what a debt of the capacity has no room for.
	settled(more, at int64, rule *limit.Rule, now int64) (after S, cut int64)
	// state returns what a decision says of the bucket.
	state(cost int64, rule *limit.Rule, now int64) limit.State
	// worth returns for how long the bucket is worth its memory: until it is full
	// again, or longer where that tells better which of many to drop.
	worth(full limit.State, rule *limit.Rule) time.Duration
	// until returns the bucket with the end of its worth.
	until(fullAt int64) S
	// places is how many places of the store's bound the bucket takes.
	places() int
}

type (
	states[S state[S]]    = bounded.Map[S]
	heldState[S state[S]] = bounded.Held[S]
)

// ask is what a request wants of each of its buckets, and when.
type ask struct {
	cost, count int64
	elapsed     time.Duration // since the store's epoch
}

// turn is one bucket's part in a decision. The hold on the bucket is not in it, so
// that it stays on the stack.
type turn[S state[S]] struct {
	ask
	now     int64 // in the unit of the algorithm
	key     fingerprint
	rule    *limit.Rule
	stored  *S // nil where nothing is stored; good until the next Put
	current S  // what that is under today's rule
}

// newTurn returns the turn of the bucket under key.
func newTurn[S state[S]](key fingerprint, a ask, rule *limit.Rule) turn[S] {
	t := turn[S]{ask: a, key: key, rule: rule}
	t.now = floorTo(a.elapsed, t.current.unit())
	return t
}

// floorTo returns how many whole units have elapsed, rounded down.
func floorTo(elapsed, unit time.Duration) int64 {
	n := int64(elapsed / unit)
	if elapsed%unit < 0 {
		n--
	}
	return n
}

// read finds the bucket and returns how many units it can give.
func (t *turn[S]) read(held *heldState[S]) (units int64) {
	t.stored = held.Get(t.key)
	if t.stored == nil {
		t.current = t.current.fresh(t.rule, t.now)
	} else {
		t.current = (*t.stored).under(t.rule, t.now)
	}
	return t.current.units(t.cost, t.rule, t.now)
}

// settle takes granted units, or notes a refusal, and returns the state after it.
func (t *turn[S]) settle(held *heldState[S], granted int64) limit.State {
	if granted > 0 {
		t.current = t.current.less(granted*t.cost, t.rule, t.now)
	}
	after := t.current.state(t.cost, t.rule, t.now)
	if t.count == 0 {
		return after
	}
	if granted > 0 {
		t.keep(held, after)
	} else {
		t.current = t.current.until(t.end(after))
		t.refuse()
	}
	return after
}

// end is when the bucket is not worth its memory any more.
func (t *turn[S]) end(after limit.State) int64 {
	return t.now + int64(t.current.worth(after, t.rule)/t.current.unit())
}

// keep stores the bucket as it is after a decision.
func (t *turn[S]) keep(held *heldState[S], after limit.State) {
	t.current = t.current.until(t.end(after))
	if t.stored != nil && (*t.stored).places() == t.current.places() {
		*t.stored = t.current
		return
	}
	held.Put(t.key, t.current, t.now)
}

// refuse leaves a stored bucket as it is, except that one which a slower rule makes
// full later is kept for longer.
func (t *turn[S]) refuse() {
	if t.stored == nil {
		return
	}
	*t.stored = (*t.stored).until(max((*t.stored).FullAt(), t.current.FullAt()))
}

// windowWorth is how long a sliding window's bucket is worth its memory. Under one
// rule all of them are empty again a window after their last token; so that a
// flood of new keys drops those with one token first, and not those that are
// nearly used up, what is taken adds its share of a window.
func windowWorth(full limit.State, rule *limit.Rule) time.Duration {
	if full.ResetAfter == 0 {
		return 0
	}
	window := time.Duration(rule.WindowMillis) * time.Millisecond
	taken := 1 - float64(full.Remaining)/float64(rule.Capacity)
	return full.ResetAfter + time.Duration(taken*float64(window))
}
