package rulecache

import (
	"context"
	"fmt"
	"time"
)

// The defaults and bounds of Settings.
const (
	// DefaultRefresh is the default of Settings.Refresh.
	DefaultRefresh = 30 * time.Second
	// MinRefresh is the shortest refresh.
	MinRefresh = time.Second
	// MaxRefresh is the longest refresh.
	MaxRefresh = 24 * time.Hour
	// DefaultMaxRules is the default of Settings.MaxRules.
	DefaultMaxRules = 1_000_000
	// MaxMaxRules is the highest bound on the number of rules.
	MaxMaxRules = 10_000_000
)

// Settings say how a Source works for one configuration. They may differ
// between two users of one Source; the newest count.
type Settings struct {
	// Refresh is the longest time until a change is seen that no notification
	// told of: the table is polled a little more often. From 1 s to 24 h.
	// Default: 30 s.
	Refresh time.Duration

	// Channel is the channel of NOTIFY, taken as it is, of up to 63 bytes.
	// Default: rate_limit_rule.
	Channel string

	// ListenOff leaves out the listening connection: the table is only polled.
	ListenOff bool

	// MaxRules refuses a table with more rows. From 1 to 10,000,000.
	// Default: 1,000,000.
	MaxRules int

	// Store keeps the last good snapshot for a start without PostgreSQL.
	// Default: nil, nothing is kept.
	Store Store

	// Observe is told what happens, one event at a time, from a goroutine of the
	// Source. It must return soon and must not call Start, stop or Destruct.
	// Default: nil, nobody is told.
	Observe func(Event)
}

// Validate reports which setting is out of bounds, and what is allowed.
func (s Settings) Validate() error {
	if s.Refresh != 0 && (s.Refresh < MinRefresh || s.Refresh > MaxRefresh) {
		return fmt.Errorf("refresh %s is out of bounds: allowed are 1s to 24h", s.Refresh)
	}
	if s.MaxRules != 0 && (s.MaxRules < 1 || s.MaxRules > MaxMaxRules) {
		return fmt.Errorf("max_rules %d is out of bounds: allowed are 1 to %d", s.MaxRules, MaxMaxRules)
	}
	if s.Channel == "" {
		return nil
	}
	if err := checkIdentifier(s.Channel); err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	return nil
}

// complete returns s with the defaults in place of zero values.
func (s Settings) complete() Settings {
	if s.Refresh == 0 {
		s.Refresh = DefaultRefresh
	}
	if s.Channel == "" {
		s.Channel = DefaultChannel
	}
	if s.MaxRules == 0 {
		s.MaxRules = DefaultMaxRules
	}
	if s.Observe == nil {
		s.Observe = func(Event) {}
	}
	return s
}

// Store keeps one snapshot between two runs of the process. Several gateways may
// share it, whose snapshots are of the same table. Both methods end
// soon after their context does; where they do not, the Source goes on without.
type Store interface {
	// Load returns what Save kept last, whoever called it, and an error that wraps
	// fs.ErrNotExist where that is nothing.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces what is kept, whole or not at all.
	Save(ctx context.Context, snapshot []byte) error
}
