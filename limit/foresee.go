package limit

import (
	"context"
	"slices"
)

// Foreseer is a Limiter that knows more about its next decision than a look, with
// Count 0, tells: what stands before Redis answers from what it remembers.
type Foreseer interface {
	// Foresee returns what Take would decide now on the request with Count 1, and
	// changes nothing. The request does not split (see Request.Splits). Its errors
	// are those of Take.
	Foresee(ctx context.Context, req Request) (Decision, error)
}

// Foresee returns what l would decide now on the request with Count 1, and takes
// nothing: what l itself foresees, or else what a look at it tells. A wait after
// a grant is not foreseen and is that of the look. The error is l's.
func Foresee(ctx context.Context, l Limiter, req Request) (Decision, error) {
	if req.Splits() {
		return req.TakeEach(func(one Request) (Decision, error) { return Foresee(ctx, l, one) })
	}
	req.Count = 1
	if foreseer, ok := l.(Foreseer); ok {
		return foreseer.Foresee(ctx, req)
	}
	req.Count = 0
	decision, err := l.Take(ctx, req)
	if err != nil || len(decision.Rest) != len(req.Buckets)-1 {
		return decision, err
	}
	return decision.granting(&req), nil
}

// granting is the decision after a look on one unit of a request: granted where every
// bucket has what it costs.
func (d Decision) granting(req *Request) Decision {
	d.Rest = slices.Clone(d.Rest)
	for i := range len(d.Rest) + 1 {
		if d.At(i).RetryAfter != 0 {
			return d
		}
	}
	d.Granted = 1
	d.First.Remaining = max(0, d.First.Remaining-req.CostOf(0))
	for i := range d.Rest {
		d.Rest[i].Remaining = max(0, d.Rest[i].Remaining-req.CostOf(i+1))
	}
	return d
}
