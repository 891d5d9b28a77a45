package front

import (
	"context"
	"time"
)

// flight is a question that one request asks for several. Whoever leads it ends it
// or hands it over; those who wait do so without a goroutine or a lock.
type flight struct {
	done  chan struct{} // closed by its end
	baton chan struct{} // holds one value while nobody leads
}

func newFlight() *flight {
	return &flight{done: make(chan struct{}), baton: make(chan struct{}, 1)}
}

// end tells all who wait that there is an answer.
func (f *flight) end() { close(f.done) }

// handOver lets one of those who wait, or who will, lead in the caller's place.
func (f *flight) handOver() { f.baton <- struct{}{} }

// ended reports whether there is an answer.
func (f *flight) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// wait waits for the answer, or until it is the caller's turn to lead. The error
// is ctx's, or context.DeadlineExceeded at the end of patience.
func (f *flight) wait(ctx context.Context, p patience) (leads bool, err error) {
	expired, stop := p.timer()
	defer stop()
	select {
	case <-f.done:
		return false, nil
	case <-f.baton:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-expired:
		return false, context.DeadlineExceeded
	}
}

// patience is how long a request waits for another's answer.
type patience struct {
	limited bool
	left    time.Duration
}

// patienceUntil is that of a request with a deadline, which may be zero.
func patienceUntil(deadline time.Time, clock func() time.Time) patience {
	switch {
	case deadline.IsZero():
		return patience{}
	case clock == nil:
		return patience{limited: true, left: time.Until(deadline)}
	default:
		return patience{limited: true, left: deadline.Sub(clock())}
	}
}

// timer returns a channel that says when patience is over, or nil.
func (p patience) timer() (expired <-chan time.Time, stop func()) {
	if !p.limited {
		return nil, func() {}
	}
	timer := time.NewTimer(p.left)
	return timer.C, func() { timer.Stop() }
}
