package localbucket

import (
	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

type (
	hashedKey = bounded.Hashed[fingerprint]
	heldKeys  = bounded.Held[fingerprint, level]
)

// ask is what a request wants of each of its buckets, and when, in ms.
type ask struct {
	cost, count, now int64
}

// turn is one bucket's part in a decision.
type turn struct {
	ask
	key    *hashedKey
	rule   *limit.Rule
	stored *level // nil where nothing is stored; good until the next Put
	level  level  // what that is under today's rule
}

// read finds the bucket and returns how many units it can give.
func (t *turn) read(held *heldKeys) (units int64) {
	t.stored = held.Get(t.key)
	if t.stored == nil {
		t.level = fullLevel(t.rule, t.now)
	} else {
		t.level = t.stored.under(t.rule, t.now)
	}
	return t.level.units(t.cost, t.rule, t.now)
}

// settle takes granted units, or notes a refusal, and returns the state after it.
func (t *turn) settle(held *heldKeys, granted int64) limit.State {
	if granted > 0 {
		t.level = t.level.less(granted*t.cost, t.rule, t.now)
	}
	state := t.level.state(t.cost, t.rule, t.now)
	t.level.fullAt = t.now + state.ResetAfter.Milliseconds()
	switch {
	case granted == 0 && t.count > 0:
		t.refuse()
	case granted == 0:
	case t.stored != nil:
		*t.stored = t.level
	default:
		held.Put(t.key, t.level, t.now)
	}
	return state
}

// refuse leaves a stored bucket as it is, except that a stamp too far ahead is
// repaired, and that a bucket which a slower rule makes full later is kept for
// longer.
func (t *turn) refuse() {
	if t.stored == nil {
		return
	}
	fullAt := max(t.stored.fullAt, t.level.fullAt)
	if t.stored.stamp != t.level.stamp {
		*t.stored = t.level
	}
	t.stored.fullAt = fullAt
}
