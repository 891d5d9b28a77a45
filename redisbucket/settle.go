package redisbucket

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// maxOwed bounds the settlements that wait at a node; one more is lost.
	maxOwed = 8192
	// settleAfter is how long a settlement waits for a call that goes to the node
	// anyway.
	settleAfter = 10 * time.Millisecond
	// leaveAfter is how long a place waits that is given back: another request may be
	// refused meanwhile.
	leaveAfter = 2 * time.Millisecond
	// settleTimeout is what a call has that only settles, where no request has told
	// how long one waits.
	settleTimeout = 5 * time.Millisecond
	// flushTimeout is what settlements have that wait when a node stops.
	flushTimeout = 2 * time.Second
)

// owed are the settlements that wait at a node. It is guarded by the senders' mutex.
type owed struct {
	chain
	count int
	timer *time.Timer
	due   bool // they have waited long enough for a call that goes there anyway
	set   bool // the timer runs
	soon  bool // it runs for a place that is given back
}

// Settle settles in Redis, once: with the next call there, or by one of its own. What
// cannot be sent, or is not answered, is lost, and told so. It does not block.
func (l *Limiter) Settle(s limit.Settlement) {
	if s.Source == limit.SourceLocal || s.Source == limit.SourceNone || s.Bucket.Key.Shard != 0 {
		s.End(limit.Settled{Lost: "invalid"})
		return
	}
	client := l.client.acting()
	w := client.waiters.Get().(*waiter)
	w.askToSettle(l.prefix, &s)
	client.settle(w)
}

// askToSettle fills the waiter with a settlement.
func (w *waiter) askToSettle(prefix string, s *limit.Settlement) {
	w.names, w.keys, w.rules, w.prices = w.names[:0], w.keys[:0], w.rules[:0], w.prices[:0]
	w.key(prefix, &s.Bucket)
	w.prices = append(w.prices, price{cost: s.More(), place: s.Bucket.Place})
	if len(s.Renewed) > 0 {
		w.prices[0].cost = int64(len(s.Renewed))
	}
	w.ban(prefix, &s.Bucket, s.Spent)
	w.apart = false
	w.renew(0, settles)
	w.settling, w.redirected = s, false
}

// settles is the count of an entry that settles, in the script's protocol.
const settles = -1

// placed reports whether the waiter asks for a place, which nobody else asks for.
func (w *waiter) placed() bool {
	for i := range w.prices {
		if w.prices[i].place.Number > 0 {
			return true
		}
	}
	return false
}

// leaves reports whether a place is given back.
func (w *waiter) leaves() bool {
	return w.rules[0].Algorithm == limit.Concurrency && len(w.settling.Renewed) == 0
}

// age tells the script how long ago the unit was granted.
func (w *waiter) age(now time.Time) int64 {
	return min(w.settling.Age(now).Milliseconds(), math.MaxInt32*int64(1000))
}

// settle has a settlement wait at the node that has its keys.
func (c *Client) settle(w *waiter) {
	v := c.view.Load()
	if v == nil {
		c.settled(w, c.notRunning())
		return
	}
	n := v.nodes[0]
	if v.owners != nil {
		w.findSlot() // a bucket and its ban share one
		if n = v.at(w.slot); n == nil {
			c.settled(w, errUnserved)
			return
		}
	}
	n.settle(w)
}

func (n *node) settle(w *waiter) {
	r := n.current.Load()
	if r == nil {
		n.client.settled(w, n.notRunning())
		return
	}
	if err := r.senders.owe(w); err != nil {
		n.client.settled(w, err)
	}
}

// settled tells what became of a settlement. One whose slot has moved goes to where it
// is, once: nothing was settled there.
func (c *Client) settled(w *waiter, err error) {
	if moved := redirectIn(err); moved != nil && !w.redirected {
		c.doubt()
		if n := c.redirectedTo(moved.host); n != nil {
			if !moved.ask {
				c.relocate(w.slot, n)
			}
			w.stage, w.asking, w.redirected = stageQueued, moved.ask, true
			n.settle(w)
			return
		}
	}
	s, answer := w.settling, w.decision
	w.decision, w.err, w.settling = limit.Decision{}, nil, nil
	c.waiters.Put(w)
	if err != nil {
		s.End(limit.Settled{Lost: Reason(err)})
		return
	}
	s.End(limit.Settled{Cut: answer.Granted, Banned: answer.First.Banned})
}

// owe has a settlement wait for the next call.
func (s *senders) owe(w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return s.ended
	case s.owed.count >= maxOwed:
		return errFull
	}
	s.owed.append(w)
	s.owed.count++
	switch leaves := w.leaves(); {
	case leaves && !s.owed.soon:
		s.owed.set, s.owed.soon = true, true
		s.owed.timer.Reset(leaveAfter)
	case !s.owed.set:
		s.owed.set = true
		s.owed.timer.Reset(settleAfter)
	}
	return nil
}

// settleNow has those that wait not wait any longer for others.
func (s *senders) settleNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed.set, s.owed.soon = false, false
	s.owed.due = s.owed.first != nil
	s.give()
}

// postpone has them wait again, after a call could not be made.
func (s *senders) postpone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed.due {
		s.owed.due, s.owed.set = false, true
		s.owed.timer.Reset(settleAfter)
	}
}

// takeOwed takes settlements for a call that weighs so much already.
func (s *senders) takeOwed(weight int64) (taken chain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := s.owed.first; w != nil; w = s.owed.first {
		if weight += w.weight(); weight > maxWeight && taken.first != nil {
			break
		}
		if weight > maxWeight && !s.owed.due {
			break
		}
		s.owed.remove(w)
		s.owed.count--
		w.stage = stageSent
		taken.append(w)
	}
	s.owed.due = s.owed.due && s.owed.first != nil
	return taken
}

// lose ends all settlements that wait.
func (s *senders) lose(err error) {
	s.mu.Lock()
	lost := s.owed.chain
	s.owed.chain, s.owed.count, s.owed.due = chain{}, 0, false
	s.mu.Unlock()
	lost.each(func(w *waiter) { s.node.client.settled(w, err) })
}

// flush sends what waits, for as long as that is not too long.
func (s *senders) flush() {
	deadline := time.Now().Add(flushTimeout)
	for s.owing() && time.Now().Before(deadline) {
		s.settleNow()
		time.Sleep(time.Millisecond)
	}
}

func (s *senders) owing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owed.first != nil && s.node.circuit.closed()
}
