// Package background is the lifecycle of what runs beside requests and outlives
// configurations: who uses it, under whose settings, and how its end is waited for.
package background

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// StopTimeout bounds how long the end of a run is waited for.
const StopTimeout = 5 * time.Second

// errLate is why a stop could not wait any longer.
var errLate = errors.New("it has not ended in time and ends later")

// Work runs in one goroutine while anyone uses it, under the settings of its newest
// user. S takes up memory: where a user's settings are tells it from others. It is safe
// for concurrent use. Make one with New.
type Work[S any] struct {
	idle S
	run  func(ctx context.Context, tried func())

	// attempt ends with the first attempt after a start; nil afterward. It is there
	// before the Start, too: requests may come a moment earlier.
	attempt atomic.Pointer[attempt]

	mu     sync.Mutex
	users  []*S
	latest S // of the newest user, and of the last one after it has gone
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when the last run has ended
	closed bool
}

// attempt is the first thing that a run does.
type attempt struct {
	began atomic.Pointer[time.Time] // nil before the Start
	ended chan struct{}
}

// left returns how much is left of the wait.
func (a *attempt) left(most time.Duration) time.Duration {
	began := a.began.Load()
	if began == nil {
		return most
	}
	return time.Until(began.Add(most))
}

// New returns Work that does nothing yet. Run is called in a goroutine, never twice
// at a time, and ends soon after ctx does, which may be over already where the run before
// ended late; it calls tried, as often as it likes, once it has attempted what Await waits
// for. Idle are the settings while nobody uses it; a run never has them.
func New[S any](idle S, run func(ctx context.Context, tried func())) *Work[S] {
	w := &Work[S]{idle: idle, latest: idle, run: run, ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.cancel()
	close(w.ended)
	w.attempt.Store(&attempt{ended: make(chan struct{})})
	return w
}

// Start adds a user, whose settings are in force until a newer user starts or this
// one stops. The first one begins a run. The function returned takes the user back,
// once; the last one ends the run and waits up to 5 s for the end. After Stop, Start
// does nothing.
func (w *Work[S]) Start(settings S) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	user := &settings
	w.users, w.latest = append(w.users, user), settings
	if len(w.users) == 1 {
		w.begin()
	}
	return sync.OnceFunc(func() { w.release(user) })
}

// Stop ends the run for all users, for good, and waits up to 5 s for the end. Its
// error says that it goes on.
func (w *Work[S]) Stop() error {
	w.mu.Lock()
	w.closed, w.users = true, nil
	ended := w.halt()
	w.mu.Unlock()
	return await(ended)
}

// Settings returns those in force. A run that ends still has those of its last user.
func (w *Work[S]) Settings() S {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// Used reports whether anybody uses it.
func (w *Work[S]) Used() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.users) > 0
}

// Halted returns what is closed as soon as nobody uses it any more, before the run
// has ended; it is closed already where nobody does.
func (w *Work[S]) Halted() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ctx.Done()
}

// Ended returns what is closed when the last run has ended; it is closed already
// where there is none.
func (w *Work[S]) Ended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Trying reports whether the first attempt since the first user's Start has not
// ended, or nobody has started yet.
func (w *Work[S]) Trying() bool { return w.attempt.Load() != nil }

// Await waits until nothing is attempted any more, but no longer than ctx allows, nor
// than most: after the Start, however many ask one after another, and before that
// from now on. It never waits otherwise.
func (w *Work[S]) Await(ctx context.Context, most time.Duration) {
	first := w.attempt.Load()
	if first == nil {
		return
	}
	timer := time.NewTimer(first.left(most))
	defer timer.Stop()
	select {
	case <-first.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Tried ends the attempt that is waited for now: what it was to bring came another way.
func (w *Work[S]) Tried() { w.tried(w.attempt.Load()) }

// tried ends an attempt, once, where it is still the one that is waited for.
func (w *Work[S]) tried(first *attempt) {
	if first != nil && w.attempt.CompareAndSwap(first, nil) {
		close(first.ended)
	}
}

// begin begins a run when the one before has ended. The caller holds mu.
func (w *Work[S]) begin() {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // halt calls it
	before, ended := w.ended, make(chan struct{})
	w.ctx, w.cancel, w.ended = ctx, cancel, ended
	first, now := w.attempt.Load(), time.Now()
	if first == nil { // a run before has ended its own
		first = &attempt{ended: make(chan struct{})}
		w.attempt.Store(first)
	}
	first.began.Store(&now)
	go func() {
		defer close(ended)
		<-before
		w.run(ctx, func() { w.tried(first) })
		w.forget(ended)
	}()
}

// release takes a user back.
func (w *Work[S]) release(user *S) {
	w.mu.Lock()
	w.users = slices.DeleteFunc(w.users, func(other *S) bool { return other == user })
	if left := len(w.users); left > 0 {
		w.latest = *w.users[left-1]
		w.mu.Unlock()
		return
	}
	ended := w.halt()
	w.mu.Unlock()
	_ = await(ended)
}

// halt tells the run to end, and lets everyone go who waits for it. It returns what
// is closed when it has ended. The caller holds mu.
func (w *Work[S]) halt() <-chan struct{} {
	w.cancel()
	w.Tried()
	return w.ended
}

// forget drops the settings of a configuration that has gone, after the last run, which
// had them to its end.
func (w *Work[S]) forget(ended chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.users) == 0 && w.ended == ended {
		w.latest = w.idle
	}
}

func await(ended <-chan struct{}) error {
	timer := time.NewTimer(StopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errLate
	}
}
