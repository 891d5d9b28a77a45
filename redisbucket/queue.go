package redisbucket

import (
	"runtime"
	"time"
)

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
			s.deadlines.remove(w)
			w.stage = stageAnswered
		}
	})
	s.mu.Unlock()
	each(func(w *waiter) {
		if w.stage == stageAnswered {
			w.answered <- stageAnswered
		}
	})
}

// turnAway answers those at the queue's head with an error, as long as who.
func (s *senders) turnAway(err error, who func(*waiter) bool) {
	away := s.pop(maxWaiting, who)
	away.each(func(w *waiter) { w.err = err })
	s.hand(away.each)
}

func everyone(*waiter) bool { return true }
