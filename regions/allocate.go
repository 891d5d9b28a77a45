package regions

import (
	"math"
	"slices"
)

// claim is what speaks for a region's part of a limit.
type claim struct {
	safe  Share
	share Share // what it is on its way to now
	units float64
}

const (
	// prior is the demand, in units, that stands for the shares as they are: a few
	// requests in the night are no reason to move anything.
	prior = 50

	// hysteresis is the part of its share by which a region's must be wrong before
	// anything moves, and leastMove the least that it must be in any case.
	hysteresis = 0.1
	leastMove  = Whole / 100
)

// allocate shares Budget by demand, each region no less than its safe share. It
// returns the shares as they are where no region's would change by as much as
// hysteresis asks for. Regions whose safe shares do not fit, which the table's
// constraint does not allow, get what is left in their order.
func allocate(claims []claim) []Share {
	wanted := divide(claims)
	for i := range claims {
		now, change := claims[i].share, wanted[i]-claims[i].share
		if change < 0 {
			change = -change
		}
		if now < claims[i].safe && wanted[i] > now {
			return wanted // one that joins, or had too little
		}
		if change >= leastMove && float64(change) >= hysteresis*float64(now) {
			return wanted
		}
	}
	kept := make([]Share, len(claims))
	for i := range claims {
		kept[i] = claims[i].share
	}
	return kept
}

// divide shares Budget by demand and the prior. A region that this would leave
// with less than its safe share gets that, and the others share the rest.
func divide(claims []claim) []Share {
	weights, shares := weigh(claims), make([]Share, len(claims))
	settled := make([]bool, len(claims))
	for {
		rest, total := Budget, 0.0
		for i := range claims {
			if settled[i] {
				rest -= shares[i]
			} else {
				total += weights[i]
			}
		}
		raised := false
		for i := range claims {
			if settled[i] {
				continue
			}
			part := max(rest, 0)
			if total > 0 {
				part = Share(math.Floor(float64(part) * weights[i] / total))
			}
			if shares[i] = part; part < claims[i].safe {
				shares[i], settled[i], raised = claims[i].safe, true, true
			}
		}
		if !raised {
			return fit(shares)
		}
	}
}

// weigh returns what each region's demand weighs, with the prior. That stands for
// the shares as they are, and for an equal share of each region that has none yet:
// where nothing is asked, as when all are started for the first time, a region
// that comes gets as much as the others.
func weigh(claims []claim) []float64 {
	var known Share
	settled := 0
	for i := range claims {
		if claims[i].share > 0 {
			known += claims[i].share
			settled++
		}
	}
	weights := make([]float64, len(claims))
	for i := range claims {
		before := 1 / float64(len(claims))
		if claims[i].share > 0 {
			before *= float64(settled) * float64(claims[i].share) / float64(known)
		}
		weights[i] = claims[i].units + prior*before
	}
	return weights
}

// fit gives what rounding left over to the largest share, and cuts what is too
// much from the last ones.
func fit(shares []Share) []Share {
	if len(shares) == 0 {
		return shares
	}
	left := Budget
	for i := range shares {
		shares[i] = min(shares[i], left)
		left -= shares[i]
	}
	largest := slices.Index(shares, slices.Max(shares))
	shares[largest] += left
	return shares
}
