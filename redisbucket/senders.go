package redisbucket

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// maxWaiting bounds the queue of a node; one more is turned away at once.
	maxWaiting = 4096
	// longPatience is from when on a caller that waits notices that it is canceled.
	// It costs more than to wait for so little time.
	longPatience = 50 * time.Millisecond
	// yieldFrom is how many waiters calls answer in the mean where a round yields.
	yieldFrom = 2
	// companyOne is one waiter in a mean.
	companyOne = 1 << 10
)

// senders make the calls of a run: few at a time, each with all that waits when
// it is sent, so that the busier Redis is, the more one call decides. A caller
// that finds a place and nobody waiting makes a round itself, which costs it no
// switch to another goroutine; others wait in the queue for a sender.
type senders struct {
	run  *run
	node *node
	wake chan struct{} // holds a token for each place that was given to a sender

	mu        sync.Mutex
	queue     chain
	waiting   int // how long the queue is
	deadlines deadlines
	owed      owed
	busy      int // places taken, by senders and by callers
	pace      pace
	ended     error // why nobody is taken in any more

	trip   atomic.Int64 // the mean of what calls take, in ns
	yields atomic.Int64 // the mean of what yields take, in ns
	// company is the mean of how many waiters a call answers, in parts of companyOne.
	company atomic.Int64
}

func newSenders(r *run) *senders {
	bounds := r.node.client.options.senders
	s := &senders{run: r, node: r.node, pace: pace{bounds: bounds, places: bounds.least}}
	s.wake = make(chan struct{}, bounds.most)
	s.deadlines.timer = time.AfterFunc(time.Hour, s.expire)
	s.deadlines.timer.Stop()
	s.owed.timer = time.AfterFunc(time.Hour, s.settleNow)
	s.owed.timer.Stop()
	return s
}

// send makes rounds until the run ends, whenever it is given a place.
func (s *senders) send() {
	c := newCall(s.node)
	for {
		select {
		case <-s.wake:
			for s.stay() {
				_ = s.round(s.run.context, c, nil) // those whom it concerns are told
				c.reset()
			}
		case <-s.run.context.Done():
			return
		}
	}
}

// end turns everyone away, those who wait and those who will come.
func (s *senders) end(err error) {
	s.mu.Lock()
	s.ended = err
	s.mu.Unlock()
	s.turnAway(err, everyone)
	s.lose(err)
}

// underWay reports whether a call is being made.
func (s *senders) underWay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy > 0
}

// take makes a round for a waiter or waits for its answer. One that probes makes
// its own in any case.
func (s *senders) take(ctx context.Context, w *waiter, probe bool) (limit.Decision, error) {
	w.hashWith(s.node.client.seed)
	place, err := s.enter(ctx, w, probe)
	switch {
	case err != nil:
		return s.node.client.answer(w, err)
	case place:
		c := s.node.calls.Get().(*call)
		err := s.round(ctx, c, w)
		c.release()
		return s.node.client.answer(w, err)
	}
	left := s.await(ctx, w)
	if left == stageAnswered {
		return s.node.client.answer(w, w.err)
	}
	return limit.Decision{}, w.departed(ctx, left) // it is not used again: a call may still ask for it
}

// await waits for the answer, and returns how far the waiter had come if it leaves
// before that.
func (s *senders) await(ctx context.Context, w *waiter) stage {
	if w.patience() <= longPatience || ctx.Done() == nil {
		return <-w.answered
	}
	select {
	case left := <-w.answered:
		return left
	case <-ctx.Done():
	}
	s.mu.Lock()
	if w.stage == stageQueued || w.stage == stageSent {
		s.release(w)
	}
	s.mu.Unlock()
	return <-w.answered
}

// enter gives a waiter a place of its own, or puts it into the queue. Who may
// leave at any time does not make calls, which last until their own end.
func (s *senders) enter(ctx context.Context, w *waiter, probe bool) (place bool, err error) {
	watches := w.patience() > longPatience && ctx.Done() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return false, s.ended
	case probe, s.queue.first == nil && s.busy < s.pace.places && !watches:
		s.busy++
		s.pace.waited(0)
		return true, nil
	case s.waiting >= maxWaiting:
		return false, errFull
	}
	s.queue.append(w)
	s.waiting++
	s.deadlines.add(w)
	s.give()
	return false, nil
}

// give gives a sender a place, where there is one and someone waits.
func (s *senders) give() {
	if (s.queue.first != nil || s.owed.due) && s.busy < s.pace.places && s.ended == nil {
		s.busy++
		s.wake <- struct{}{}
	}
}

// stay keeps a sender's place where someone waits.
func (s *senders) stay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.first == nil && !s.owed.due || s.busy > s.pace.places || s.ended != nil {
		s.busy--
		return false
	}
	if s.queue.first != nil {
		s.pace.waited(time.Since(s.queue.first.arrived))
	}
	return true
}

// passOn gives a caller's place to a sender, where someone waits.
func (s *senders) passOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.give()
}

// travelled notes what a call took, if it was answered.
func (s *senders) travelled(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.travelled(took)
	s.trip.Store(int64(s.pace.trip))
}

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
		taken := s.pop(maxWaiters-waiters, func(w *waiter) bool {
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
	c.batch.share(err)
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

const (
	// leastSenders and mostSenders bound how many calls are under way at once. Two
	// keep Redis busy while answers travel; more only help where they travel far.
	leastSenders = 2
	mostSenders  = 8
	// meanOver is over about how many calls means are taken.
	meanOver = 8
	// forgetOver is over about how many calls the shortest round trip is forgotten.
	forgetOver = 512
)

// senderBounds bound how many calls are under way at once.
type senderBounds struct{ least, most int }

// pace says how many calls may be under way: more while requests wait longer for
// being sent than a quarter of what the answer takes. Not where answers take that
// long because Redis or this machine is busy: more and smaller calls would keep
// it busier, and end as so many timeouts at once that the breaker opens.
type pace struct {
	bounds senderBounds
	places int
	trip   time.Duration // the mean of what calls take
	least  time.Duration // what they take at least
	wait   time.Duration // the mean of what the oldest of a call has waited
}

// travelled notes what a call took, if it was answered.
func (p *pace) travelled(took time.Duration) {
	if took <= 0 {
		return
	}
	if p.trip == 0 {
		p.trip, p.least = took, took
	}
	p.trip += (took - p.trip) / meanOver
	p.least = min(p.least+(took-p.least)/forgetOver, took)
}

// waited notes how long the oldest of a call has waited, and sets the places.
func (p *pace) waited(d time.Duration) {
	p.wait += (d - p.wait) / meanOver
	busy := p.trip > 2*p.least
	switch {
	case busy, p.wait < p.trip/8:
		p.places = max(p.places-1, p.bounds.least)
	case p.wait > p.trip/4:
		p.places = min(p.places+1, p.bounds.most)
	}
}
