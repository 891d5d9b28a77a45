package redisbucket

import "time"

const (
	// leastSenders and mostSenders bound how many calls are under way at once. Two
	// keep Redis busy while answers travel; more only help where they travel far.
	leastSenders = 2
	mostSenders  = 8
	// meanOver is over about how many calls means are taken.
	meanOver = 8
	// forgetOver is over about how many calls the shortest round trip is forgotten.
	forgetOver = 512
)

// senderBounds bound how many calls are under way at once.
type senderBounds struct{ least, most int }

// pace says how many calls may be under way: more while requests wait longer for
// being sent than a quarter of what the answer takes. Not where answers take that
// long because Redis or this machine is busy: more and smaller calls would keep
// it busier, and end as so many timeouts at once that the breaker opens.
type pace struct {
	bounds senderBounds
	places int
	trip   time.Duration // the mean of what calls take
	least  time.Duration // what they take at least
	wait   time.Duration // the mean of what the oldest of a call has waited
}

// travelled notes what a call took, if it was answered.
func (p *pace) travelled(took time.Duration) {
	if took <= 0 {
		return
	}
	if p.trip == 0 {
		p.trip, p.least = took, took
	}
	p.trip += (took - p.trip) / meanOver
	p.least = min(p.least+(took-p.least)/forgetOver, took)
}

// waited notes how long the oldest of a call has waited, and sets the places.
func (p *pace) waited(d time.Duration) {
	p.wait += (d - p.wait) / meanOver
	busy := p.trip > 2*p.least
	switch {
	case busy, p.wait < p.trip/8:
		p.places = max(p.places-1, p.bounds.least)
	case p.wait > p.trip/4:
		p.places = min(p.places+1, p.bounds.most)
	}
}
