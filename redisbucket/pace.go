package redisbucket

import "time"

const (
	// leastSenders and mostSenders bound how many calls are under way at once. Two
	// keep Redis busy while answers travel; more only help where they travel far.
	leastSenders = 2
	mostSenders  = 8
	// meanOver is over about how many calls means are taken.
	meanOver = 8
)

// senderBounds bound how many calls are under way at once.
type senderBounds struct{ least, most int }

// pace says how many calls may be under way: more while requests wait longer for
// being sent than a quarter of what the answer takes.
type pace struct {
	bounds senderBounds
	places int
	trip   time.Duration // the mean of what calls take
	wait   time.Duration // the mean of what the oldest of a call has waited
}

// travelled notes what a call took, if it was made.
func (p *pace) travelled(took time.Duration) {
	switch {
	case p.trip == 0:
		p.trip = took
	case took > 0:
		p.trip += (took - p.trip) / meanOver
	}
}

// waited notes how long the oldest of a call has waited, and sets the places.
func (p *pace) waited(d time.Duration) {
	p.wait += (d - p.wait) / meanOver
	switch {
	case p.wait > p.trip/4:
		p.places = min(p.places+1, p.bounds.most)
	case p.wait < p.trip/8:
		p.places = max(p.places-1, p.bounds.least)
	}
}
