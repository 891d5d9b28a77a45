package redisbucket

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// maxQueued bounds the queue of a node; one more is turned away at once.
	maxQueued = 4096
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
	case s.waiting >= maxQueued:
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
