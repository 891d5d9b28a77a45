// Package limit is the vocabulary of the rate limiter: a Rule says how much is
// allowed, a Bucket is one tenant's state under a rule, a Request asks for
// tokens, and a Limiter decides. Every backend and every layer in front of one
// is a Limiter, so they stack. The package imports the standard library only.
package limit

import (
	"context"
	"time"
)

// Limiter decides whether requests may pass. Implementations are safe for
// concurrent use and keep nothing of a Request once Take has returned.
type Limiter interface {
	// Take grants the largest number up to req.Count that every bucket of the
	// request can give at req.Cost each, and takes it from all of them, or takes
	// nothing from any. A refusal is a Decision (Granted 0); an error means that
	// nobody decided and nothing may be assumed about the buckets. Count 0 looks
	// and changes nothing. Where the request is Apart, all of this holds for each
	// bucket by itself, in one decision.
	Take(ctx context.Context, req Request) (Decision, error)

	// Settle says what a unit that was granted cost in the end, once. It never blocks
	// and fails nobody: what becomes of it is told to the settlement's Ended.
	Settle(s Settlement)

	// Reset forgets the state of one bucket, under every algorithm, so that it
	// is full again, and ends its ban. Resetting a bucket that does not exist is not an
	// error.
	Reset(ctx context.Context, key Key) error
}

// Bucket names one state and the rule it is held to. The rule travels with
// every call, so that a new rule needs no edit of live state.
type Bucket struct {
	Key  Key
	Rule Rule

	// Cost is what one unit takes from this bucket alone. Default: the request's Cost.
	Cost int64

	// Ban is for how long whoever empties the bucket stays out, up to MaxBan and in
	// whole milliseconds. It is read and begun in the same decision. Default: nobody
	// is banned.
	Ban time.Duration

	// Place names the place that one unit takes, of a bucket of places.
	Place Place

	// Settles tells that what is taken is settled later, by Settle. A ban is then
	// begun by what was settled and not by a refusal, so that requests under way ban
	// nobody, and a refusal is not believed for long.
	Settles bool
}

// Request asks for tokens from one bucket or several at once.
type Request struct {
	// Buckets are those that must all agree, unless they are asked Apart; at least
	// one. The slice stays the caller's: a Limiter neither changes it nor keeps it
	// after Take returns.
	Buckets []Bucket

	// Cost is what one unit takes from each bucket, at least 1.
	Cost int64

	// Count is how many units are wanted; 0 only looks.
	Count int64

	// Apart asks each bucket by itself: it gives the largest number of units up to
	// Count that it can, whatever the others can. Default: all give the same.
	Apart bool

	// Deadline is when an answer is of no more use. It is set once, by the layer
	// that knows what to do then; zero means that there is none.
	Deadline time.Time

	// Local asks for a decision by what this process alone keeps, by its share, as
	// if nobody else could be asked. It is for one who does not know the rule that
	// counts: what is shared must not change by a wrong one.
	Local bool
}

// Never is the RetryAfter of a bucket that can never give what was asked,
// because one unit costs more than its capacity.
const Never time.Duration = -1

// State is what a bucket holds right after a decision. The limit itself is the
// rule's capacity.
type State struct {
	// Remaining is how many whole tokens are left, from 0 to the capacity.
	Remaining int64

	// RetryAfter is the wait until one more unit of the request's cost is there
	// if nobody else takes any: 0 when it is there now, Never when it cannot be.
	RetryAfter time.Duration

	// ResetAfter is the wait until the bucket is full again.
	ResetAfter time.Duration

	// Banned is how long it takes until a ban is over; 0 where there is none.
	// RetryAfter is never below it.
	Banned time.Duration
}

// Decision is a Limiter's answer. The zero value refuses.
type Decision struct {
	// Granted is how many units were taken from every bucket: 0 is a refusal. Of
	// buckets that were asked apart it is the least that one of them gave.
	Granted int64

	// Source says who decided: the first bucket, where they were asked apart.
	Source Source

	// First is the state of the request's first bucket. It is held inline so
	// that a request with one bucket allocates nothing.
	First State

	// Rest holds the states of the second bucket and on, in the request's order.
	Rest []State

	// Each holds what each bucket gave, in the request's order, where several were
	// asked apart and may differ. It is nil else: see Grant.
	Each []Grant
}

// At returns the state of the request's bucket number i, counted from 0.
func (d *Decision) At(i int) State {
	if i == 0 {
		return d.First
	}
	return d.Rest[i-1]
}

// Set makes a state that of the request's bucket number i, counted from 0.
func (d *Decision) Set(i int, state State) {
	if i == 0 {
		d.First = state
	} else {
		d.Rest[i-1] = state
	}
}

// Source tells who made a decision.
type Source uint8

// The sources of a decision.
const (
	// SourceNone: no bucket was asked, as with `fallback allow` and `deny`.
	SourceNone Source = iota
	// SourceRedis: the bucket in Redis was asked.
	SourceRedis
	// SourcePrefetch: a token taken ahead of time from Redis was spent.
	SourcePrefetch
	// SourceRemembered: a refusal by Redis that is still known to hold.
	SourceRemembered
	// SourceLocal: a bucket in this process, as the fallback or without Redis.
	SourceLocal
)

// Sources is how many sources there are, for tables indexed by Source.
const Sources = int(SourceLocal) + 1

// String returns the word for the source that metrics, logs and placeholders use.
func (s Source) String() string {
	switch s {
	case SourceRedis:
		return "redis"
	case SourcePrefetch:
		return "prefetch"
	case SourceRemembered:
		return "remembered"
	case SourceLocal:
		return "local"
	default:
		return "none"
	}
}
