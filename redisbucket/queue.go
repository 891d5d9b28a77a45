package redisbucket

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

// pop takes up to n from the queue's head, as long as who, for a call or to be
// turned away. Any is whether others still wait.
func (s *senders) pop(n int, who func(*waiter) bool) (taken chain, others bool) {
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
	return taken, s.queue.first != nil
}

// hand gives answers out to those that each visits. A waiter whose caller has
// left is put away; any other is its caller's from here on.
func (s *senders) hand(each func(visit func(*waiter))) {
	s.mu.Lock()
	each(func(w *waiter) {
		if w.stage == stageSent {
			w.stage = stageAnswered
		}
	})
	s.mu.Unlock()
	each(func(w *waiter) {
		if w.stage == stageLeft {
			_, _ = s.node.client.answer(w, nil)
			return
		}
		w.answered <- struct{}{}
	})
}

// turnAway answers those at the queue's head with an error, as long as who.
func (s *senders) turnAway(err error, who func(*waiter) bool) {
	away, _ := s.pop(maxWaiting, who)
	away.each(func(w *waiter) { w.err = err })
	s.hand(away.each)
}

func everyone(*waiter) bool { return true }
