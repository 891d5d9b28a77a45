package model

import (
	"math"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// account is one bucket whose requests are settled, and who is banned from it: a token
// bucket or a sliding window counter. A ban is begun by a refusal or, where requests are
// settled later, by a second balance from which only settlements take.
type account struct {
	bucket interface {
		bucket
		// settle takes more than was taken at a time in ms, or gives back, and returns
		// what a debt of the capacity has no room for.
		settle(more, at int64, rule limit.Rule, now int64) (cut int64)
	}
	spent tokens
	until int64 // the ms at which a ban ends
}

// settle takes more, down to a debt of the capacity, or gives back up to it.
func (t *tokens) settle(more, _ int64, rule limit.Rule, now int64) int64 {
	if t.held == nil && more <= 0 {
		return 0
	}
	seen, ms := t.seen(rule, now), floor(now, 1000)
	left := seen.balance(rule, ms)
	left.Sub(left, parts(more))
	missing := parts(-rule.Capacity)
	missing.Sub(missing, left).Sub(missing, number(slackParts))
	cut, accuracy := missing.Quo(missing, number(part)).Int64()
	if accuracy == big.Below {
		cut++
	}
	cut = max(0, cut)
	left.Add(left, parts(cut))
	if capacity := parts(rule.Capacity); left.Cmp(capacity) > 0 {
		left = capacity
	}
	*t = tokens{left, max(seen.at, ms)}
	return cut
}

// spend takes from the second balance, down to minus one capacity. Nobody counts what is
// cut there, so that it need not be whole.
func (t *tokens) spend(n int64, rule limit.Rule, now int64) {
	seen, ms := t.seen(rule, now), floor(now, 1000)
	left := seen.balance(rule, ms)
	left.Sub(left, parts(n))
	if debt := parts(-rule.Capacity); left.Cmp(debt) < 0 {
		left = debt
	}
	*t = tokens{left, max(seen.at, ms)}
}

// settle takes more in the window of now, up to twice the capacity in all, or gives
// back in the window in which it was taken.
func (c *counter) settle(more, at int64, rule limit.Rule, now int64) (cut int64) {
	ms := floor(now, 1000)
	if !c.used && more <= 0 {
		return 0
	}
	*c = c.seen(rule, ms)
	c.used = true // what was stored stays so
	switch {
	case more > 0:
		over := c.times(rule, ms) + (more-2*rule.Capacity)*rule.WindowMillis - slack(rule)
		cut = min(more, max(0, -floor(-over, rule.WindowMillis)))
		c.cur += more - cut
	case at >= c.start:
		c.cur = max(0, c.cur+more)
	case at >= c.start-rule.WindowMillis:
		c.prev = max(0, c.prev+more)
	}
	return cut
}

// take decides, as a Limiter that knows of bans.
func (a *account) take(req limit.Request, now int64) limit.Decision {
	b, ms := req.Buckets[0], floor(now, 1000)
	cost := req.CostOf(0)
	banned := a.until > ms
	d := limit.Decision{}
	if !banned {
		d.Granted = max(0, min(req.Count, a.bucket.room(b.Rule, now)/cost))
	}
	if d.Granted > 0 {
		a.bucket.take(d.Granted*cost, b.Rule, now)
	}
	d.First = stateOf(a.bucket, cost, b.Rule, now)
	d.First.Remaining = max(0, d.First.Remaining)
	if refused := req.Count > 0 && d.Granted == 0 && !banned && cost <= b.Rule.Capacity; refused && b.Ban > 0 {
		if !b.Settles {
			a.until = ms + b.Ban.Milliseconds()
		} else if a.spent.room(b.Rule, now) >= cost {
			d.First.RetryAfter = min(d.First.RetryAfter, time.Second)
		}
	}
	if a.until > ms {
		d.First.Banned = time.Duration(a.until-ms) * time.Millisecond
		d.First.RetryAfter = max(d.First.RetryAfter, d.First.Banned)
	}
	return d
}

// settle settles what was granted at a time in µs.
func (a *account) settle(s limit.Settlement, granted, now int64) (with limit.Settled) {
	b, ms := s.Bucket, floor(now, 1000)
	with.Cut = a.bucket.settle(s.More(), floor(granted, 1000), b.Rule, now)
	if b.Ban > 0 && b.Settles && s.Spent > 0 {
		a.spent.spend(s.Spent, b.Rule, now)
		if a.spent.room(b.Rule, now) < b.Cost && a.until <= ms {
			a.until, with.Banned = ms+b.Ban.Milliseconds(), b.Ban
		}
	}
	return with
}

// Entry is one step of an account's trace, and what is right: a request, or the
// settlement of one that was granted before.
type Entry struct {
	// Micros is when it comes, in µs since the Unix epoch: whole ms.
	Micros int64

	// Request is what is asked, unless there is a Settlement.
	Request limit.Request

	// Settlement is what is settled; nil: nothing.
	Settlement *limit.Settlement

	// Want is the answer to the request, without its source.
	Want limit.Decision

	// Settled is what becomes of the settlement.
	Settled limit.Settled
}

// Account returns random requests to one bucket of an algorithm, their settlements in
// any order, debts, refunds, bans, and rules that change.
func Account(seed uint64, algorithm limit.Algorithm) []Entry {
	random := rand.New(rand.NewPCG(seed, uint64(algorithm)|1<<32)) //nolint:gosec // a trace is no secret
	l := ledger{walk: walk{Options: Options{Algorithm: algorithm, Monotonic: true}, random: random, now: begin}}
	l.account.bucket = new(tokens)
	if algorithm == limit.SlidingWindowCounter {
		l.account.bucket = new(counter)
	}
	l.bucket = limit.Bucket{Key: limit.Key{Tenant: "t", Route: "a"}, Rule: l.rule(), Settles: random.IntN(4) > 0}
	if random.IntN(2) == 0 {
		l.bucket.Ban = time.Duration(1+random.IntN(20_000)) * time.Millisecond
	}
	entries := make([]Entry, 30)
	for i := range entries {
		entries[i] = l.entry()
	}
	return entries
}

// ledger is a trace of an account in the making.
type ledger struct {
	walk
	account account
	bucket  limit.Bucket
	open    []grant // not settled yet
}

// grant is one unit that was granted.
type grant struct{ at, taken int64 }

func (l *ledger) entry() Entry {
	if l.random.IntN(10) == 0 {
		l.bucket.Rule = l.changed(l.bucket.Rule)
	}
	e := Entry{Micros: l.now}
	wait := time.Duration(0)
	if len(l.open) > 0 && l.random.IntN(3) > 0 {
		l.settle(&e)
	} else {
		e.Request = l.ask()
		e.Want = l.account.take(e.Request, l.now)
		if wait = e.Want.First.RetryAfter; e.Want.Granted > 0 && l.bucket.Settles {
			l.open = append(l.open, grant{l.now, e.Request.CostOf(0)})
		}
	}
	l.now += floor(l.pause(l.bucket.Rule, wait), 1000) * 1000
	return e
}

// ask is a request of one unit, mostly for less than half of the capacity.
func (l *ledger) ask() limit.Request {
	b := l.bucket
	b.Cost = 1 + int64(math.Pow(float64(b.Rule.Capacity), l.random.Float64()*l.random.Float64()*1.1)-1)
	return limit.Request{Buckets: []limit.Bucket{b}, Cost: 1, Count: min(1, int64(l.random.IntN(8)))}
}

// settle settles any of those that are open: as it was, for nothing, for part, or for more.
func (l *ledger) settle(e *Entry) {
	i := l.random.IntN(len(l.open))
	g := l.open[i]
	l.open = append(l.open[:i], l.open[i+1:]...)
	s := limit.Settlement{Bucket: l.bucket, Taken: g.taken, Granted: time.UnixMicro(g.at)}
	s.Bucket.Cost = min(g.taken, l.bucket.Rule.Capacity)
	s.Spent = []int64{g.taken, 0, l.random.Int64N(g.taken + 1), g.taken + l.random.Int64N(1+g.taken), l.random.Int64N(3 * l.bucket.Rule.Capacity)}[l.random.IntN(5)]
	e.Settlement = &s
	e.Settled = l.account.settle(s, g.at, l.now)
}
