package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally is what came of each class's requests in one run.
type tally struct {
	mu     sync.Mutex
	counts [classes]counts
}

// counts are the answers that one class got.
type counts struct {
	sent, served, limited, overloaded, failed int
	took                                      []time.Duration // of those served
}

func (t *tally) note(c class, a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &t.counts[c]
	n.sent++
	switch a.status {
	case http.StatusOK:
		n.served++
		n.took = append(n.took, a.took)
	case http.StatusTooManyRequests:
		n.limited++
	case http.StatusServiceUnavailable:
		n.overloaded++
	default:
		n.failed++
	}
}

// served returns how many requests were served in all.
func (t *tally) served() int {
	total := 0
	for i := range t.counts {
		total += t.counts[i].served
	}
	return total
}

// percent returns the part of the requests that were served.
func (n *counts) percent() float64 {
	if n.sent == 0 {
		return 0
	}
	return 100 * float64(n.served) / float64(n.sent)
}

// p95 returns the time within which 95 of 100 served requests were answered.
func (n *counts) p95() time.Duration {
	if len(n.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(n.took))
	return sorted[(len(sorted)*95+99)/100-1]
}

// report is both runs.
type report struct{ before, after *tally }

// csv returns the numbers, a line for each run and class.
func (r *report) csv() string {
	var out strings.Builder
	out.WriteString("limits,who,sent,served,limited_429,overloaded_503,failed,served_percent,p95_ms\n")
	for _, run := range []struct {
		name  string
		tally *tally
	}{{"without", r.before}, {"with", r.after}} {
		for i := range run.tally.counts {
			n := &run.tally.counts[i]
			fmt.Fprintf(&out, "%s,%s,%d,%d,%d,%d,%d,%.1f,%d\n", run.name, class(i),
				n.sent, n.served, n.limited, n.overloaded, n.failed, n.percent(), n.p95().Milliseconds())
		}
	}
	return out.String()
}
