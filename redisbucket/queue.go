package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// waiter is one Take under way: what it asks for and, in the end, the answer. It
// holds copies, because a caller that leaves takes its request along while the
// call goes on. It is used again.
type waiter struct {
	names []byte   // of its keys, one after another
	keys  [][]byte // parts of names
	rules []limit.Rule
	cost  int64
	count int64
	apart bool // each key gives what it can, whatever the others can
	// prices are what is told of each key beside its rule; none where all cost the same
	// and nobody is banned.
	prices     []price
	settling   *limit.Settlement // what is to be settled, and nobody waits for; nil: a Take
	redirected bool              // a settlement was sent on, which it is once

	hash uint64 // of names

	slot   uint16 // in a cluster: of the keys
	asking bool   // a redirect sent it to where it is

	arrived  time.Time
	latest   time.Time // when the answer is of no more use to the request
	deadline time.Time // latest, or the end of the caller's context if that is earlier

	stage         stage // guarded by the senders' mutex
	prev, next    *waiter
	sooner, later *waiter    // in the order of deadlines
	answered      chan stage // receives once it is answered, or how far it had come when its time was over
	decision      limit.Decision
	err           error
}

// stage is how far a waiter has come, and so who may touch it.
type stage uint8

const (
	stageQueued   stage = iota // it waits in the queue; its caller may take it out
	stageSent                  // a call asks for it
	stageLeft                  // its caller is gone; a call may still ask for it
	stageAnswered              // it has its answer; only its caller touches it
)

func newWaiter() *waiter { return &waiter{answered: make(chan stage, 1)} }

// ask fills the waiter with a request.
func (w *waiter) ask(prefix string, req *limit.Request) {
	w.names, w.keys, w.rules, w.prices = w.names[:0], w.keys[:0], w.rules[:0], w.prices[:0]
	uniform := req.Uniform()
	for i := range req.Buckets {
		bucket := &req.Buckets[i]
		w.key(prefix, bucket)
		if !uniform {
			w.prices = append(w.prices, price{cost: req.CostOf(i), place: bucket.Place})
			if !req.Splits() { // a shadow bans nobody
				w.ban(prefix, bucket, 1)
			}
		}
	}
	w.apart = req.Splits()
	w.renew(req.Cost, req.Count)
}

// key adds a bucket.
func (w *waiter) key(prefix string, bucket *limit.Bucket) {
	begin := len(w.names)
	w.names = appendKey(w.names, prefix, bucket.Key, bucket.Rule.Algorithm)
	w.keys = append(w.keys, w.names[begin:])
	w.rules = append(w.rules, bucket.Rule)
}

// ban adds the key of the bucket's ban, where it has one, which is told of a number.
func (w *waiter) ban(prefix string, bucket *limit.Bucket, number int64) {
	if bucket.Ban <= 0 {
		return
	}
	begin := len(w.names)
	w.names = appendBanKey(w.names, prefix, bucket.Key)
	w.keys = append(w.keys, w.names[begin:])
	w.rules = append(w.rules, bucket.Rule)
	w.prices = append(w.prices, price{cost: number, ban: bucket.Ban, settled: bucket.Settles, unit: max(1, bucket.Cost)})
}

// buckets is how many buckets the waiter asks for; the other keys are bans.
func (w *waiter) buckets() int {
	n := len(w.keys)
	for i := range w.prices {
		if w.prices[i].ban > 0 {
			n--
		}
	}
	return n
}

// costOf is what one unit takes from bucket i.
func (w *waiter) costOf(i int) int64 {
	for k := range w.prices {
		if w.prices[k].ban > 0 {
			continue
		}
		if i == 0 {
			return w.prices[k].cost
		}
		i--
	}
	return w.cost
}

