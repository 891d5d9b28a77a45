package regions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/internal/pg"
	"github.com/caddygate/ratelimit/limit"
)

// Options say what a Source talks to and for whom. They are what makes two
// sources the same.
type Options struct {
	// DSN is the address of the database, a URL of a server that takes writes.
	DSN string
	// Expand replaces the placeholders in the DSN, for each connection. Its error
	// must hold nothing of the DSN. Default: nil, the DSN is taken as it is.
	Expand func(dsn string) (string, error)
	// Schema is the schema of the tables. Default: what the search path finds.
	Schema string
	// Region is the name of the region.
	Region string
	// Valid is how long the shares that were read last count while PostgreSQL
	// cannot be reached, from 10 s to 24 h. Default: 5 m.
	Valid time.Duration
}

// Validate reports which option is out of bounds, and what is allowed.
func (o Options) Validate() error {
	if !limit.ValidRoute(o.Region) {
		return fmt.Errorf("the region's name %q is not allowed: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", clip(o.Region), limit.MaxRouteLength)
	}
	if o.Valid != 0 && (o.Valid < MinValid || o.Valid > MaxValid) {
		return fmt.Errorf("valid %s is out of bounds: allowed are 10s to 24h", o.Valid)
	}
	return nil
}

func (o Options) address() pg.Address { return pg.Address{Written: o.DSN, Expand: o.Expand} }

func (o Options) valid() time.Duration {
	if o.Valid == 0 {
		return DefaultValid
	}
	return o.Valid
}

// clip shortens what a message quotes.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64] + "…"
	}
	return text
}

// Settings say how a Source works for one configuration. Those of the newest
// user count.
type Settings struct {
	// Refresh is the longest time between two looks at the shares; they are
	// looked at more often where Valid asks for it. Default: 10 s.
	Refresh time.Duration
	// Rebalance is how often shares follow the demand, from 10 s to 24 h. Below 0
	// this gateway does not run the job. Default: 2 m.
	Rebalance time.Duration
	// Drain is how long a decision may go on with the shares that it began with.
	// Default: 1 s.
	Drain time.Duration
	// Store keeps the region's safe share for a start without PostgreSQL.
	// Default: nil, nothing is kept.
	Store Store
	// Observe is told what happens, one event at a time. It must return soon, and
	// must not call the Source's Start, stop or Destruct. Default: nobody is told.
	Observe func(Event)
}

// Validate reports which setting is out of bounds, and what is allowed.
func (s Settings) Validate() error {
	if s.Rebalance > 0 && (s.Rebalance < MinRebalance || s.Rebalance > MaxRebalance) {
		return fmt.Errorf("rebalance %s is out of bounds: allowed are 10s to 24h, and off", s.Rebalance)
	}
	if s.Refresh < 0 || s.Drain < 0 {
		return errors.New("refresh and drain must not be below 0")
	}
	return nil
}

const (
	// defaultRefresh is also the longest: what is lowered waits for every gateway
	// to look.
	defaultRefresh = 10 * time.Second
	defaultDrain   = time.Second
)

func (s Settings) complete() Settings {
	if s.Refresh == 0 {
		s.Refresh = defaultRefresh
	}
	s.Refresh = min(s.Refresh, defaultRefresh)
	if s.Rebalance == 0 {
		s.Rebalance = DefaultRebalance
	}
	if s.Drain == 0 {
		s.Drain = defaultDrain
	}
	if s.Observe == nil {
		s.Observe = func(Event) {}
	}
	return s
}

// Store keeps a few bytes between two runs of the process.
type Store interface {
	// Load returns what Save kept last, and an error that wraps fs.ErrNotExist where
	// that is nothing.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces what is kept, whole or not at all.
	Save(ctx context.Context, value []byte) error
}

// EventKind says what happened.
type EventKind uint8

// The events of a Source. Each comes once for each change of state.
const (
	// EventShares: other shares are in force.
	EventShares EventKind = iota
	// EventFailed: PostgreSQL could not be asked, or asked in vain.
	EventFailed
	// EventRecovered: it can again.
	EventRecovered
	// EventLapsed: the shares are too old, and the safe share is in force.
	EventLapsed
	// EventUnknown: nothing was ever read, and next to nothing is given.
	EventUnknown
	// EventStored: nothing was read yet, and the safe share of an earlier run is in force.
	EventStored
	// EventMoved: this gateway's job moved shares.
	EventMoved
	// EventJobFailed: the job could not do its work.
	EventJobFailed
	// EventStoreFailed: the safe share could not be kept, or what was kept not read.
	EventStoreFailed
)

// String returns a constant sentence for logs.
func (k EventKind) String() string {
	switch k {
	case EventShares:
		return "other shares are in force"
	case EventFailed:
		return "the shares cannot be read, and those that were read last stay for as long as they are valid"
	case EventRecovered:
		return "the shares can be read again"
	case EventLapsed:
		return "the shares are too old to count: the safe share is in force"
	case EventUnknown:
		return "no share is known yet: next to nothing is given"
	case EventStored:
		return "the safe share of an earlier run is in force"
	case EventMoved:
		return "shares follow the demand"
	case EventJobFailed:
		return "shares cannot be rebalanced"
	case EventStoreFailed:
		return "the safe share cannot be kept or read"
	default:
		return "something happened"
	}
}

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	// Share is that of most limits after it, as a part of 1.
	Share float64
	// Limits is how many have a share of their own.
	Limits int
	// Err is why, in words that hold nothing of the DSN; nil where all is well.
	Err error
	// Changes are those of EventMoved.
	Changes *Changes
}

// Status is how a Source fares.
type Status struct {
	// Running tells whether anybody uses it.
	Running bool
	// Version is that of the shares in force, 0 where none were read.
	Version int64
	// Share is that of most limits, as a part of 1.
	Share float64
	// Limits is how many have a share of their own.
	Limits int
	// Lapsed tells that the shares are too old, and the safe share counts.
	Lapsed bool
	// Age is the time since the shares were known to be those of the table.
	Age time.Duration
	// LastError is why they could not be read last; "" where they could.
	LastError string
}
