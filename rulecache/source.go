package rulecache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stopTimeout bounds how long the end of a Source is waited for.
const stopTimeout = 5 * time.Second

// ErrNotRunning is what Refresh answers while nobody has started the Source.
var ErrNotRunning = errors.New("the rule source is not running")

// Source holds the rules of one table. It is shared by all configurations that
// name the same table, and outlives each: what belongs to one configuration is
// in Settings. It is safe for concurrent use.
type Source struct {
	poller   *poller
	snapshot atomic.Pointer[Snapshot]

	// attempt ends with the first load after a start; nil afterward. It is there
	// before the Start, too: requests may come a moment earlier.
	attempt atomic.Pointer[attempt]

	mu     sync.Mutex
	users  []*user
	latest Settings // of the newest user, and of the last one after it has gone
	cancel context.CancelFunc
	ended  chan struct{} // closed when the last run has ended
	asking []chan error
	closed bool
	status Status
}

// attempt is the first load after a start.
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

// user is one Start that was not stopped yet.
type user struct{ settings Settings }

// NewSource makes a Source that does nothing yet: it only checks the options, and
// the files for TLS that they name.
func NewSource(o Options) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Source{latest: Settings{}.complete(), ended: make(chan struct{})}
	s.attempt.Store(&attempt{ended: make(chan struct{})})
	close(s.ended)
	s.poller = newPoller(s, o)
	return s, nil
}

// Start adds a user, whose settings are in force until a newer user starts or
// this one stops. The first one starts the work in the background. The function
// returned takes the user back, once; the last one ends the work and waits up
// to 5 s for the end. Settings must be valid. After Destruct, Start does nothing.
func (s *Source) Start(settings Settings) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	u := &user{settings: settings.complete()}
	s.users = append(s.users, u)
	s.apply()
	if len(s.users) == 1 {
		s.run()
	}
	return sync.OnceFunc(func() { s.release(u) })
}

// Snapshot returns the rules in force: one atomic load. It is nil until any are
// known, from PostgreSQL or from the store.
func (s *Source) Snapshot() *Snapshot { return s.snapshot.Load() }

// Trying reports whether nobody can say yet that the rules cannot be loaded: the
// first load since the start of the Source has not ended, or it was not started.
func (s *Source) Trying() bool { return s.attempt.Load() != nil }

