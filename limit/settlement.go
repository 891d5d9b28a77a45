package limit

import "time"

// MaxBan is the longest ban: thirty days.
const MaxBan = 30 * 24 * time.Hour

// Settlement says what one unit that was granted cost in the end.
type Settlement struct {
	// Bucket is what was asked, with the rule that is in force now. Its Cost is what a
	// request takes at its start, at least 1: whoever has less left of what was settled
	// is banned, where the bucket has a Ban.
	Bucket Bucket

	// Source says who granted the unit, and so where it is settled: in Redis, or in
	// this process' memory. What nobody granted is not settled.
	Source Source

	// Taken is what the unit took that was not settled yet, and Spent what it cost. Where
	// it cost more, that is taken down to a debt of the bucket's capacity, which later
	// requests wait for; where it cost less, the rest is given back, never above the
	// capacity. A log gives back only. Both are 0 or more.
	Taken, Spent int64

	// Renewed are the numbers of the places, of the process that Bucket.Place names, that
	// go on being held: those that are gone are entered again, also above the limit. Only
	// of a bucket of places, which is given back its place else, by Taken 1 and Spent 0.
	Renewed []int64

	// Granted is when the unit was asked for. A window gives back what was taken then,
	// and nothing once it is over. It has a monotonic reading.
	Granted time.Time

	// Ended is told once what became of the settlement, maybe on another goroutine. It
	// must not block. Default: nobody is told.
	Ended func(Settled)
}

// Settled is what became of a Settlement.
type Settled struct {
	// Cut is how much of what was spent a debt had no room for.
	Cut int64

	// Banned is for how long the tenant is banned from now on, where this settlement
	// began a ban; 0 else.
	Banned time.Duration

	// Lost says why nothing was settled, in a word for metrics; "" where it was.
	Lost string
}

// End tells what became of the settlement.
func (s *Settlement) End(with Settled) {
	if s.Ended != nil {
		s.Ended(with)
	}
}

// More returns what the unit cost beyond what was taken, below 0 where it cost less.
func (s *Settlement) More() int64 { return s.Spent - s.Taken }

// Age returns how long ago the unit was asked for.
func (s *Settlement) Age(now time.Time) time.Duration { return max(0, now.Sub(s.Granted)) }

// CostOf returns what one unit takes from the request's bucket number i.
func (r *Request) CostOf(i int) int64 {
	if own := r.Buckets[i].Cost; own > 0 {
		return own
	}
	return r.Cost
}

// Uniform reports whether all that a request asks for is an ordinary decision: each
// bucket costs the same and has no ban, and none is of places.
func (r *Request) Uniform() bool {
	for i := range r.Buckets {
		if b := &r.Buckets[i]; b.Cost > 0 && b.Cost != r.Cost || b.Ban > 0 || b.OfPlaces() {
			return false
		}
	}
	return true
}