// price is what the script is told of a key where not all of an entry are alike.
type price struct {
	cost    int64         // of one unit; of a settlement, the difference
	ban     time.Duration // of the key of a ban: its length; 0: the key is a bucket's
	settled bool          // whether settlements begin the ban
	unit    int64         // what one unit of its bucket costs at the start
	place   limit.Place   // of the key of places
}

// together is how many of the keys the script decides about at once: all or, where
// they are asked apart, each by itself.
func (w *waiter) together() int {
	if w.apart {
		return 1
	}
	return len(w.keys)
}

// answers is how many numbers granted the script answers.
func (w *waiter) answers() int { return len(w.keys) / w.together() }

// add adds a bucket by the name of its key.
func (w *waiter) add(name []byte, rule limit.Rule) {
	begin := len(w.names)
	w.names = append(w.names, name...)
	w.keys = append(w.keys, w.names[begin:])
	w.rules = append(w.rules, rule)
}

// renew makes the waiter ready to ask for so much.
func (w *waiter) renew(cost, count int64) {
	w.cost, w.count, w.settling = cost, count, nil
	w.slot, w.asking = 0, false
	w.stage, w.decision, w.err = stageQueued, limit.Decision{}, nil
}

// limitTime sets the times. A request without a deadline has a second.
func (w *waiter) limitTime(ctx context.Context, deadline time.Time) {
	w.arrived = time.Now()
	w.latest = deadline
	if deadline.IsZero() {
		w.latest = w.arrived.Add(outerTimeout)
	}
	w.deadline = w.latest
	if caller, ok := ctx.Deadline(); ok && caller.Before(w.deadline) {
		w.deadline = caller
	}
}

// patience is how long its caller waits in all.
func (w *waiter) patience() time.Duration { return w.deadline.Sub(w.arrived) }

// weight is what an entry for it alone weighs in a call.
func (w *waiter) weight() int64 {
	fixed, perUnit := weigh(w.rules)
	if w.renewed() > 0 {
		return fixed + int64(w.renewed())/5
	}
	if w.settling != nil {
		return fixed + (perUnit*max(0, -w.settling.More())+1)/2
	}
	return fixed + (perUnit*w.cost*max(w.count, 1)+1)/2
}

// early reports whether the caller leaves before its request's deadline.
func (w *waiter) early() bool { return w.deadline.Before(w.latest) }

// same reports whether another one asks for the same, so that one entry can ask
// for both.
func (w *waiter) same(other *waiter) bool {
	return w.hash == other.hash && w.cost == other.cost && w.settling == nil && other.settling == nil && w.apart == other.apart && w.asking == other.asking && len(w.keys) == len(other.keys) &&
		bytes.Equal(w.names, other.names) && slices.Equal(w.rules, other.rules) && slices.Equal(w.prices, other.prices)
}

// hashWith sets the hash by which waiters that ask for the same find each other.
func (w *waiter) hashWith(seed maphash.Seed) { w.hash = maphash.Bytes(seed, w.names) }

// findSlot sets the slot that all keys are in. It is false where there are several.
func (w *waiter) findSlot() bool {
	w.slot = slotOf(w.keys[0])
	for k := range w.keys[1:] {
		if slotOf(w.keys[k+1]) != w.slot {
			return false
		}
	}
	return true
}

// place tells waiters apart that cannot share a call of the script.
func (w *waiter) place() uint32 {
	if w.asking {
		return slotCount + uint32(w.slot)
	}
	return uint32(w.slot)
}

// departed is the error of a caller that leaves: one whose own context ended, or
// one that Redis or the queue kept too long.
func (w *waiter) departed(ctx context.Context, left stage) error {
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil, w.early():
		return errEarly
	case left == stageQueued:
		return errWait
	default:
		return fmt.Errorf("waiting for the answer of Redis: %w", context.DeadlineExceeded)
	}
}

// chain is a list of waiters, the oldest first.
type chain struct{ first, last *waiter }

