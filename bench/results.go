package main

import (
	"errors"
	"fmt"
	"slices"
)

// results are all samples of a run.
type results struct {
	plan    plan
	samples [][][]sample     // by group, cell and round
	bases   [][]sample       // by group and round, where requests are due at fixed times
	memory  map[string]int64 // resident bytes at plan.touched tenants, by name
	about   machine
	command string
	earlier string // the commit to compare with, blank for none
}

func newResults(p plan) *results {
	r := &results{plan: p, samples: make([][][]sample, len(p.groups)), bases: make([][]sample, len(p.groups)), memory: map[string]int64{}}
	for i, g := range p.groups {
		r.samples[i] = make([][]sample, len(g.cells))
	}
	return r
}

func (r *results) add(at spot, s sample) {
	r.samples[at.group][at.cell] = append(r.samples[at.group][at.cell], s)
}

// findBases returns what wrk got where requests are due at fixed times.
func (r *results) findBases(title string, l load) []sample {
	for i, g := range r.plan.groups {
		if g.title == title && g.load == l {
			return r.bases[i]
		}
	}
	return nil
}

// find returns the samples of a gateway in a group, nil where it was not measured.
func (r *results) find(title string, l load, name string) []sample {
	for i, g := range r.plan.groups {
		if g.title != title || g.load != l {
			continue
		}
		for j, c := range g.cells {
			if c.name == name {
				return r.samples[i][j]
			}
		}
	}
	return nil
}

// ratio is the paired ratio of two gateways of a group.
func (r *results) ratio(title string, l load, over, under string) (float64, bool) {
	a, b := r.find(title, l, over), r.find(title, l, under)
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	return paired(a, b), true
}

// noiseFloor is how near to bare Caddy a handler that does nothing must come for
// the machine to be quiet enough.
const noiseFloor = 0.93

// void returns why the run says nothing, one reason each.
func (r *results) void() []string {
	var reasons []string
	for i, g := range r.plan.groups {
		for j, c := range g.cells {
			if odd := oddities(r.samples[i][j]); odd > 0 {
				reasons = append(reasons, fmt.Sprintf("%s (%s): %s requests failed or had a status that was not expected",
					c.name, g.heading(), grouped(odd)))
			}
		}
		if odd := oddities(r.bases[i]); odd > 0 {
			reasons = append(reasons, fmt.Sprintf("what wrk sent before %s: %s requests failed or had a status that was not expected", g.heading(), grouped(odd)))
		}
		floor, measured := r.ratio(g.title, g.load, nameNothing, nameBare)
		if g.paced == nil && measured && (floor < noiseFloor || floor > 1/noiseFloor) {
			reasons = append(reasons, fmt.Sprintf("%s (%s) had %.3f of what bare Caddy had: the machine was not quiet enough",
				nameNothing, g.heading(), floor))
		}
	}
	return reasons
}

// oddities are requests that did not end as they should have.
func oddities(samples []sample) (odd int64) {
	for _, s := range samples {
		odd += s.unexpected
	}
	return odd
}

// muchLocal is the part of a gateway's decisions from which on its line says more of
// the fallback than of Redis.
const muchLocal = 0.02

// muchUnanswered is the part of requests without an answer from which on a line
// says more of the machine than of what was measured.
const muchUnanswered = 0.01

// says reports whether a comparison tells of what it names: not where either side
// decided much in memory although it has a Redis, or left requests unanswered.
func (r *results) says(at ratioAt) bool {
	for _, name := range []string{at.over, at.under} {
		samples := r.find(at.title, at.load, name)
		if median(of(samples, sample.localPart)) > muchLocal || median(of(samples, sample.unanswered)) > muchUnanswered {
			return false
		}
	}
	return true
}

// caveats returns which lines say less than they seem to, one reason each.
func (r *results) caveats() []string {
	var reasons []string
	for i, g := range r.plan.groups {
		if g.title == titleOverload {
			continue // it is what is looked for
		}
		for j, c := range g.cells {
			part := median(of(r.samples[i][j], sample.localPart))
			if part > muchLocal {
				reasons = append(reasons, fmt.Sprintf("%s (%s) decided %.0f %% of the requests in memory, because the machine left Redis no time",
					c.name, g.heading(), 100*part))
			}
			if part := median(of(r.samples[i][j], sample.unanswered)); part > muchUnanswered {
				reasons = append(reasons, fmt.Sprintf("%s (%s) left %.0f %% of the requests unanswered, because the machine could not do as many",
					c.name, g.heading(), 100*part))
			}
		}
	}
	return reasons
}

var errUnexpected = errors.New("requests failed or had a status that was not expected")

// unexpected is an error where a request did not end as it should have.
func (r *results) unexpected() error {
	for _, group := range append(slices.Clone(r.samples), r.bases) {
		if oddities(slices.Concat(group...)) > 0 {
			return errUnexpected
		}
	}
	return nil
}
