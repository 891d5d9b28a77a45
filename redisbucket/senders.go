package redisbucket

import (
	"context"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// maxWaiting bounds the queue of a node; one more is turned away at once.
	maxWaiting = 4096
)

// senders make the calls of a run: few at a time, each with all that waits when
// it is sent, so that the busier Redis is, the more one call decides. There is no
// timer. A caller that finds a place and nobody waiting makes its call itself,
// which costs it no switch to another goroutine; others wait in the queue for a
// sender.
type senders struct {
	node    *node
	context context.Context // the run's life, not a caller's
	wake    chan struct{}   // holds a token for each place that was given to a sender

	mu      sync.Mutex
	queue   chain
	waiting int // how long the queue is
	busy    int // places taken, by senders and by callers
	pace    pace
	ended   error // why nobody is taken in any more
}

func newSenders(n *node, ctx context.Context) *senders {
	bounds := n.client.options.senders
	s := &senders{node: n, context: ctx, pace: pace{bounds: bounds, places: bounds.least}}
	s.wake = make(chan struct{}, bounds.most)
	return s
}

// send makes calls until the run ends, whenever it is given a place.
func (s *senders) send() {
	c := newCall(s.node)
	for {
		select {
		case <-s.wake:
			for s.round(c) {
				continue
			}
		case <-s.context.Done():
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
}

// underWay reports whether a call is being made.
func (s *senders) underWay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy > 0
}

// take makes a waiter's call or waits for its answer.
func (s *senders) take(ctx context.Context, w *waiter) (limit.Decision, error) {
	w.hashWith(s.node.client.seed)
	alone, err := s.enter(w)
	switch {
	case err != nil:
		return s.node.client.answer(w, err)
	case alone:
		return s.alone(ctx, w)
	}
	w.timer.Reset(time.Until(w.deadline))
	select {
	case <-w.answered:
		w.timer.Stop()
		return s.node.client.answer(w, w.err)
	case <-w.timer.C:
	case <-ctx.Done():
		w.timer.Stop()
	}
	return s.leave(ctx, w)
}

// enter gives a waiter a place of its own, or puts it into the queue.
func (s *senders) enter(w *waiter) (alone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lingers := s.node.client.options.Linger > 0 && s.busy > 0
	switch {
	case s.ended != nil:
		return false, s.ended
	case s.queue.first == nil && s.busy < s.pace.places && !lingers:
		s.busy++
		s.pace.waited(0)
		return true, nil
	case s.waiting >= maxWaiting:
		return false, errFull
	}
	s.queue.append(w)
	s.waiting++
	s.give()
	return false, nil
}

// alone makes a call for one waiter. Its time is the caller's, who waits for it.
func (s *senders) alone(ctx context.Context, w *waiter) (limit.Decision, error) {
	c := s.node.calls.Get().(*call)
	c.batch.add(w)
	c.until.deadline, c.early = w.deadline, w.early()
	err := s.node.do(ctx, c)
	if err == nil {
		c.batch.share(nil)
	}
	s.passOn(c.took)
	c.release()
	return s.node.client.answer(w, err)
}

// passOn gives a caller's place to a sender, where someone waits.
func (s *senders) passOn(trip time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.travelled(trip)
	s.busy--
	s.give()
}

// give gives a sender a place, where there is one and someone waits.
func (s *senders) give() {
	if s.queue.first != nil && s.busy < s.pace.places && s.ended == nil {
		s.busy++
		s.wake <- struct{}{}
	}
}

// leave is the end of a caller's patience. What has been sent is lost to it.
func (s *senders) leave(ctx context.Context, w *waiter) (limit.Decision, error) {
	s.mu.Lock()
	stage := w.stage
	err := w.departed(ctx, stage)
	switch stage {
	case stageQueued:
		s.queue.remove(w)
		s.waiting--
	case stageSent:
		w.stage = stageLeft
	case stageLeft, stageAnswered:
	}
	s.mu.Unlock()
	if stage == stageAnswered {
		<-w.answered
		return s.node.client.answer(w, w.err)
	}
	if stage == stageSent {
		return limit.Decision{}, err // the sender puts it away
	}
	return s.node.client.answer(w, err)
}
