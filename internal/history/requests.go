// Package history keeps what happened lately in one gateway, bounded: how many
// requests there were (requests.go), and which changes of state (events.go).
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// Step is the time that one count is of.
	Step = 15 * time.Second

	// Steps is how many counts are kept: those of 15 minutes.
	Steps = 60
)

// Counter names one of the counters that are sampled.
type Counter struct{ Zone, Outcome, Source string }

// Series is how many requests had one outcome by one source, in each step, the
// oldest first and the one that is under way last.
type Series struct {
	Outcome, Source string
	Counts          []int64
}

// kind is what counts of all zones are added up by.
type kind struct{ outcome, source string }

// Requests is a ring of counts, made of samples of counters that only grow. So it
// costs no request anything.
type Requests struct {
	mu     sync.Mutex
	began  int64 // the first step, 0: nothing was sampled
	last   map[Counter]int64
	counts map[kind]*[Steps]int64
	newest int64 // the step that was sampled last, at a time
	at     time.Time
}

// NewRequests returns a ring that is empty.
func NewRequests() *Requests { return &Requests{counts: map[kind]*[Steps]int64{}} }

// Sample adds what the counters have grown by since the last sample to the step that
// now is in and, where that was in the step before, to that one, by the time that each
// had of it. The first sample only says where they stand. A counter that is lower
// than it was began anew.
func (r *Requests) Sample(now time.Time, totals map[Counter]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := max(stepOf(now), r.newest) // a clock may be set back
	if r.began == 0 {
		r.began, r.newest, r.last, r.at = step, step, totals, now
		return
	}
	before := r.before(step, now)
	r.advance(step)
	for counter, total := range totals {
		grown := total - r.last[counter]
		if grown < 0 {
			grown = total
		}
		if grown > 0 {
			ring, earlier := r.ring(kind{counter.Outcome, counter.Source}), int64(float64(grown)*before)
			ring[step%Steps] += grown - earlier
			ring[(step-1)%Steps] += earlier
		}
	}
	r.last, r.at = totals, now
}

// before returns which part of the time since the last sample belongs to the step
// before: 0 where the last sample was in another one.
func (r *Requests) before(step int64, now time.Time) float64 {
	begin := time.Unix(0, step*int64(Step))
	if step != r.newest+1 || !r.at.Before(begin) || !now.After(begin) {
		return 0
	}
	return float64(begin.Sub(r.at)) / float64(now.Sub(r.at))
}

// advance forgets the steps whose places those up to step take.
func (r *Requests) advance(step int64) {
	for s := max(r.newest+1, step-Steps+1); s <= step; s++ {
		for _, ring := range r.counts {
			ring[s%Steps] = 0
		}
	}
	r.newest = step
}

func (r *Requests) ring(of kind) *[Steps]int64 {
	ring, found := r.counts[of]
	if !found {
		ring = new([Steps]int64)
		r.counts[of] = ring
	}
	return ring
}

// List returns the series that are not all 0, and when their first count began: 15
// minutes ago, or at the first sample if that was later.
func (r *Requests) List() (from time.Time, list []Series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := max(r.began, r.newest-Steps+1)
	for of, ring := range r.counts {
		s, any := Series{Outcome: of.outcome, Source: of.source}, false
		for step := first; step <= r.newest; step++ {
			s.Counts = append(s.Counts, ring[step%Steps])
			any = any || ring[step%Steps] > 0
		}
		if any {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Source, b.Source))
	})
	return time.Unix(0, first*int64(Step)), list
}

func stepOf(now time.Time) int64 { return now.UnixNano() / int64(Step) }
