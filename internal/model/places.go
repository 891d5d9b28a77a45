package model

import (
	"maps"
	"math/rand/v2"

	"github.com/caddygate/ratelimit/limit"
)

// Visit is one step of a trace of places, and what is right: a request for a place, one
// that is given back, or those that are renewed.
type Visit struct {
	// Micros is when it comes, in µs since the Unix epoch.
	Micros int64

	// Bucket is asked for its Place, unless the visit leaves or renews.
	Bucket limit.Bucket

	// Leaves gives the place back, whoever holds it.
	Leaves bool

	// Renewed are the places that are renewed; none: it is no renewal.
	Renewed []int64

	// Want is the answer to a request, without its source.
	Want limit.Decision
}

// Places returns random requests for places of one tenant by several processes, some of
// which die or forget to give back, under limits that change.
func Places(seed uint64) []Visit {
	random := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a trace is no secret
	held := map[limit.Place]int64{}          // until when, in ms
	var known []limit.Place                  // all that ever asked
	now, visits := int64(begin), make([]Visit, 40)
	for i := range visits {
		rule, _ := limit.NewPlaces(1 + int64(random.IntN(4)))
		v := Visit{Micros: now, Bucket: limit.Bucket{Key: limit.Key{Tenant: "t", Route: "a"}, Rule: rule, Cost: 1}}
		ms := floor(now, 1000)
		switch kind := random.IntN(5); {
		case kind == 0 && len(known) > 0:
			v.Leaves, v.Bucket.Place = true, known[random.IntN(len(known))]
			delete(held, v.Bucket.Place)
		case kind == 1 && len(known) > 0:
			v.Bucket.Place = known[random.IntN(len(known))]
			for _, p := range known {
				if p.Process == v.Bucket.Place.Process && random.IntN(2) == 0 {
					v.Renewed = append(v.Renewed, p.Number)
					held[p] = ms + limit.PlaceLease.Milliseconds()
				}
			}
			v.Leaves = v.Renewed == nil
			if v.Leaves {
				delete(held, v.Bucket.Place)
			}
		default:
			v.Bucket.Place = limit.Place{Process: 1 + int64(random.IntN(3)), Number: int64(i + 1)}
			known = append(known, v.Bucket.Place)
			v.Want = takePlace(held, &v.Bucket, ms)
		}
		visits[i] = v
		now += []int64{0, 1000, 500_000, 4_000_000, 16_000_000}[random.IntN(5)]
	}
	return visits
}

// takePlace holds a place unless as many are held as may be.
func takePlace(held map[limit.Place]int64, b *limit.Bucket, ms int64) (d limit.Decision) {
	n := int64(0)
	for _, until := range held {
		if until > ms {
			n++
		}
	}
	if n < b.Rule.Capacity {
		// Those whose time is over are forgotten.
		maps.DeleteFunc(held, func(_ limit.Place, until int64) bool { return until <= ms })
		held[b.Place] = ms + limit.PlaceLease.Milliseconds()
		d.Granted, n = 1, n+1
	}
	d.First = limit.StateOfPlaces(&b.Rule, n)
	return d
}
