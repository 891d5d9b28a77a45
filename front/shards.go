package front

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Shards splits a bucket whose rule asks for it into parts with keys of their own,
// so that one hot bucket does not meet at one place. The parts have the rule's
// capacity and refill in all, and its window; where the capacity is smaller than
// limit.Rule.Shards there are fewer of them, so that none is empty for good. A
// request asks a random part first, and the others before it is refused.
//
// What is admitted is never more than the whole bucket would; it may be less while
// some parts are full, as a full part loses its refill. Another number of parts
// begins with those it adds full. Set the fields before the first call; it must
// not be copied.
type Shards struct {
	// Next holds the parts, and is asked about all other buckets as they are.
	Next limit.Limiter

	// Random returns a number from 0 to n-1, for the part that is asked first.
	// It is called by several at once. Default: math/rand/v2's IntN.
	Random func(n int) int

	// Clock tells the time that is left until a request's deadline. Default:
	// time.Now.
	Clock func() time.Time

	// scratch holds *[1]limit.Bucket, for parts that Next is asked about.
	scratch sync.Pool
}

// Take decides for a bucket that is split by its parts, one after another until
// the count is reached. Of the parts that were asked, Remaining is the sum, and so
// at most what the bucket holds; RetryAfter is the shortest, and so at least the
// wait; ResetAfter is the longest. A look, with Count 0, asks them all. The answer
// is that of the parts asked so far where the deadline leaves no time for another,
// and where Next errs after a part has answered: a refusal that may be one too many
// is better than a fallback that admits beside parts which are empty.
//
// A split bucket is a token bucket, alone in its request or asked apart, with a cost
// of 1: all else is an error that wraps errors.ErrUnsupported.
func (s *Shards) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if req.Splits() && anyOf(&req, func(one *limit.Request) bool { return parts(&one.Buckets[0]) > 1 }) {
		return req.TakeEach(func(one limit.Request) (limit.Decision, error) { return s.Take(ctx, one) })
	}
	split, err := splits(&req)
	if err != nil {
		return limit.Decision{}, fmt.Errorf("splitting a bucket into shards: %w", err)
	}
	if !split {
		return s.Next.Take(ctx, req)
	}
	part, _ := s.scratch.Get().(*[1]limit.Bucket)
	if part == nil {
		part = new([1]limit.Bucket)
	}
	decision, err := s.takeParts(ctx, req, part)
	part[0] = limit.Bucket{} // the names may be parts of a request's buffer
	s.scratch.Put(part)
	return decision, err
}

// Settle is Next's: nothing is settled in a bucket that is split.
func (s *Shards) Settle(settlement limit.Settlement) { s.Next.Settle(settlement) }

// Reset resets the bucket as a whole and each part that it may have been split
// into, whatever the rule says now: all of them, also after an error of one. A
// key of a part resets that part alone.
func (s *Shards) Reset(ctx context.Context, key limit.Key) error {
	err := s.Next.Reset(ctx, key)
	if key.Shard != 0 {
		return err
	}
	for key.Shard = 1; key.Shard <= limit.MaxShards; key.Shard++ {
		err = errors.Join(err, s.Next.Reset(ctx, key))
	}
	return err
}

// takeParts asks one part after another about the only bucket of req: each has a
// Redis of its own in a cluster, and where one does not answer the others may. Part
// is where it puts what it asks about. The error is that of the first part, where
// none has answered.
func (s *Shards) takeParts(ctx context.Context, req limit.Request, part *[1]limit.Bucket) (limit.Decision, error) {
	whole := req.Buckets[0]
	n := parts(&whole)
	total := sum{wanted: req.Count}
	first := s.random(int(n))
	pace := newPace(req.Deadline, s.Clock)
	answered, failed := false, error(nil)
	for i := range n {
		part[0] = partOf(whole, (int64(first)+i)%n)
		req.Buckets, req.Count = part[:], total.wanted-total.decision.Granted
		decision, err := s.Next.Take(ctx, req)
		if err == nil {
			total.add(decision, !answered)
			answered = true
		} else if failed == nil {
			failed = err
		}
		if total.reached() || err != nil && ctx.Err() != nil || !pace.allowsAnother() {
			break
		}
	}
	if !answered || failed != nil && total.decision.Granted == 0 && ctx.Err() != nil {
		return limit.Decision{}, failed
	}
	return total.decision, nil
}