// append puts a waiter at the end.
func (c *chain) append(w *waiter) {
	w.prev, w.next = c.last, nil
	if c.last == nil {
		c.first = w
	} else {
		c.last.next = w
	}
	c.last = w
}

// remove takes a waiter out.
func (c *chain) remove(w *waiter) {
	if w.prev == nil {
		c.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		c.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// each calls visit with every waiter. What visit does to the waiter may end its
// use here.
func (c *chain) each(visit func(*waiter)) {
	for w := c.first; w != nil; {
		next := w.next
		visit(w)
		w = next
	}
}

// deadlines are the waiters of a run, queued or sent, by when their time is over.
// One timer stands for all: most have the same time, so that they end in the order
// in which they came, and nearly none is over. It is guarded by the senders' mutex.
type deadlines struct {
	first, last *waiter
	timer       *time.Timer
	due         time.Time // when the timer fires; zero where it is not set
}

// add takes a waiter in: after those that end before it.
func (d *deadlines) add(w *waiter) {
	before := d.last
	for before != nil && before.deadline.After(w.deadline) {
		before = before.sooner
	}
	w.sooner = before
	if before == nil {
		w.later, d.first = d.first, w
	} else {
		w.later, before.later = before.later, w
	}
	if w.later == nil {
		d.last = w
	} else {
		w.later.sooner = w
	}
	if d.due.IsZero() || w.deadline.Before(d.due) {
		d.set(w.deadline)
	}
}

// remove takes a waiter out. The timer stays: it looks again when it fires.
func (d *deadlines) remove(w *waiter) {
	if w.sooner == nil {
		d.first = w.later
	} else {
		w.sooner.later = w.later
	}
	if w.later == nil {
		d.last = w.sooner
	} else {
		w.later.sooner = w.sooner
	}
	w.sooner, w.later = nil, nil
}

func (d *deadlines) set(due time.Time) {
	d.due = due
	d.timer.Reset(time.Until(due))
}

// expire answers those whose time is over. Who makes calls goes first, once: where
// this process is late itself, the answers may have come.
func (s *senders) expire() {
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.deadlines.due = time.Time{}
	for w := s.deadlines.first; w != nil; w = s.deadlines.first {
		if w.deadline.After(now) {
			s.deadlines.set(w.deadline)
			return
		}
		s.release(w)
	}
}

// release lets a waiter's caller go without an answer. What has been sent is lost
// to it. It is called with mu held.
func (s *senders) release(w *waiter) {
	left := w.stage
	s.deadlines.remove(w)
	if left == stageQueued {
		s.queue.remove(w)
		s.waiting--
	}
	w.stage = stageLeft
	w.answered <- left
}

// pop takes up to n from the queue's head, as long as who, for a call or to be
// turned away.
func (s *senders) pop(n int, who func(*waiter) bool) (taken chain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n > 0 && s.queue.first != nil && who(s.queue.first); n-- {
		w := s.queue.first
		s.queue.remove(w)
		s.waiting--
		w.stage = stageSent
		taken.append(w)
	}
	s.give()
	return taken
}

// hand gives answers out to those that each visits. A waiter whose caller has left
// is nobody's any more; any other is its caller's from here on.
func (s *senders) hand(each func(visit func(*waiter))) {
	s.mu.Lock()
	each(func(w *waiter) {
		if w.stage == stageSent {
			if w.settling == nil {
				s.deadlines.remove(w)
			}
			w.stage = stageAnswered
		}
	})
	s.mu.Unlock()
	each(func(w *waiter) {
		switch {
		case w.settling != nil:
			s.node.client.settled(w, w.err)
		case w.stage == stageAnswered:
			w.answered <- stageAnswered
		}
	})
}

// turnAway answers those at the queue's head with an error, as long as who.
func (s *senders) turnAway(err error, who func(*waiter) bool) {
	away := s.pop(maxQueued, who)
	away.each(func(w *waiter) { w.err = err })
	s.hand(away.each)
}
