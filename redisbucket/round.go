package redisbucket

import (
	"errors"
	"time"
)

// round makes one call for what waits. It is false when the sender has given up
// its place.
func (s *senders) round(c *call) bool {
	patience, ok := s.stay()
	if !ok {
		return false
	}
	if err := s.node.breakerError(); err != nil {
		s.turnAway(err, everyone)
		return true
	}
	g := s.node.current.Load()
	if g == nil {
		s.turnAway(s.node.notRunning(), everyone)
		return true
	}
	// The batch is taken when the lane is there, so that nobody is in it who has
	// left, and everybody who has come.
	lane, err := g.borrow(s.context, patience)
	if err != nil && !errors.Is(err, errConnection) {
		s.turnAway(errWait, tooLate(time.Now()))
		return true
	}
	c.lane, c.failed = lane, err
	if s.load(c) {
		err = s.node.guard(c.run)
	}
	if lane != nil {
		g.giveBack(lane, c)
	}
	if c.asked {
		err = nil // each part has its own
	}
	s.deliver(c, err)
	return true
}

// stay keeps a sender's place where someone waits, and says until when the
// newest of them does. It waits for company first, where that is wanted.
func (s *senders) stay() (patience time.Time, ok bool) {
	s.linger()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.first == nil || s.busy > s.pace.places || s.ended != nil {
		s.busy--
		return time.Time{}, false
	}
	s.pace.waited(time.Since(s.queue.first.arrived))
	return s.queue.last.deadline, true
}

// linger waits for company as long as Options.Linger says, unless no other call
// is under way or there is company enough.
func (s *senders) linger() {
	left := s.node.client.options.Linger
	if left == 0 {
		return
	}
	s.mu.Lock()
	if s.queue.first == nil || s.busy < 2 || s.waiting >= maxEntries {
		left = 0
	} else {
		left -= time.Since(s.queue.first.arrived)
	}
	s.mu.Unlock()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.context.Done():
	}
}

// load takes what waits into a call, and turns away those who would not be there
// for the answer. It is false where nobody is left. What is sent under way has
// the time of the one that waits longest.
func (s *senders) load(c *call) bool {
	late := tooLate(time.Now())
	var away chain
	for others := true; others && c.batch.room() > 0; {
		var taken chain
		taken, others = s.pop(c.batch.room(), everyone)
		taken.each(func(w *waiter) {
			if late(w) {
				w.err = errWait
				away.append(w)
				return
			}
			if w.latest.After(c.until.deadline) {
				c.until.deadline = w.latest
			}
			c.batch.add(w)
		})
	}
	s.hand(away.each)
	return len(c.batch.entries) > 0
}

// deliver gives the answers out, or why nothing was asked, and makes the call ready
// to be used again.
func (s *senders) deliver(c *call, err error) {
	c.batch.share(err)
	s.mu.Lock()
	s.pace.travelled(c.took)
	s.mu.Unlock()
	s.hand(c.batch.each)
	c.reset()
}

// tooLate returns whether too little of a waiter's time is left for an answer:
// asking would cost the tokens in vain.
func tooLate(now time.Time) func(*waiter) bool {
	return func(w *waiter) bool { return 4*w.deadline.Sub(now) < w.deadline.Sub(w.arrived) }
}
