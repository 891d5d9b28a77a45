package rulecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/internal/background"
)

// ErrNotRunning is what Refresh answers while nobody has started the Source.
var ErrNotRunning = errors.New("the rule source is not running")

// Source holds the rules of one table. It is shared by all configurations that
// name the same table, and outlives each: what belongs to one configuration is
// in Settings. It is safe for concurrent use.
type Source struct {
	poller   *poller
	snapshot atomic.Pointer[Snapshot]

	work *background.Work[Settings]

	mu     sync.Mutex
	asking []chan error
	status Status
}

// NewSource makes a Source that does nothing yet: it only checks the options, and
// the files for TLS that they name.
func NewSource(o Options) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Source{}
	s.poller = newPoller(s, o)
	s.work = background.New(Settings{}.complete(), s.poller.run)
	return s, nil
}

// Start adds a user, whose settings are in force until a newer user starts or
// this one stops. The first one starts the work in the background. The function
// returned takes the user back, once; the last one ends the work and waits up
// to 5 s for the end. Settings must be valid. After Destruct, Start does nothing.
func (s *Source) Start(settings Settings) (stop func()) {
	release := s.work.Start(settings.complete())
	signal(s.poller.asked) // the poller goes by what is in force now
	return func() {
		release()
		signal(s.poller.asked)
	}
}

// Snapshot returns the rules in force: one atomic load. It is nil until any are
// known, from PostgreSQL or from the store.
func (s *Source) Snapshot() *Snapshot { return s.snapshot.Load() }

// Trying reports whether nobody can say yet that the rules cannot be loaded: the
// first load since the start of the Source has not ended, or it was not started.
func (s *Source) Trying() bool { return s.work.Trying() }

// Await returns the rules in force as Snapshot does. Where none are known and the
// first load has not ended, it waits until either changes, but no longer than ctx
// allows, nor than most: after the start of the Source, however many ask one after
// another, and before that from now on. It never waits otherwise.
func (s *Source) Await(ctx context.Context, most time.Duration) *Snapshot {
	if known := s.snapshot.Load(); known != nil {
		return known
	}
	s.work.Await(ctx, most)
	return s.snapshot.Load()
}

// Refresh loads the rules now and waits until that has ended or ctx has. It
// returns ErrNotRunning where nobody has started the Source, and else why the
// rules could not be loaded, in words that hold nothing of the DSN.
func (s *Source) Refresh(ctx context.Context) error {
	halted := s.work.Halted()
	select {
	case <-halted:
		return ErrNotRunning
	default:
	}
	answer := make(chan error, 1)
	s.mu.Lock()
	s.asking = append(s.asking, answer)
	s.mu.Unlock()
	signal(s.poller.asked)
	select {
	case err := <-answer:
		return err
	case <-halted:
		return ErrNotRunning
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
	snapshot, running := s.snapshot.Load(), s.work.Used()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Running = running
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
	if err := s.work.Stop(); err != nil {
		return fmt.Errorf("stopping the rule source: %w", err)
	}
	return nil
}

// settings returns the settings in force.
func (s *Source) settings() Settings { return s.work.Settings() }

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
	s.work.Tried()
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
