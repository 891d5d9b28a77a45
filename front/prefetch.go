package front

import (
	"context"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// holdSpan is how long tokens are in hand at most, counted from when they were
// asked for. Demand is measured in spans of this length too, and no call takes more
// than what refills in one.
const holdSpan = 100 * time.Millisecond

// PrefetchStore is the tokens that Prefetch has in hand, and the demand that it has
// measured: about 230 bytes for each bucket that it was asked about. It outlives
// the layers that work on it. Make one with NewPrefetchStore.
type PrefetchStore struct{ store[hand] }

// NewPrefetchStore returns a store with nothing in hand.
func NewPrefetchStore() *PrefetchStore { return &PrefetchStore{newStore[hand]()} }

// Prefetch takes several tokens at once for a bucket that is hot here, if its rule
// asks for that, and answers the next requests from them. It is about requests for
// one unit, at a cost of 1, of one bucket: all others are Next's.
//
// A bucket is hot from 50 requests a second. When nothing is in hand a call, of
// which there is one at a time, takes a token for the request that makes it and
// half as many more as were asked for in the last 100 ms, so that they are used
// long before they are too old. It takes no more in all than limit.Rule.Prefetch
// says, than what refills in 100 ms (which is all that limits
// limit.PrefetchAuto), and than this instance's part of what the last answer left,
// which counts for a second; and always one. What is in hand after 100 ms is
// dropped, never given back. So all instances together admit, in any span of time,
// at most their number times limit.Rule.Prefetch more than the bucket gives in it.
// Set the fields before the first call.
type Prefetch struct {
	// Next is where tokens come from.
	Next limit.Limiter

	// Store is what is in hand.
	Store *PrefetchStore

	// Instances tells how many instances take from the same buckets. It is asked on
	// the request's goroutine and must not block. Default: 1.
	Instances func() int64

	// Clock tells the time. Default: time.Now.
	Clock func() time.Time
}

// Take grants from hand with SourcePrefetch. While a call is under way, as many
// requests as it takes tokens for wait for it, and are granted with its source;
// those that it brings no token for, and all others, are Next's. The error is
// Next's, or says that ctx or the request's deadline ended the wait: the token that
// comes then stays in hand.
func (p *Prefetch) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if req.Splits() && anyOf(&req, takesAhead) {
		return req.TakeEach(func(one limit.Request) (limit.Decision, error) { return p.Take(ctx, one) })
	}
	if !takesAhead(&req) {
		return p.Next.Take(ctx, req)
	}
	key := p.Store.key(req.Buckets[0].Key)
	turn := p.turn(key, &req.Buckets[0].Rule)
	switch turn.move {
	case fromHand:
		return turn.decision, nil
	case fetches:
		return p.fetch(ctx, &req, key, turn.call)
	case joins:
		return p.join(ctx, req, key, turn.call)
	default:
		return p.pass(ctx, &req, key, turn.hot)
	}
}

// Settle is Next's: nothing is settled in a bucket that tokens are taken ahead from.
func (p *Prefetch) Settle(s limit.Settlement) { p.Next.Settle(s) }

// Reset resets the bucket in Next and drops what is in hand, also where that fails,
// and what is under way for nobody.
func (p *Prefetch) Reset(ctx context.Context, key limit.Key) error {
	err := p.Next.Reset(ctx, key)
	dropped := p.Store.key(key)
	held := p.Store.entries.Lock(dropped)
	defer held.Unlock()
	held.Delete(dropped)
	return err
}

// turn is what a request is to do.
type turn struct {
	move     move
	decision limit.Decision // from hand
	call     *call          // to make or to join
	hot      bool
}

// move is one of those.
type move uint8

const (
	passes move = iota // ask Next for itself alone
	fromHand
	fetches // make the call
	joins   // wait for the call
)

// turn counts a request and finds out what it is to do.
func (p *Prefetch) turn(key storeKey, rule *limit.Rule) turn {
	now := p.Store.elapsed(p.Clock)
	held := p.Store.entries.Lock(key)
	defer held.Unlock()
	h := held.Get(key)
	if h == nil || h.rule != *rule {
		held.Put(key, newHand(*rule, now), now)
		return turn{}
	}
	h.demand.count(now)
	if h.spend(now) {
		return turn{move: fromHand, decision: h.decision(now)}
	}
	if h.call != nil && h.call.underWay() {
		if h.call.admit() {
			return turn{move: joins, call: h.call}
		}
		return turn{}
	}
	if n := h.wanted(now, counted(p.Instances)); n > 1 {
		h.call = newCall(n)
		return turn{move: fetches, call: h.call}
	}
	return turn{hot: h.demand.hot()}
}

