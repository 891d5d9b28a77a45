package localbucket

import (
	"slices"
	"strings"
	"sync"

	"github.com/caddygate/ratelimit/limit"
)

// running is who runs at the moment in this process, whoever let them in, by the buckets
// of places. It has no bound of its own: each entry is a request under way.
type running struct {
	mu    sync.Mutex
	byKey map[limit.Key]map[int64]struct{}
}

// Enter notes that a request runs that another limiter let in, in a bucket of places.
func (s *Store) Enter(key limit.Key, number int64) {
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	s.running.enter(key, number)
}

// Leave notes that a request runs no longer.
func (s *Store) Leave(key limit.Key, number int64) {
	r := &s.running
	r.mu.Lock()
	defer r.mu.Unlock()
	numbers := r.byKey[key]
	if delete(numbers, number); len(numbers) == 0 {
		delete(r.byKey, key)
	}
}

// Running returns how many requests run in a bucket of places.
func (s *Store) Running(key limit.Key) int {
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	return len(s.running.byKey[key])
}

// AllRunning returns how many requests run in all buckets of places.
func (s *Store) AllRunning() (n int) {
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	for _, numbers := range s.running.byKey {
		n += len(numbers)
	}
	return n
}

// EachRunning calls visit with each bucket of places in which requests run, and their
// numbers in order. Visit may keep both.
func (s *Store) EachRunning(visit func(key limit.Key, numbers []int64)) {
	s.running.mu.Lock()
	all := make(map[limit.Key][]int64, len(s.running.byKey))
	for key, running := range s.running.byKey {
		numbers := make([]int64, 0, len(running))
		for n := range running {
			numbers = append(numbers, n)
		}
		all[key] = numbers
	}
	s.running.mu.Unlock()
	for key, numbers := range all {
		slices.Sort(numbers)
		visit(key, numbers)
	}
}

func (r *running) enter(key limit.Key, number int64) {
	numbers := r.byKey[key]
	if numbers == nil {
		// The names may be parts of a request's buffer.
		key.Tenant, key.Route = strings.Clone(key.Tenant), strings.Clone(key.Route)
		numbers = map[int64]struct{}{}
		r.byKey[key] = numbers
	}
	numbers[number] = struct{}{}
}

// settlePlaces gives a place back, or enters those that go on.
func (l *Limiter) settlePlaces(s *limit.Settlement) {
	for _, number := range s.Renewed {
		l.store.Enter(s.Bucket.Key, number)
	}
	if len(s.Renewed) == 0 {
		l.store.Leave(s.Bucket.Key, s.Bucket.Place.Number)
	}
}

// takePlaces decides where some of the buckets are of places: those are looked at, and
// then the others are taken from, while nobody else enters.
func (l *Limiter) takePlaces(req *limit.Request) limit.Decision {
	r := &l.store.running
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := *req
	asked.Buckets = nil
	decision := limit.Decision{Granted: min(req.Count, 1), Source: limit.SourceLocal, Rest: make([]limit.State, len(req.Buckets)-1)}
	for i := range req.Buckets {
		switch b := &req.Buckets[i]; {
		case !b.OfPlaces():
			asked.Buckets = append(asked.Buckets, *b)
		case int64(len(r.byKey[b.Key])) >= b.Rule.Capacity:
			decision.Granted = 0
		}
	}
	asked.Count = decision.Granted
	var others limit.Decision
	if len(asked.Buckets) > 0 {
		others = l.decide(&asked)
		decision.Granted = others.Granted
	}
	next := 0
	for i := range req.Buckets {
		b := &req.Buckets[i]
		if !b.OfPlaces() {
			decision.Set(i, others.At(next))
			next++
			continue
		}
		if decision.Granted > 0 {
			r.enter(b.Key, b.Place.Number)
		}
		decision.Set(i, limit.StateOfPlaces(&b.Rule, int64(len(r.byKey[b.Key]))))
	}
	return decision
}
