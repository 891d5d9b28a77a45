package localbucket

import (
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// DefaultBound is how many buckets a Store holds where no bound is in force.
const DefaultBound = bounded.DefaultBound

// Store is the state of all buckets of a process. It outlives the Limiters that
// work on it, and so holds no logger, context or clock. It takes about 80 bytes
// a bucket, however long its names, and 16 more for each entry of a log. What one
// algorithm keeps means nothing to another, so each has a map of its own. Make
// one with NewStore.
type Store struct {
	levels   *states[level]
	logs     *states[log]
	counters *states[counter]
	bans     *bounded.Map[ban]
	running  running
	lastBan  atomic.Int64 // when the last ban is over, in ms; never: there was none
	prints   bounded.Fingerprints
	bounds   bounded.Bounds

	// epoch is the zero of the stamps. It has a monotonic reading, so a step of
	// the wall clock moves no stamp.
	epoch time.Time
}

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{
		levels:   bounded.New[level](0),
		logs:     bounded.New[log](0),
		counters: bounded.New[counter](0),
		bans:     bounded.New[ban](0),
		running:  running{byKey: map[limit.Key]map[int64]struct{}{}},
		prints:   bounded.NewFingerprints(),
		epoch:    time.Now(),
	}
	s.lastBan.Store(never)
	return s
}

// Bound makes most the number of buckets that the store holds at most under each
// algorithm, where of a log each entry that it has room for counts as one; 0 or
// less means DefaultBound. A log that is larger stands alone. What is too much is
// dropped at once, those first that are full again soonest. The newest bound that
// is not released is in force, as configs overlap in a reload: the old one's
// release then changes nothing, and the release of one that failed brings the old
// bound back. A second call of release does nothing.
func (s *Store) Bound(most int) (release func()) {
	return s.bounds.Add(most, s.setBound)
}

func (s *Store) setBound(most int) {
	s.levels.SetBound(most)
	s.logs.SetBound(most)
	s.counters.SetBound(most)
	s.bans.SetBound(most)
}

// Len returns how many buckets the store holds, some of them full again.
func (s *Store) Len() int {
	return s.levels.Len() + s.logs.Len() + s.counters.Len()
}

// Destruct fits a pool of stores. There is nothing to close, and a Take that
// comes later still works.
func (s *Store) Destruct() error {
	return nil
}

// fingerprint stands for the name of one state.
type fingerprint = bounded.Fingerprint

// fingerprint names a key's state.
func (s *Store) fingerprint(key limit.Key) fingerprint {
	var room limit.KeyRoom
	return s.prints.Of(key.Append(room[:0]))
}
