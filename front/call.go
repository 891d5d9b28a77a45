package front

import (
	"context"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// call is one call that takes several tokens: one for the request that makes it,
// some for those that come while it is under way, and the rest to be in hand.
type call struct {
	count int64
	done  *flight

	mu      sync.Mutex
	waiting int64 // those who joined, and neither left nor claimed
	tickets int64 // tokens for them
	claimed int64 // those that were handed out
	got     batch
	ended   bool
}

// batch is what a call brought.
type batch struct {
	answered bool
	decision limit.Decision
	sent     int64
	spare    int64 // tokens beside that of the request that made the call
}

func newCall(count int64) *call {
	return &call{count: count, done: newFlight()}
}

// underWay reports whether there is no answer yet.
func (c *call) underWay() bool { return !c.done.ended() }

// admit lets a request wait for the call, if there is a token left to hope for.
func (c *call) admit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.waiting+1 >= c.count {
		return false
	}
	c.waiting++
	return true
}

// wait waits for the end of the call.
func (c *call) wait(ctx context.Context, p patience) error {
	_, err := c.done.wait(ctx, p)
	return err
}

// finish ends the call, and returns how many tokens are for nobody who waits.
func (c *call) finish(got batch) (over int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.got = true, got
	c.tickets = min(c.waiting, got.spare)
	c.done.end()
	return got.spare - c.tickets
}

// claim takes a token for one who has waited.
func (c *call) claim() (limit.Decision, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if c.tickets < 1 {
		return limit.Decision{}, false
	}
	c.tickets--
	c.claimed++
	return c.got.unit(c.got.spare - c.claimed), true
}

// leave is for one who does not wait any more. It reports whether a token has come
// that now is for nobody.
func (c *call) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if c.tickets <= c.waiting {
		return false
	}
	c.tickets--
	return true
}

// unit is the decision on one token, with so many left of the batch.
func (b *batch) unit(left int64) limit.Decision {
	return limit.Decision{Granted: 1, Source: b.decision.Source, First: withHand(b.decision.First, left)}
}

// withHand is a state of the bucket with tokens in hand added.
func withHand(state limit.State, tokens int64) limit.State {
	state.Remaining += tokens
	if tokens > 0 {
		state.RetryAfter = 0
	}
	return state
}

// later is a state after some time, in which nothing is known to have come back.
func later(state limit.State, passed int64) limit.State {
	state.ResetAfter = max(0, state.ResetAfter-time.Duration(passed))
	if state.RetryAfter > 0 {
		state.RetryAfter = max(0, state.RetryAfter-time.Duration(passed))
	}
	return state
}
