package front

import (
	"context"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// memorySpan is how long a refusal is believed at most: what changes elsewhere, by
// a reset or a new master, is seen within it. A key that was refused is asked for
// by one request at a time for as long again.
const memorySpan = int64(time.Second)

// MemoryStore is what Memory remembers, about 250 bytes for each bucket that had
// too little left. It outlives the layers that work on it. Make one with
// NewMemoryStore.
type MemoryStore struct{ store[memo] }

// NewMemoryStore returns a store that remembers nothing.
func NewMemoryStore() *MemoryStore { return &MemoryStore{newStore[memo]()} }

// Memory answers from memory what would be refused. It learns from the RetryAfter
// of every answer: nothing of that cost, or more, can be had from that bucket under
// that rule until so long after the question was sent. When that is over one
// request asks, and the others for the bucket wait for its answer within their
// deadlines. So a flood over the limit costs about one question for each token
// that is refilled.
//
// It never admits more than Next. It refuses too much only where tokens came from
// elsewhere (a reset or a raised rule at another instance, a clock step), and for a
// second at most; waits are whole milliseconds, so one may be long by less than
// that. A bucket that is reset here, or that has another rule, is asked about. Set
// the fields before the first call.
type Memory struct {
	// Next is asked what is not known.
	Next limit.Limiter

	// Store is what is remembered.
	Store *MemoryStore

	// Clock tells the time. Default: time.Now.
	Clock func() time.Time
}

// Take refuses with SourceRemembered where a refusal is known to hold, with the states
// of the buckets as they were last seen and waits that count from then; it does so
// for several buckets where one is known to refuse and something is known of all.
// All else is Next's decision. A request waits for another's answer once, and if
// that is no refusal it asks for itself. The error is Next's, or says that ctx or
// the request's deadline ended the wait. A look, with Count 0, always asks. Of
// buckets that are asked apart, Next is asked once about those that are not known to
// refuse.
func (m *Memory) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	if req.Splits() {
		return m.takeApart(ctx, &req)
	}
	if req.Count < 1 {
		return m.ask(ctx, &req, true)
	}
	arrived := m.Store.elapsed(m.Clock)
	found := m.recall(&req, arrived, true)
	if found.flight != nil && !found.leads {
		leads, err := found.flight.wait(ctx, patienceUntil(req.Deadline, m.Clock))
		if err != nil {
			return limit.Decision{}, fmt.Errorf("waiting for the answer to another request: %w", err)
		}
		if leads {
			return m.lead(ctx, &req, found.flight)
		}
		// What holds is what held when it arrived: if the answer took longer to
		// come than it holds, then those who waited for it would wait for ever.
		found = m.recall(&req, arrived, false)
	}
	switch {
	case found.refuses:
		return found.decision, nil
	case found.leads:
		return m.lead(ctx, &req, found.flight)
	default:
		return m.ask(ctx, &req, found.known)
	}
}

// Settle is Next's. A refusal is forgotten once something was given back here.
func (m *Memory) Settle(s limit.Settlement) {
	if s.More() < 0 && !s.Bucket.OfPlaces() {
		ended, key := s.Ended, s.Bucket.Key
		s.Ended = func(with limit.Settled) {
			if with.Lost == "" {
				m.forget(key)
			}
			if ended != nil {
				ended(with)
			}
		}
	}
	m.Next.Settle(s)
}

// Reset resets the bucket in Next and forgets it, also where that fails. What was
// sent before that is not remembered when its answer comes.
func (m *Memory) Reset(ctx context.Context, key limit.Key) error {
	err := m.Next.Reset(ctx, key)
	m.forget(key)
	return err
}

// forget drops what is remembered of a bucket, and what was sent before.
func (m *Memory) forget(key limit.Key) {
	now := m.Store.elapsed(m.Clock)
	forgotten := m.Store.key(key)
	held := m.Store.entries.Lock(forgotten)
	defer held.Unlock()
	held.Put(forgotten, memo{sent: now, until: longAgo}, now)
}

// lead asks for all who wait for the flight.
func (m *Memory) lead(ctx context.Context, req *limit.Request, f *flight) (limit.Decision, error) {
	answered := false
	defer func() {
		if answered {
			f.end()
		} else {
			f.handOver()
		}
	}()
	decision, err := m.ask(ctx, req, true)
	answered = err == nil
	return decision, err
}

// ask asks Next and learns from the answer. Known tells that something was known
// of the buckets, which the answer may prove wrong.
func (m *Memory) ask(ctx context.Context, req *limit.Request, known bool) (limit.Decision, error) {
	sent := m.Store.elapsed(m.Clock)
	decision, err := m.Next.Take(ctx, *req)
	if err != nil {
		return decision, err
	}
	if len(decision.Rest) != len(req.Buckets)-1 {
		return decision, nil // not an answer to learn from
	}
	if short := anyShort(&decision); short || known {
		m.learn(req, &decision, sent)
	}
	return decision, nil
}

