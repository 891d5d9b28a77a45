package localbucket

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
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
	seeds    [2]maphash.Seed

	// epoch is the zero of the stamps. It has a monotonic reading, so a step of
	// the wall clock moves no stamp.
	epoch time.Time

	mu     sync.Mutex
	bounds []*int // unreleased, oldest first
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		levels:   bounded.New[fingerprint, level](bounded.Options[fingerprint]{Hash: fingerprint.half}),
		logs:     bounded.New[fingerprint, log](bounded.Options[fingerprint]{Hash: fingerprint.half}),
		counters: bounded.New[fingerprint, counter](bounded.Options[fingerprint]{Hash: fingerprint.half}),
		seeds:    [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		epoch:    time.Now(),
	}
}

// Bound makes most the number of buckets that the store holds at most under each
// algorithm, where of a log each entry that it has room for counts as one; 0 or
// less means DefaultBound. A log that is larger stands alone. What is too much is dropped at once, those first that are
// full again soonest. The newest bound that is not released is in force, as
// configs overlap in a reload: the old one's release then changes nothing, and
// the release of one that failed brings the old bound back. A second call of
// release does nothing.
func (s *Store) Bound(most int) (release func()) {
	bound := &most
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds = append(s.bounds, bound)
	s.setBound(most)
	return func() { s.release(bound) }
}

func (s *Store) release(bound *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.bounds, bound)
	if at < 0 {
		return
	}
	inForce := at == len(s.bounds)-1
	s.bounds = slices.Delete(s.bounds, at, at+1)
	switch {
	case !inForce:
	case at == 0:
		s.setBound(DefaultBound)
	default:
		s.setBound(*s.bounds[at-1])
	}
}

func (s *Store) setBound(most int) {
	s.levels.SetBound(most)
	s.logs.SetBound(most)
	s.counters.SetBound(most)
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

// fingerprint stands for the name of one state: 128 bits of hash under two random
// seeds. Names themselves would cost the memory of every made-up key, the garbage
// collector's time, and a cache miss a call. Nobody can choose names that collide,
// and by chance two of a million do so about once in 10²⁶ stores.
type fingerprint [2]uint64

// half is enough to spread the fingerprints.
func (f fingerprint) half() uint64 {
	return f[0]
}

// fingerprint names a key's state.
func (s *Store) fingerprint(key limit.Key) fingerprint {
	var short [8 + limit.MaxNameLength + limit.MaxRouteLength]byte // longer ones allocate
	name := append(short[:0], key.Shard)
	name = binary.AppendUvarint(name, uint64(len(key.Tenant)))
	name = append(name, key.Tenant...)
	name = append(name, key.Route...)
	return fingerprint{maphash.Bytes(s.seeds[0], name), maphash.Bytes(s.seeds[1], name)}
}
