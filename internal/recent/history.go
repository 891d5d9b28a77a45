// Package recent keeps what a gateway tells of its last minutes: how many requests got
// what (history.go), and what has changed its state (events.go). Both are bounded and
// begin anew with the process.
package recent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

const (
	// Step is how long requests are counted together.
	Step = 10 * time.Second

	// Steps is how many steps are kept: a quarter of an hour.
	Steps = 90
)

// Kind is what requests are told apart by, in the words of the metric requests_total.
type Kind struct{ Outcome, Source string }

// History counts requests by kind in steps. It is told what was counted since it was
// told before, and adds no work to a request.
type History struct {
	mu    sync.Mutex
	steps [Steps]step
}

// step is what requests got in one step, by its number since 1970.
type step struct {
	number int64
	counts map[Kind]int64
}

// Over reports how long it takes from now until the step is over.
func Over(now time.Time) time.Duration { return Step - time.Duration(now.UnixNano()%int64(Step)) }

// numberOf is the number of the step before the one that a time is in: what is told in
// a step was counted in the one before.
func numberOf(now time.Time) int64 { return now.UnixNano()/int64(Step) - 1 }

// Add counts requests in the step that was over last.
func (h *History) Add(now time.Time, counts map[Kind]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := numberOf(now)
	at := &h.steps[number%Steps]
	if at.number != number {
		*at = step{number: number, counts: make(map[Kind]int64, len(counts))}
	}
	for kind, n := range counts {
		if n > 0 {
			at.counts[kind] += n
		}
	}
}

// List returns all steps until the last that is over.
func (h *History) List(now time.Time) *adminapi.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := numberOf(now)
	byKind := map[Kind][]int64{}
	for i := range h.steps {
		place := h.steps[i].number - (last - Steps + 1)
		if place < 0 || place >= Steps {
			continue // long over
		}
		for kind, n := range h.steps[i].counts {
			if byKind[kind] == nil {
				byKind[kind] = make([]int64, Steps)
			}
			byKind[kind][place] = n
		}
	}
	answer := &adminapi.History{
		StepSeconds: int(Step / time.Second), End: time.Unix(0, (last+1)*int64(Step)).UTC(), Series: make([]adminapi.Series, 0, len(byKind)),
	}
	for kind, counts := range byKind {
		answer.Series = append(answer.Series, adminapi.Series{Outcome: kind.Outcome, Source: kind.Source, Counts: counts})
	}
	slices.SortFunc(answer.Series, func(a, b adminapi.Series) int {
		return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Source, b.Source))
	})
	return answer
}
