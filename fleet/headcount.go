package fleet

import "time"

// headcount makes of what is counted the number that limits are divided by. A
// count that is higher is believed at once. A lower one is believed when it has
// been lower for the whole of the hold without a break, and then the highest of that
// time counts: after an outage, or after Redis has lost its data, the first to
// come back sees few others, and they all are still there. The zero value knows
// nothing.
type headcount struct {
	inForce  int64     // 0: nothing is known
	lowSince time.Time // when the count was last seen to fall; zero while it has not
	most     int64     // of what was counted since then
	last     time.Time // the last count
}

// counted takes a count, of at least 1. Until says what was assumed until now, if
// nothing was known: it counts as if it had been counted. More than an expiry
// between two counts is a break.
func (h *headcount) counted(n, until int64, now time.Time, times rhythm) {
	if h.inForce == 0 {
		h.inForce = max(1, until)
	}
	if now.Sub(h.last) > times.expiry {
		h.missed()
	}
	h.last = now
	switch {
	case n >= h.inForce:
		h.inForce = n
		h.missed()
	case h.lowSince.IsZero():
		h.lowSince, h.most = now, n
	case now.Sub(h.lowSince) < times.hold:
		h.most = max(h.most, n)
	default:
		h.inForce = max(h.most, n)
		h.missed()
		if n < h.inForce {
			h.lowSince, h.most = now, n
		}
	}
}

// missed notes that nothing could be counted.
func (h *headcount) missed() { h.lowSince, h.most = time.Time{}, 0 }

// disagreement remembers whether processes have had different rules for so long
// that it is told.
type disagreement struct {
	since time.Time // zero while they agree, or nothing is known
	told  bool
}

// seen returns the event that is to be told, 0 for none.
func (d *disagreement) seen(disagree bool, now time.Time, after time.Duration) EventKind {
	switch {
	case !disagree:
		told := d.told
		*d = disagreement{}
		if told {
			return RulesAgree
		}
	case d.since.IsZero():
		d.since = now
	case !d.told && now.Sub(d.since) > after:
		d.told = true
		return RulesDisagree
	}
	return 0
}

// missed notes that nothing is known: the time begins anew.
func (d *disagreement) missed() { d.since = time.Time{} }
