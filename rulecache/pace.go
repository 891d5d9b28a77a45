package rulecache

import "time"

// pace decides when the next load may begin. It knows no clock of its own.
type pace struct {
	// gap is the least time from the start of a load to that of the next.
	gap time.Duration
	// most is the longest wait after failures.
	most time.Duration

	start    time.Time
	took     time.Duration
	failures int
}

// ended notes a load, which begins to count when it started.
func (p *pace) ended(start time.Time, took time.Duration, err error) {
	p.start, p.took = start, took
	if err == nil {
		p.failures = 0
	} else {
		p.failures++
	}
}

// changeSpread is over which time gateways spread what all of them are told at once.
const changeSpread = 250 * time.Millisecond

// next returns when to load again: when the table is due to be polled, and soon
// after a change became known, whose time is zero where there was none. Failures
// wait ever longer from their end on. Chance, of 0 to 1, spreads the loads of many
// gateways.
func (p *pace) next(poll time.Duration, changed time.Time, chance float64) time.Time {
	poll = spread(poll, chance/2)
	due, soonest := p.start.Add(poll), max(p.gap, 2*p.took)
	if p.failures > 0 {
		due = p.start.Add(p.took + min(poll, spread(backoff(p.failures-1, p.most), chance)))
		soonest = max(p.gap, p.took)
	}
	if !changed.IsZero() {
		due = earlier(due, changed.Add(time.Duration(chance*float64(changeSpread))))
	}
	if first := p.start.Add(soonest); due.Before(first) {
		return first
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// spread shortens a wait by up to a fifth, as chance of 0 to 1 has it, so that
// many gateways do not come at one instant.
func spread(wait time.Duration, chance float64) time.Duration {
	return time.Duration(float64(wait) * (0.8 + 0.2*chance))
}

// backoff returns how long to wait after a number of failures: nothing at
// first, then twice as long each time, up to most.
func backoff(failures int, most time.Duration) time.Duration {
	const first = 250 * time.Millisecond
	switch {
	case failures <= 0:
		return 0
	case failures > 10:
		return most
	}
	return min(most, first<<(failures-1))
}
