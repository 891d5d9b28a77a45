package regions

import (
	"maps"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Shares are what one region gives of each limit. They never change.
type Shares struct {
	version int64
	known   bool // they are those of the table
	safe    Share
	all     Share // of limits without a share of their own
	own     map[limit.Key]Share
}

// Of returns the share of the limit that the bucket of this key is held to, as a
// part of 1. It does not allocate.
func (s *Shares) Of(key limit.Key) float64 {
	if share, found := s.own[key]; found {
		return share.Fraction()
	}
	return s.all.Fraction()
}

// All returns the share of every limit that has none of its own, as a part of 1.
func (s *Shares) All() float64 { return s.all.Fraction() }

// Known reports whether the shares are those that were read last: not where none were
// read, they were given back, or are so old that less is given. Who does not know them
// must decide nothing that others go by. It does not allocate.
func (s *Shares) Known() bool { return s.known }

// Len returns how many limits have a share of their own.
func (s *Shares) Len() int { return len(s.own) }

// fallen returns what is given of each limit once the shares no longer count: the
// safe share, and never more than the share itself. A region that joins may have
// less than its safe share for a moment.
func (s *Shares) fallen() *Shares {
	fallen := &Shares{version: s.version, known: s.known && s.all <= s.safe, safe: s.safe, all: min(s.all, s.safe)}
	for key, share := range s.own {
		fallen.known = fallen.known && share <= s.safe
		if share < fallen.all {
			fallen.set(key, share)
		} else if fallen.all < s.safe {
			fallen.set(key, min(share, s.safe))
		}
	}
	return fallen
}

func (s *Shares) set(key limit.Key, share Share) {
	if s.own == nil {
		s.own = map[limit.Key]Share{}
	}
	s.own[key] = share
}

// floor returns the least that the region has of any limit, and of any limit to
// come: what it may give after a restart that finds no PostgreSQL.
func (s *Shares) floor() Share {
	least := min(s.all, s.safe)
	for _, share := range s.own {
		least = min(least, share)
	}
	return max(least, Unknown)
}

// gives reports whether both give the same of every limit.
func (s *Shares) gives(other *Shares) bool {
	return other != nil && s.all == other.all && maps.Equal(s.own, other.own)
}

// flat are shares that are the same of every limit.
func flat(share Share) *Shares { return &Shares{safe: share, all: share} }

// View is what a gateway reads of the books, as of one moment.
type View struct {
	// Version is that of the books.
	Version int64
	// Unchanged tells that it is the one the gateway knows; the rest is missing then.
	Unchanged bool
	// Safe is the region's safe share.
	Safe Share
	// Shares are those of the region, by limit. Where a limit has a row without
	// the region, it is 0.
	Shares map[limit.Key]Share
}

// shares makes a view one that requests can go by. A share that was not given
// yet is Unknown.
func (v *View) shares() *Shares {
	made := &Shares{version: v.Version, known: true, safe: max(v.Safe, Unknown), all: max(v.Shares[Everything()], Unknown)}
	for key, share := range v.Shares {
		if key != Everything() {
			made.set(key, max(share, Unknown))
		}
	}
	return made
}

// inForce is what a gateway goes by at present.
type inForce struct {
	fresh, fallen *Shares
	valid         time.Duration
	began         time.Time // when the gateway last made itself known before it read
}

// at returns the shares that count at a moment. A clock that was set and one that
// stood still, as it does while a machine sleeps, are both looked at: the shares
// are as old as the one says that makes them older.
func (f *inForce) at(now time.Time) *Shares {
	if f.fallen == f.fresh {
		return f.fresh
	}
	if now.Sub(f.began) >= f.valid || time.Duration(now.UnixNano()-f.began.UnixNano()) >= f.valid {
		return f.fallen
	}
	return f.fresh
}
