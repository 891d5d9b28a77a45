package redisbucket

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/caddygate/ratelimit/limit"
)

// fragment is the part of a request whose keys are in one slot.
type fragment struct {
	slot     uint16
	at       []int // the numbers of the request's buckets
	decision limit.Decision
	err      error
}

// takeApart has a waiter decided whose keys are in several slots, by no matter how
// many servers, so that no single call can take from all or none. It looks at all
// of them, and takes only where each can give, from the one with the least first:
// that is where others come in between. It stops at the first that refuses; what
// was taken until then is lost, so that there is never more than the limit.
func (c *Client) takeApart(ctx context.Context, w *waiter) (limit.Decision, error) {
	defer c.waiters.Put(w)
	fragments := w.fragments()
	var wait sync.WaitGroup
	for _, f := range fragments {
		wait.Go(func() { c.ask(ctx, w, f, 0) })
	}
	wait.Wait()
	if err := firstError(fragments); err != nil {
		return limit.Decision{}, err
	}
	count := w.count
	for _, f := range fragments {
		count = min(count, f.available(w.cost))
	}
	inOrder(fragments, w.cost)
	for _, f := range fragments {
		if count == 0 {
			break
		}
		if c.ask(ctx, w, f, count); f.err != nil {
			return limit.Decision{}, f.err
		}
		count = f.decision.Granted
	}
	return together(fragments, count), nil
}

// ask asks for a fragment of what w asks for.
func (c *Client) ask(ctx context.Context, w *waiter, f *fragment, count int64) {
	part := c.waiters.Get().(*waiter)
	part.names, part.keys, part.rules = part.names[:0], part.keys[:0], part.rules[:0]
	for _, i := range f.at {
		part.add(w.keys[i], w.rules[i])
	}
	part.renew(w.cost, count)
	part.arrived, part.latest, part.deadline = w.arrived, w.latest, w.deadline
	v, err := c.ready(ctx, part.deadline)
	if err != nil {
		f.decision, f.err = c.answer(part, err)
		return
	}
	f.decision, f.err = c.takeBySlot(ctx, v, part)
}

// fragments sorts what a waiter asks for by slot.
func (w *waiter) fragments() (list []*fragment) {
	bySlot := make(map[uint16]*fragment, len(w.keys))
	for i := range w.keys {
		slot := slotOf(w.keys[i])
		f := bySlot[slot]
		if f == nil {
			f = &fragment{slot: slot}
			bySlot[slot] = f
			list = append(list, f)
		}
		f.at = append(f.at, i)
	}
	return list
}

// inOrder sorts fragments by how much there is, and those that have about as much by
// their slot: requests that want the same then meet at the same one first, where who
// comes too late has lost nothing yet. In an order of their own each, most of what
// they take would be lost to all of them.
func inOrder(fragments []*fragment, cost int64) {
	magnitude := func(f *fragment) int { return bits.Len64(uint64(f.available(cost))) }
	slices.SortFunc(fragments, func(x, y *fragment) int {
		return cmp.Or(cmp.Compare(magnitude(x), magnitude(y)), cmp.Compare(x.slot, y.slot))
	})
}

// available is how many units of cost the fragment can give, as it was looked at.
func (f *fragment) available(cost int64) int64 {
	units := int64(math.MaxInt64)
	for k := range f.at {
		state := f.decision.At(k)
		of := state.Remaining / cost
		if of == 0 && state.RetryAfter == 0 {
			of = 1 // it is there but for the rounding
		}
		units = min(units, of)
	}
	return units
}

// firstError returns the error of the first fragment that nobody decided.
func firstError(fragments []*fragment) error {
	at := slices.IndexFunc(fragments, func(f *fragment) bool { return f.err != nil })
	if at < 0 {
		return nil
	}
	return fragments[at].err
}

// together returns the decision of all fragments, in the order of the request.
func together(fragments []*fragment, granted int64) limit.Decision {
	buckets := 0
	for _, f := range fragments {
		buckets += len(f.at)
	}
	decision := limit.Decision{Granted: granted, Source: limit.SourceRedis, Rest: make([]limit.State, buckets-1)}
	for _, f := range fragments {
		for k, i := range f.at {
			if i == 0 {
				decision.First = f.decision.At(k)
			} else {
				decision.Rest[i-1] = f.decision.At(k)
			}
		}
	}
	return decision
}
