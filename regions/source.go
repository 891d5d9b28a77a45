package regions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/limit"
)

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
	work     *background.Work[Settings]

	mu    sync.Mutex
	fault string // why the shares could not be read last
}

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
	s := &Source{database: tables, counter: newCounter()}
	s.member.reader, s.member.region, s.member.valid, s.member.now = tables, o.Region, o.valid(), time.Now
	s.member.start(Unknown)
	s.work = background.New(Settings{}.complete(), s.run)
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
func (s *Source) Trying() bool { return s.work.Trying() }

// Await returns the shares in force as Shares does. Where they were not asked for
// yet it waits for that, but no longer than ctx allows, nor than most after the
// start of the Source.
func (s *Source) Await(ctx context.Context, most time.Duration) *Shares {
	s.work.Await(ctx, most)
	return s.member.shares()
}

// Status returns how the Source fares.
func (s *Source) Status() Status {
	force := s.member.force.Load()
	shares := force.at(s.member.now())
	running := s.work.Used()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{
		Running: running, Version: shares.version, Share: shares.All(), Limits: shares.Len(),
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
func (s *Source) Start(settings Settings) (stop func()) { return s.work.Start(settings.complete()) }

// Destruct ends the work for all users and waits up to 5 s for the end.
func (s *Source) Destruct() error {
	if err := s.work.Stop(); err != nil {
		return fmt.Errorf("stopping the source of shares: %w", err)
	}
	return nil
}

// run is a gateway that lives as long as ctx, under an ID of its own.
func (s *Source) run(ctx context.Context, tried func()) {
	s.member.id = rand.Text()
	(&poller{source: s, tried: tried}).run(ctx)
}

// settings returns those in force.
func (s *Source) settings() Settings { return s.work.Settings() }

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