// pass asks for one request alone. Where the bucket is hot, the answer tells what
// a call may take.
func (p *Prefetch) pass(ctx context.Context, req *limit.Request, key storeKey, hot bool) (limit.Decision, error) {
	decision, err := p.Next.Take(ctx, *req)
	if err != nil || !hot {
		return decision, err
	}
	now := p.Store.elapsed(p.Clock)
	held := p.Store.entries.Lock(key)
	defer held.Unlock()
	if h := held.Get(key); h != nil && h.rule == req.Buckets[0].Rule {
		h.told = answer{state: decision.First, at: now}
	}
	return decision, nil
}

// fetch makes a call. It does not end when its client leaves, as others wait for
// it, but at the request's deadline; only without one is it bound to ctx.
func (p *Prefetch) fetch(ctx context.Context, req *limit.Request, key storeKey, c *call) (limit.Decision, error) {
	settled := false
	defer func() {
		if !settled {
			p.settle(key, c, batch{})
		}
	}()
	asked, detached := *req, ctx
	asked.Count = c.count
	if !req.Deadline.IsZero() {
		detached = context.WithoutCancel(ctx)
	}
	sent := p.Store.elapsed(p.Clock)
	decision, err := p.Next.Take(detached, asked)
	if err != nil {
		return decision, err
	}
	left := ctx.Err()
	got := batch{answered: true, decision: decision, sent: sent, spare: decision.Granted}
	if left == nil && got.spare > 0 {
		got.spare--
	}
	p.settle(key, c, got)
	settled = true
	switch {
	case left != nil:
		return limit.Decision{}, left
	case decision.Granted == 0:
		return decision, nil
	default:
		return got.unit(got.spare), nil
	}
}

// settle ends a call: those who wait get their tokens, and what is over is in hand,
// unless the bucket was reset or its rule has changed since, or time is over.
func (p *Prefetch) settle(key storeKey, c *call, got batch) {
	now := p.Store.elapsed(p.Clock)
	held := p.Store.entries.Lock(key)
	defer held.Unlock()
	over := c.finish(got)
	h := held.Get(key)
	if h == nil || h.call != c || !got.answered {
		return
	}
	h.told = answer{state: got.decision.First, at: now}
	h.tokens, h.dropAt = over, got.sent+int64(holdSpan)
}

// join waits for a token of a call.
func (p *Prefetch) join(ctx context.Context, req limit.Request, key storeKey, c *call) (limit.Decision, error) {
	if err := c.wait(ctx, patienceUntil(req.Deadline, p.Clock)); err != nil {
		if c.leave() {
			p.keep(key, c)
		}
		return limit.Decision{}, fmt.Errorf("waiting for tokens that are under way: %w", err)
	}
	if decision, ok := c.claim(); ok {
		return decision, nil
	}
	return p.Next.Take(ctx, req)
}

// keep puts the token of a request that left into hand, with those of its call.
func (p *Prefetch) keep(key storeKey, c *call) {
	held := p.Store.entries.Lock(key)
	defer held.Unlock()
	if h := held.Get(key); h != nil && h.call == c {
		h.tokens++
	}
}

// takesAhead reports whether a request may be answered from hand.
func takesAhead(req *limit.Request) bool {
	if len(req.Buckets) != 1 || req.Cost != 1 || req.Count != 1 {
		return false
	}
	b := &req.Buckets[0]
	if b.Settles || b.Ban > 0 || b.Cost > 1 {
		return false
	}
	return b.Rule.Prefetch > 1 || b.Rule.Prefetch == limit.PrefetchAuto
}

// anyOf reports whether something is so of a request for one of the buckets alone.
func anyOf(req *limit.Request, is func(*limit.Request) bool) bool {
	for i := range req.Buckets {
		if one := req.Only(i); is(&one) {
			return true
		}
	}
	return false
}

// Interface guards
var _ limit.Limiter = (*Prefetch)(nil)