// Await returns the rules in force as Snapshot does. Where none are known and the
// first load has not ended, it waits until either changes, but no longer than ctx
// allows, nor than most: after the start of the Source, however many ask one after
// another, and before that from now on. It never waits otherwise.
func (s *Source) Await(ctx context.Context, most time.Duration) *Snapshot {
	if known := s.snapshot.Load(); known != nil {
		return known
	}
	if first := s.attempt.Load(); first != nil {
		timer := time.NewTimer(first.left(most))
		defer timer.Stop()
		select {
		case <-first.ended:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return s.snapshot.Load()
}

// Refresh loads the rules now and waits until that has ended or ctx has. It
// returns ErrNotRunning where nobody has started the Source, and else why the
// rules could not be loaded, in words that hold nothing of the DSN.
func (s *Source) Refresh(ctx context.Context) error {
	s.mu.Lock()
	if len(s.users) == 0 {
		s.mu.Unlock()
		return ErrNotRunning
	}
	answer := make(chan error, 1)
	s.asking = append(s.asking, answer)
	s.mu.Unlock()
	signal(s.poller.asked)
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Changed tells the Source that the table may have changed, as a notification of
// PostgreSQL does: it is asked soon, but in a storm of changes no more often than
// every half second. It never blocks, and does nothing while nobody has started
// the Source.
func (s *Source) Changed() { s.poller.wake() }

// Status returns how the Source fares.
func (s *Source) Status() Status {
	snapshot := s.snapshot.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Running = len(s.users) > 0
	status.Rules = snapshot.Len()
	status.Rejected, _ = snapshot.Rejected()
	if snapshot == nil {
		return status
	}
	status.Hash = snapshot.Hash()
	since := status.LastSuccess
	if since.IsZero() {
		since = snapshot.LoadedAt()
	}
	if !since.IsZero() {
		status.Age = max(0, s.poller.timing.now().Sub(since))
	}
	return status
}

// Destruct ends the work for all users and waits up to 5 s for the end. The
// rules stay known.
func (s *Source) Destruct() error {
	s.mu.Lock()
	s.closed = true
	s.users = nil
	ended := s.halt()
	s.mu.Unlock()
	return await(ended)
}

// release takes a user back.
func (s *Source) release(u *user) {
	s.mu.Lock()
	s.users = slices.DeleteFunc(s.users, func(other *user) bool { return other == u })
	s.apply()
	if len(s.users) > 0 {
		s.mu.Unlock()
		return
	}
	ended := s.halt()
	s.mu.Unlock()
	_ = await(ended)
}

// run starts the poller when the run before has ended. The caller holds mu.
func (s *Source) run() {
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := s.ended, make(chan struct{})
	s.cancel, s.ended = cancel, ended
	first, now := s.attempt.Load(), time.Now()
	if first == nil { // a run before has ended its own
		first = &attempt{ended: make(chan struct{})}
		s.attempt.Store(first)
	}
	first.began.Store(&now)
	go func() {
		defer close(ended)
		<-before
		s.poller.run(ctx, func() { s.tried(first) })
		s.forget()
	}()
}

// tried ends the attempt, once, where it is still the one that is waited for.
func (s *Source) tried(first *attempt) {
	if first != nil && s.attempt.CompareAndSwap(first, nil) {
		close(first.ended)
	}
}

// forget drops the settings of a configuration that has gone.
func (s *Source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.users) == 0 {
		s.latest = Settings{}.complete()
	}
}

// halt tells the poller to end, and lets everyone go who waits for it. It
// returns what closes when it has ended. The caller holds mu.
func (s *Source) halt() chan struct{} {
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
	s.tried(s.attempt.Load())
	for _, answer := range s.asking {
		answer <- ErrNotRunning
	}
	s.asking = nil
	return s.ended
}

func await(ended chan struct{}) error {
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errors.New("stopping the rule source: it has not ended in time and ends later")
	}
}

// apply puts the settings of the newest user in force. The caller holds mu.
func (s *Source) apply() {
	if len(s.users) > 0 {
		s.latest = s.users[len(s.users)-1].settings
		signal(s.poller.asked)
	}
}

// settings returns the settings in force.
func (s *Source) settings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// anyoneAsks reports whether a Refresh waits.
func (s *Source) anyoneAsks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asking) > 0
}

// takeAsking returns those that wait for the load that begins now.
func (s *Source) takeAsking() []chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asking := s.asking
	s.asking = nil
	return asking
}

// publish puts a snapshot in force.
func (s *Source) publish(snapshot *Snapshot) { s.snapshot.Store(snapshot) }

// publishFirst puts a snapshot in force where there is none, and lets those go
// on who wait for one.
func (s *Source) publishFirst(snapshot *Snapshot) bool {
	if !s.snapshot.CompareAndSwap(nil, snapshot) {
		return false
	}
	s.tried(s.attempt.Load())
	return true
}

// failed notes a failed load, and reports whether it is news.
func (s *Source) failed(why fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Failures++
	s.status.FailedLoads++
	news := s.status.LastError != string(why)
	s.status.LastError = string(why)
	return news
}

// succeeded notes a load, and reports whether the one before failed.
func (s *Source) succeeded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	recovered := s.status.Failures > 0
	s.status.Failures, s.status.LastError, s.status.LastSuccess = 0, "", now
	s.status.Loads++
	return recovered
}

// confirm notes that what is in force was still the table at that time, where no
// load has failed since.
func (s *Source) confirm(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Failures == 0 && !s.status.LastSuccess.IsZero() && at.After(s.status.LastSuccess) {
		s.status.LastSuccess = at
	}
}

// setListening notes whether changes are announced, or why they cannot be; "" where
// that may be so only for now. It reports whether that is news.
func (s *Source) setListening(listening bool, why fault) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.status.Listening != listening || s.status.PollOnly != string(why)
	s.status.Listening, s.status.PollOnly = listening, string(why)
	return news
}

// listening reports whether changes are announced.
func (s *Source) listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.Listening
}
