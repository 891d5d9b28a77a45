package regions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// stopTimeout bounds how long the end of a Source is waited for.
const stopTimeout = 5 * time.Second

// database is all that a Source asks of the tables.
type database interface {
	Reader
	Bookkeeper
	// Close ends connections. The next call makes them anew.
	Close()
}

// Source is one gateway's part in its region: it knows the shares in force and
// counts demand. It is shared by all configurations of a process that name the
// same tables and region, and outlives each. It is safe for concurrent use.
type Source struct {
	database database
	member   member
	counter  *counter

	// attempt ends when the shares were asked for once; nil afterward. It is there
	// before the Start, too: requests may come a moment earlier.
	attempt atomic.Pointer[attempt]

	mu     sync.Mutex
	users  []*user
	latest Settings
	cancel context.CancelFunc
	ended  chan struct{}
	closed bool
	fault  string // why the shares could not be read last
}

type attempt struct {
	began time.Time // zero before the Start
	once  sync.Once
	ended chan struct{}
}

func (a *attempt) end() { a.once.Do(func() { close(a.ended) }) }

// left returns how much is left of the wait.
func (a *attempt) left(most time.Duration) time.Duration {
	if a.began.IsZero() {
		return most
	}
	return time.Until(a.began.Add(most))
}

type user struct{ settings Settings }

// NewSource makes a Source that does nothing yet.
func NewSource(o Options) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	tables, err := NewTables(o)
	if err != nil {
		return nil, err
	}
	return newSource(o, tables), nil
}

func newSource(o Options, tables database) *Source {
	s := &Source{database: tables, counter: newCounter(), latest: Settings{}.complete(), ended: make(chan struct{})}
	s.member.reader, s.member.region, s.member.valid, s.member.now = tables, o.Region, o.valid(), time.Now
	s.member.start(Unknown)
	s.attempt.Store(&attempt{ended: make(chan struct{})})
	close(s.ended)
	return s
}

// PoolKey returns the hex SHA-256 of the options. It is equal for options that
// make the same Source, and gives away nothing of the DSN.
func (o Options) PoolKey() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", o.DSN, o.Schema, o.Region, o.valid()))
	return hex.EncodeToString(sum[:])
}

// Count notes that units of cost were asked of a limit. It allocates only where
// the limit is new among those asked for most.
func (s *Source) Count(key limit.Key, units int64) {
	key.Shard = 0
	s.counter.add(key, units)
}

// Shares returns the shares in force. It waits for nothing.
func (s *Source) Shares() *Shares { return s.member.shares() }

// Trying reports whether nobody can say yet that the shares cannot be read: they
// were not asked for since the start of the Source, or it was not started.
func (s *Source) Trying() bool { return s.attempt.Load() != nil }

// Await returns the shares in force as Shares does. Where they were not asked for
// yet it waits for that, but no longer than ctx allows, nor than most after the
// start of the Source.
func (s *Source) Await(ctx context.Context, most time.Duration) *Shares {
	if first := s.attempt.Load(); first != nil {
		timer := time.NewTimer(first.left(most))
		defer timer.Stop()
		select {
		case <-first.ended:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return s.member.shares()
}

// Status returns how the Source fares.
func (s *Source) Status() Status {
	force := s.member.force.Load()
	shares := force.at(s.member.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{
		Running: len(s.users) > 0, Version: shares.version, Share: shares.All(), Limits: shares.Len(),
		Lapsed: shares == force.fallen && shares != force.fresh, LastError: s.fault,
	}
	if shares.version > 0 {
		status.Age = s.member.now().Sub(force.began)
	}
	return status
}

// Start adds a user, whose settings are in force until a newer user starts or this
// one stops. The first one starts the work in the background. The function
// returned takes the user back, once; the last one ends the work and waits up to
// 5 s for the end. Settings must be valid. After Destruct, Start does nothing.
func (s *Source) Start(settings Settings) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	u := &user{settings: settings.complete()}
	s.users = append(s.users, u)
	s.latest = u.settings
	if len(s.users) == 1 {
		s.run()
	}
	return sync.OnceFunc(func() { s.release(u) })
}

// Destruct ends the work for all users and waits up to 5 s for the end.
func (s *Source) Destruct() error {
	s.mu.Lock()
	s.closed, s.users = true, nil
	ended := s.halt()
	s.mu.Unlock()
	return await(ended)
}

func (s *Source) release(u *user) {
	s.mu.Lock()
	s.users = slices.DeleteFunc(s.users, func(other *user) bool { return other == u })
	if len(s.users) > 0 {
		s.latest = s.users[len(s.users)-1].settings
		s.mu.Unlock()
		return
	}
	ended := s.halt()
	s.mu.Unlock()
	_ = await(ended)
}

// run starts the work when the run before has ended. The caller holds mu.
func (s *Source) run() {
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := s.ended, make(chan struct{})
	first := &attempt{began: time.Now(), ended: make(chan struct{})}
	s.cancel, s.ended = cancel, ended
	earlier := s.attempt.Swap(first)
	go func() {
		defer close(ended)
		<-before
		s.member.id = rand.Text()
		poller := poller{source: s, tried: func() {
			s.attempt.CompareAndSwap(first, nil)
			first.end()
			if earlier != nil {
				earlier.end()
			}
		}}
		poller.run(ctx)
		s.forget()
	}()
}

// forget drops the settings of a configuration that has gone.
func (s *Source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.users) == 0 {
		s.latest = Settings{}.complete()
	}
}

// halt tells the work to end, and lets everyone go who waits for it. It returns
// what closes when it has ended. The caller holds mu.
func (s *Source) halt() chan struct{} {
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
	if first := s.attempt.Swap(nil); first != nil {
		first.end()
	}
	return s.ended
}

func await(ended chan struct{}) error {
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errors.New("stopping the source of shares: it has not ended in time and ends later")
	}
}

// settings returns those in force.
func (s *Source) settings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// noteFault keeps why the shares cannot be read, and reports whether that is news.
func (s *Source) noteFault(err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.fault
	s.fault = ""
	if err != nil {
		s.fault = err.Error()
	}
	return s.fault != before
}
