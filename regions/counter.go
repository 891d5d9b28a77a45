package regions

import (
	"cmp"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddygate/ratelimit/limit"
)

const (
	counterSets = 256
	counterWays = 8
	// counterStripes spreads the sum of the rest, which all requests of a flood meet at.
	counterStripes = 16
)

// counter counts demand by limit, in bounded memory: the limits that are asked
// for most have a slot each. A limit without one takes the slot that counts least
// of its set, with a chance of one in what that has counted, so that a flood of
// made-up keys wins none from a hot limit (randomized admission, after Ben Basat,
// Einziger, Friedman and Kassner, "Randomized Admission Policy for Efficient
// Top-k and Frequency Estimation", INFOCOM 2017). What has no slot is counted
// together. It is safe for
// concurrent use; a count that meets the very moment in which its slot is given
// away may be lost. Adding to a slot takes no lock and does not allocate.
type counter struct {
	seed   maphash.Seed
	sets   [counterSets]counterSet
	rest   [counterStripes]stripe
	chance func() float64
}

type counterSet struct {
	mu    sync.Mutex // of those that put a slot
	slots [counterWays]atomic.Pointer[counted]
}

// counted is one limit with its demand.
type counted struct {
	key   limit.Key
	units atomic.Int64
	idle  bool // asked for nothing when it was drained last; under the set's mutex
}

// stripe stands alone in its cache line.
type stripe struct {
	units atomic.Int64
	_     [56]byte
}

func newCounter() *counter {
	return &counter{seed: maphash.MakeSeed(), chance: rand.Float64}
}

// add counts units that were asked of a limit.
func (c *counter) add(key limit.Key, units int64) {
	hash := maphash.Comparable(c.seed, key)
	set := &c.sets[hash%counterSets]
	for i := range set.slots {
		if slot := set.slots[i].Load(); slot != nil && slot.key == key {
			slot.units.Add(units)
			return
		}
	}
	if !c.admit(set, key, units) {
		c.rest[hash>>32%counterStripes].units.Add(units)
	}
}

// admit gives a limit a slot, or not. What the one before has counted goes to the rest.
func (c *counter) admit(set *counterSet, key limit.Key, units int64) bool {
	least, count := 0, int64(-1)
	for i := range set.slots {
		slot := set.slots[i].Load()
		if slot == nil {
			least, count = i, 0
			break
		}
		if n := slot.units.Load(); count < 0 || n < count {
			least, count = i, n
		}
	}
	if count > 0 && c.chance()*float64(count+units) >= float64(units) {
		return false
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	for i := range set.slots {
		if slot := set.slots[i].Load(); slot != nil && slot.key == key {
			slot.units.Add(units)
			return true
		}
	}
	key.Tenant = strings.Clone(key.Tenant) // it may be a part of a request's buffer
	made := &counted{key: key}
	made.units.Store(units)
	if before := set.slots[least].Swap(made); before != nil {
		c.rest[0].units.Add(before.units.Swap(0))
	}
	return true
}

// drain returns what was counted since the last time: up to most limits, those
// asked for most, and the sum of all others under Everything. Slots that nobody
// has asked for twice in a row are free again.
func (c *counter) drain(most int) []Demand {
	var counts []Demand
	rest := 0.0
	for i := range c.sets {
		counts = c.sets[i].drain(counts)
	}
	for i := range c.rest {
		rest += float64(c.rest[i].units.Swap(0))
	}
	if rest > 0 {
		counts = append(counts, Demand{Key: Everything(), Units: rest})
	}
	return merged(counts, most)
}

// merged sums demand by limit: up to most of them, those asked for most, and the
// others under Everything. The order is that of the keys, the same for whoever
// writes them.
func merged(demand []Demand, most int) []Demand {
	units := map[limit.Key]float64{}
	for _, d := range demand {
		units[d.Key] += d.Units
	}
	rest := units[Everything()]
	delete(units, Everything())
	list := make([]Demand, 0, len(units)+1)
	for key, n := range units {
		list = append(list, Demand{Key: key, Units: n})
	}
	slices.SortFunc(list, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), compareKeys(a.Key, b.Key))
	})
	for ; len(list) > most; list = list[:len(list)-1] {
		rest += list[len(list)-1].Units
	}
	if rest > 0 {
		list = append(list, Demand{Key: Everything(), Units: rest})
	}
	slices.SortFunc(list, func(a, b Demand) int { return compareKeys(a.Key, b.Key) })
	return list
}

func (s *counterSet) drain(counts []Demand) []Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		slot := s.slots[i].Load()
		if slot == nil {
			continue
		}
		units := slot.units.Swap(0)
		if units == 0 && slot.idle {
			s.slots[i].Store(nil)
			continue
		}
		slot.idle = units == 0
		if units > 0 {
			counts = append(counts, Demand{Key: slot.key, Units: float64(units)})
		}
	}
	return counts
}
