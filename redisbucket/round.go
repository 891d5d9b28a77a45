package redisbucket

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// round makes one call: for own, whose caller makes it, or for those who have
// waited, and for all who come until it is sent. It borrows a connection, yields
// the processor once to those who are about to ask, takes what waits, asks, and
// gives the answers out. The error is what own failed with; others are told
// theirs. A caller's place is passed on at the end.
func (s *senders) round(ctx context.Context, c *call, own *waiter) error {
	if own != nil {
		defer s.passOn()
	}
	arrived, patience, ok := s.oldest(own)
	if !ok {
		return nil
	}
	c.began = time.Now()
	l, err := s.run.connections.borrow(ctx, patience)
	if err != nil && !missing(err) || ctx.Err() != nil {
		return s.unsent(ctx, l, err, own)
	}
	s.yield(arrived, patience)
	if own != nil && tooLate(time.Now())(own) {
		return s.unsent(ctx, l, errWait, own)
	}
	if !s.load(c, own) {
		s.run.connections.unused(l)
		return nil
	}
	if err = c.make(s.run.connections, l, err); c.asked {
		err = nil // each part has its own
	}
	return s.deliver(c, own, err)
}

// unsent is a round that ends before anything is sent.
func (s *senders) unsent(ctx context.Context, l *lane, err error, own *waiter) error {
	s.run.connections.unused(l)
	if left := ctx.Err(); left != nil {
		err = left
	}
	if own == nil {
		s.turnAway(errWait, tooLate(time.Now()))
		s.postpone()
	}
	return err
}

// oldest returns since when and until when the oldest waits, of own and those in
// the queue. It is not ok where nobody does: while the breaker is not closed nobody
// waits but who probes.
func (s *senders) oldest(own *waiter) (arrived, deadline time.Time, ok bool) {
	if own != nil {
		return own.arrived, own.deadline, true
	}
	if !s.node.circuit.closed() {
		s.turnAway(errOpen, everyone)
		s.lose(errOpen)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.queue.first; w != nil {
		return w.arrived, w.deadline, true
	}
	now := time.Now()
	return now, now.Add(s.settleTime()), s.owed.due
}

// yield lets others go first who are about to ask: where the oldest has time for
// that, where it is known to be short, and where calls are shared: with little to do
// it would only cost time, and wake another thread. A yield that took long, on a busy
// machine, is forgotten one call at a time.
func (s *senders) yield(arrived, deadline time.Time) {
	began := time.Now()
	time8 := deadline.Sub(arrived) / 8
	mean := time.Duration(s.yields.Load())
	switch {
	case s.company.Load() < yieldFrom*companyOne:
		return
	case began.Sub(arrived) > time8, time.Duration(s.trip.Load()) > 2*time8:
		return
	case mean > time8:
		s.yields.Store(int64(mean - mean/meanOver))
		return
	}
	runtime.Gosched()
	s.yields.Store(int64(mean + (time.Since(began)-mean)/meanOver))
}

// load takes what waits into a call, after own, as long as it fits, and of those
// whose time is alike. It turns away those who would not be there for the answer,
// and is false where nobody is left. A sender's call has as much time from now on as
// they have in all: that they have waited says nothing about Redis. A caller's ends
// with its own time, and says nothing either where that is short.
func (s *senders) load(c *call, own *waiter) bool {
	var like time.Duration
	now := time.Now()
	if own != nil {
		c.batch.add(own)
		like = own.patience()
		c.deadline, c.early = own.deadline, own.early() || own.deadline.Sub(now) < like/2
	}
	late := tooLate(now)
	var away chain
	for more := true; more; {
		weight, waiters := c.batch.weight, c.batch.waiters
		taken := s.pop(maxAnswered-waiters, func(w *waiter) bool {
			if like == 0 {
				like = w.patience()
			}
			weight += w.weight()
			return alike(like, w.patience()) && (weight <= maxWeight || waiters == 0 && weight == w.weight())
		})
		more = taken.first != nil
		taken.each(func(w *waiter) {
			if late(w) {
				w.err = errWait
				away.append(w)
				return
			}
			if own == nil {
				c.deadline = later(c.deadline, w.end(now, like))
			}
			c.batch.add(w)
		})
	}
	s.hand(away.each)
	owed := s.takeOwed(c.batch.weight)
	owed.each(func(w *waiter) {
		w.cost = w.age(now)
		c.batch.add(w)
	})
	if c.deadline.IsZero() {
		c.deadline = now.Add(s.settleTime())
	}
	company := s.company.Load()
	s.company.Store(company + (int64(c.batch.waiters)*companyOne-company)/meanOver)
	return len(c.batch.entries) > 0
}

// settleTime is what a call has that only settles: what a request waits for.
func (s *senders) settleTime() time.Duration {
	return max(settleTimeout, time.Duration(s.node.patience.Load()))
}

// later returns the latest of times.
func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// end is when a sender's call for the waiter ends. One that has hardly waited is told
// after the breaker has been, so that nobody asks a Redis in between that has just
// failed; one that has waited ends before the call.
func (w *waiter) end(now time.Time, like time.Duration) time.Time {
	if now.Sub(w.arrived) < like/8 {
		return w.latest.Add(-like / 64)
	}
	return now.Add(like)
}

// alike reports whether those who have so much time may share a call: its end is
// one for all of them.
func alike(x, y time.Duration) bool { return 4*min(x, y) >= max(x, y) }

// deliver gives the answers out, or why nothing was asked. It returns the error of
// own, which is told no other way.
func (s *senders) deliver(c *call, own *waiter, err error) error {
	if c.took > 0 {
		s.travelled(c.took)
	}
	c.batch.deliver(err)
	s.hand(func(visit func(*waiter)) {
		c.batch.each(func(w *waiter) {
			if w != own {
				visit(w)
			}
		})
	})
	switch {
	case own == nil || own.err == nil:
		return nil
	case own.early() && Reason(own.err) == "timeout":
		return fmt.Errorf("%w: %w", errEarly, own.err)
	}
	return own.err
}

// tooLate returns whether too little of a waiter's time is left for an answer:
// asking would cost the tokens in vain.
func tooLate(now time.Time) func(*waiter) bool {
	return func(w *waiter) bool { return 4*w.deadline.Sub(now) < w.deadline.Sub(w.arrived) }
}

func everyone(*waiter) bool { return true }