func (s *Shards) random(n int) int {
	if s.Random == nil {
		return rand.IntN(n) //nolint:gosec // the choice of a part is no secret
	}
	return s.Random(n)
}

// sum is what the parts that were asked decide together.
type sum struct {
	wanted   int64
	decision limit.Decision
}

// add adds a part's answer. The source is that of a part that granted; a refusal
// is one from memory only where all parts' were.
func (s *sum) add(d limit.Decision, first bool) {
	total := &s.decision
	if first {
		*total = d
		return
	}
	if d.Granted > 0 || total.Granted == 0 && d.Source < total.Source {
		total.Source = d.Source
	}
	total.Granted += d.Granted
	total.First.Remaining += d.First.Remaining
	total.First.RetryAfter = min(total.First.RetryAfter, d.First.RetryAfter)
	total.First.ResetAfter = max(total.First.ResetAfter, d.First.ResetAfter)
}

// reached reports whether no other part needs to be asked.
func (s *sum) reached() bool { return s.wanted > 0 && s.decision.Granted >= s.wanted }

// pace tells whether there is time for another question, which may take twice as
// long as any before it.
type pace struct {
	deadline time.Time // zero: there is always time
	clock    func() time.Time
	since    time.Time
	longest  time.Duration
}

func newPace(deadline time.Time, clock func() time.Time) pace {
	if clock == nil {
		clock = time.Now
	}
	p := pace{deadline: deadline, clock: clock}
	if !deadline.IsZero() {
		p.since = clock()
	}
	return p
}

// allowsAnother is called after each question.
func (p *pace) allowsAnother() bool {
	if p.deadline.IsZero() {
		return true
	}
	now := p.clock()
	p.longest = max(p.longest, now.Sub(p.since))
	p.since = now
	return p.deadline.Sub(now) > 2*p.longest
}

// splits reports whether the request is about a bucket to split. The error says
// why one cannot be.
func splits(req *limit.Request) (bool, error) {
	split := false
	for i := range req.Buckets {
		split = split || parts(&req.Buckets[i]) > 1
	}
	switch {
	case !split:
		return false, nil
	case len(req.Buckets) > 1:
		return false, fmt.Errorf("it is one of %d in a request: %w", len(req.Buckets), errors.ErrUnsupported)
	case req.Cost != 1:
		return false, fmt.Errorf("a request costs %d, not 1: %w", req.Cost, errors.ErrUnsupported)
	case req.Buckets[0].Rule.Algorithm > limit.TokenBucket:
		return false, fmt.Errorf("its algorithm is %v: %w", req.Buckets[0].Rule.Algorithm, errors.ErrUnsupported)
	}
	return true, nil
}

// parts returns into how many parts a bucket is split: 1 where it is not, or is a
// part itself.
func parts(bucket *limit.Bucket) int64 {
	if bucket.Key.Shard != 0 {
		return 1
	}
	return max(1, min(int64(bucket.Rule.Shards), bucket.Rule.Capacity))
}

// partOf returns part i of a bucket. The first parts hold one token more where the
// capacity cannot be divided; each refills in proportion, so that the window stays.
func partOf(whole limit.Bucket, i int64) limit.Bucket {
	n, part := parts(&whole), whole
	part.Key.Shard = uint8(i + 1)
	part.Rule.Shards = 1
	part.Rule.Capacity = whole.Rule.Capacity / n
	if i < whole.Rule.Capacity%n {
		part.Rule.Capacity++
	}
	part.Rule.Refill = whole.Rule.Refill * float64(part.Rule.Capacity) / float64(whole.Rule.Capacity)
	return part
}

// Interface guards
var _ limit.Limiter = (*Shards)(nil)
