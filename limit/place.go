package limit

import (
	"fmt"
	"time"
)

// Concurrency is the algorithm of a bucket that has no tokens but places: one for each
// request that runs at the moment. It is made by NewPlaces, and no configuration names
// it.
const Concurrency Algorithm = 5

const (
	// MaxPlaces is the most requests that a rule may let run at once.
	MaxPlaces = 10_000

	// PlaceLease is how long a place is held that nobody renews: so long after a process
	// has died its places are free.
	PlaceLease = 15 * time.Second

	// PlaceRetry is the RetryAfter where no place is free: nobody knows when one will be.
	PlaceRetry = time.Second
)

// Place names one place, so that it can be given back whether or not an answer told
// that it was taken. The zero value is none.
type Place struct {
	// Process is the number of the process that holds it, and Number that of the place
	// in this process: whole numbers from 1 to 2⁵³.
	Process, Number int64
}

// NewPlaces returns the rule of a bucket of n places, from 1 to MaxPlaces. One request
// takes one, whatever it costs elsewhere.
func NewPlaces(n int64) (Rule, error) {
	if n < 1 || n > MaxPlaces {
		return Rule{}, fmt.Errorf("concurrent %d is out of bounds: allowed are 1 to %d", n, MaxPlaces)
	}
	return Rule{
		Capacity: n, Refill: float64(n) / PlaceLease.Seconds(), WindowMillis: PlaceLease.Milliseconds(), Algorithm: Concurrency,
	}, nil
}

// StateOfPlaces returns what a decision says of a bucket in which so many places are held.
func StateOfPlaces(rule *Rule, held int64) State {
	state := State{Remaining: max(0, rule.Capacity-held)}
	if held > 0 {
		state.ResetAfter = PlaceRetry
	}
	if state.Remaining == 0 {
		state.RetryAfter = PlaceRetry
	}
	return state
}

// OfPlaces reports whether the bucket is one of places.
func (b *Bucket) OfPlaces() bool { return b.Rule.Algorithm == Concurrency }

// Places reports whether one of the request's buckets is one of places.
func (r *Request) Places() bool {
	for i := range r.Buckets {
		if r.Buckets[i].OfPlaces() {
			return true
		}
	}
	return false
}
