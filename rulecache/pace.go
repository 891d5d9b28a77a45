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

// next returns when to load again: when the table is due to be polled, and as
// soon as may be where a change is known of. Failures wait ever longer from
// their end on. Chance, of 0 to 1, spreads the loads of many gateways over the
// time before one is due.
func (p *pace) next(refresh time.Duration, changed bool, chance float64) time.Time {
	poll := spread(refresh, chance/2)
	wait, soonest := poll, max(p.gap, 2*p.took)
	if p.failures > 0 {
		wait = p.took + min(poll, spread(backoff(p.failures-1, p.most), chance))
		soonest = max(p.gap, p.took)
	}
	if changed {
		wait = 0
	}
	return p.start.Add(max(wait, soonest))
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