// recollection is what memory knows about a request.
type recollection struct {
	refuses  bool
	decision limit.Decision // where it refuses
	flight   *flight        // what to wait for or to lead, if anything
	leads    bool
	known    bool // something is known of a bucket
}

// recall looks up a request that arrived at a time. With join it also finds a
// flight to wait for, or begins one where a refusal has run out.
func (m *Memory) recall(req *limit.Request, arrived int64, join bool) recollection {
	var room [2]storeKey
	keys := m.Store.keys(req, room[:0])
	held := m.Store.entries.Lock(keys...)
	defer held.Unlock()
	var found recollection
	all := true
	for i := range keys {
		if req.Buckets[i].OfPlaces() {
			continue // a place may be free at any moment
		}
		seen := held.Get(keys[i])
		current := seen.holds(&req.Buckets[i].Rule, arrived)
		found.known = found.known || seen != nil
		found.refuses = found.refuses || current && seen.refuses(req.CostOf(i), arrived)
		all = all && current && seen.tells(req.CostOf(i), arrived)
	}
	found.refuses = found.refuses && all
	switch {
	case found.refuses:
		found.decision = m.refusal(&held, keys, req)
	case found.known && join:
		found.flight, found.leads = board(&held, keys, req, arrived)
	}
	return found
}

// board returns a flight to wait for, or one to lead that all buckets with a
// refusal that has run out now wait for, or none.
func board(held *hold[memo], keys []storeKey, req *limit.Request, arrived int64) (f *flight, leads bool) {
	for i := range keys {
		seen := held.Get(keys[i])
		if req.Buckets[i].OfPlaces() || !seen.holds(&req.Buckets[i].Rule, arrived) || !seen.ranOut(req.CostOf(i), arrived) {
			continue
		}
		switch {
		case seen.flight != nil && !seen.flight.ended():
			if !leads {
				return seen.flight, false
			}
			continue // one bucket's flight is enough to lead
		case f == nil:
			f, leads = newFlight(), true
		}
		seen.flight = f
	}
	return f, leads
}

// refusal is the answer from what is known of all buckets.
func (m *Memory) refusal(held *hold[memo], keys []storeKey, req *limit.Request) limit.Decision {
	now := m.Store.elapsed(m.Clock)
	decision := limit.Decision{Source: limit.SourceRemembered}
	if len(keys) > 1 {
		decision.Rest = make([]limit.State, len(keys)-1)
	}
	for i := range keys {
		if !req.Buckets[i].OfPlaces() { // of places nothing is known
			decision.Set(i, held.Get(keys[i]).state(req.CostOf(i), now))
		}
	}
	return decision
}

// learn remembers what an answer says of each bucket, if it had too little left or
// is part of a request that another bucket refuses.
func (m *Memory) learn(req *limit.Request, decision *limit.Decision, sent int64) {
	now := m.Store.elapsed(m.Clock)
	var room [2]storeKey
	keys := m.Store.keys(req, room[:0])
	short := anyShort(decision)
	held := m.Store.entries.Lock(keys...)
	defer held.Unlock()
	for i := range keys {
		if req.Buckets[i].OfPlaces() {
			continue
		}
		told := newMemo(&req.Buckets[i], req.CostOf(i), decision.At(i))
		told.sent, told.replied = sent, now
		told.date(believed(&req.Buckets[i], decision.Granted, decision.At(i)))
		note(&held, keys[i], told, short)
	}
}

// note replaces what is known of a bucket, unless that is newer or says more: the
// refusal of a smaller cost stays, as it refuses the larger one, too. An answer that
// there is enough is noted where another bucket refuses, and where it ends a
// refusal, even one of more: a token less makes that one's wait too short.
func note(held *hold[memo], key storeKey, told memo, needed bool) {
	old := held.Get(key)
	switch {
	case old == nil && needed:
		held.Put(key, told, told.replied)
	case old == nil, old.isSince(told.sent), told.until != longAgo && old.refusesLess(&told):
	case needed, old.until != longAgo:
		*old = told
	case told.replied >= old.FullAt():
		held.Delete(key)
	}
}

// anyShort reports whether a bucket has less left than one unit costs.
func anyShort(decision *limit.Decision) bool {
	short := decision.First.RetryAfter != 0
	for i := range decision.Rest {
		short = short || decision.Rest[i].RetryAfter != 0
	}
	return short
}

// keys appends what the store knows the buckets of a request by.
func (s *MemoryStore) keys(req *limit.Request, keys []storeKey) []storeKey {
	for i := range req.Buckets {
		keys = append(keys, s.key(req.Buckets[i].Key))
	}
	return keys
}

// Interface guards
var _ limit.Limiter = (*Memory)(nil)
