package regions

import (
	"cmp"
	"maps"
	"slices"

	"github.com/caddygate/ratelimit/limit"
)

// work is a rebalancing under way.
type work struct {
	books    *Books
	before   map[limit.Key]Limit
	after    map[limit.Key]*Limit
	next     int64              // the version afterward
	retired  map[limit.Key]bool // rows that are no longer needed once they are as Everything is
	reckoned bool
}

// firstVersion is that of books in which nothing was changed yet.
const firstVersion = 1

// lost reports whether the row of all limits is not there though it was, so that
// nobody knows what is held, and some gateway may still go by it. It is made anew
// and gives nothing to anyone until each gateway has read that.
func (w *work) lost() bool {
	everything := w.after[Everything()]
	if everything == nil {
		if w.books.Version <= firstVersion {
			return false
		}
		made := &Limit{Key: Everything(), Version: w.next}
		w.after[Everything()] = made
		w.join(made)
		return true
	}
	if len(everything.Portions) == 0 || everything.held() > 0 {
		return false
	}
	for _, acked := range w.books.Acked {
		if acked < everything.Version {
			return true
		}
	}
	return false
}

// reckon sets the targets of all rows, and makes those that are missing.
func (w *work) reckon() {
	everything := w.after[Everything()]
	if everything == nil {
		everything = &Limit{Key: Everything(), Version: w.next}
		w.after[Everything()] = everything
	}
	for _, row := range w.after {
		w.join(row)
	}
	asked := w.asked()
	general := everything.clone() // what gateways go by that have not read a row yet
	w.aim(everything, allocate(w.claims(everything, asked[Everything()])))
	for _, key := range ranked(asked) {
		w.own(key, asked[key], &general)
	}
	for key := range w.after {
		if _, found := asked[key]; !found {
			w.own(key, nil, &general)
		}
	}
}

// own sets the targets of one limit. It has a row of its own only where its
// demand is spread otherwise than all demand is.
func (w *work) own(key limit.Key, by map[string]float64, general *Limit) {
	row, everything := w.after[key], w.after[Everything()]
	needed := w.differs(everything, by)
	switch {
	case row == nil && (!needed || sum(by) < ownUnits || len(w.after) > maxLimits):
		return
	case row != nil && (!needed || sum(by) < keptUnits):
		w.aim(row, w.targets(everything))
		w.retired[key] = true
		return
	case row == nil:
		made := general.clone()
		made.Key, made.Version = key, w.next
		row = &made
		w.after[key] = row
	}
	w.aim(row, allocate(w.claims(row, by)))
}

// differs reports whether the demand asks for other shares than the row has.
func (w *work) differs(row *Limit, by map[string]float64) bool {
	return !slices.Equal(allocate(w.claims(row, by)), w.targets(row))
}

// join gives each known region a portion, and the others nothing more.
func (w *work) join(row *Limit) {
	for i := range row.Portions {
		if !w.knows(row.Portions[i].Region) {
			row.Portions[i].Target = 0
		}
	}
	for _, region := range w.books.Regions {
		if row.portion(region.Name) == nil {
			row.Portions = append(row.Portions, Portion{Region: region.Name})
		}
	}
}

// part takes out regions that are not known any more and hold nothing.
func (w *work) part(row *Limit) {
	row.Portions = slices.DeleteFunc(row.Portions, func(p Portion) bool {
		return p == Portion{Region: p.Region} && !w.knows(p.Region)
	})
}

func (w *work) knows(region string) bool {
	return slices.ContainsFunc(w.books.Regions, func(r Region) bool { return r.Name == region })
}

// claims are those of the known regions, in their order.
func (w *work) claims(row *Limit, by map[string]float64) []claim {
	claims := make([]claim, len(w.books.Regions))
	for i, region := range w.books.Regions {
		claims[i] = claim{safe: region.Safe, share: row.portion(region.Name).Target, units: by[region.Name]}
	}
	return claims
}

// targets are those of the known regions, in their order.
func (w *work) targets(row *Limit) []Share {
	targets := make([]Share, len(w.books.Regions))
	for i, region := range w.books.Regions {
		targets[i] = row.portion(region.Name).Target
	}
	return targets
}

// aim sets the targets of the known regions, in their order.
func (w *work) aim(row *Limit, targets []Share) {
	for i, region := range w.books.Regions {
		row.portion(region.Name).Target = targets[i]
	}
}

// asked sums the demand by limit and region, and over all limits. No single limit
// counts for more than generalUnits there: one tenant's flood in one region is no
// reason to take the limits of all others from where they are asked for.
func (w *work) asked() map[limit.Key]map[string]float64 {
	asked, general := map[limit.Key]map[string]float64{}, map[string]float64{}
	factors := w.books.factors()
	for _, d := range w.books.Demands {
		if d.Key == Elapsed() {
			continue
		}
		if asked[d.Key] == nil {
			asked[d.Key] = map[string]float64{}
		}
		asked[d.Key][d.Region] += d.Units * cmp.Or(factors[d.Region], 1)
	}
	for _, key := range slices.SortedFunc(maps.Keys(asked), compareKeys) {
		weight := 1.0
		if key != Everything() {
			weight = min(1, generalUnits/max(1, sum(asked[key])))
		}
		for region, units := range asked[key] {
			general[region] += weight * units
		}
	}
	asked[Everything()] = general
	return asked
}

// ranked returns the keys of single limits, those asked for most first.
func ranked(asked map[limit.Key]map[string]float64) []limit.Key {
	keys, totals := make([]limit.Key, 0, len(asked)), map[limit.Key]float64{}
	for key, by := range asked {
		if key != Everything() {
			keys = append(keys, key)
			totals[key] = sum(by)
		}
	}
	slices.SortFunc(keys, func(a, b limit.Key) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), compareKeys(a, b))
	})
	return keys
}

func compareKeys(a, b limit.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route))
}

func sum(by map[string]float64) (total float64) {
	for _, units := range by {
		total += units
	}
	return total
}

// drop takes out rows that are no longer needed. What is held of Everything then
// stands for what is held of them too, so it is not let go of before the gateways
// have read that they are gone.
func (w *work) drop() (dropped []limit.Key) {
	for key := range w.retired {
		if w.within(w.after[key], w.after[Everything()]) {
			dropped = append(dropped, key)
			delete(w.after, key)
		}
	}
	slices.SortFunc(dropped, compareKeys)
	return dropped
}

// changes compares the rows with what they were.
func (w *work) changes() Changes {
	made := Changes{Version: w.books.Version, Reckoned: w.reckoned, Deleted: w.drop()}
	for key, row := range w.after {
		before, found := w.before[key]
		covers := key == Everything() && len(made.Deleted) > 0
		if covers || !found || !slices.Equal(before.Portions, row.Portions) {
			row.Version = w.next
			made.Limits = append(made.Limits, *row)
		}
		if !row.settled() {
			made.Waiting++
		}
	}
	slices.SortFunc(made.Limits, func(a, b Limit) int { return compareKeys(a.Key, b.Key) })
	if len(made.Limits) > 0 {
		made.Version = w.next
	}
	return made
}

// within reports whether no region holds more of row than of the other: whoever
// has not read yet that row is gone gives no more than is held of the other.
func (*work) within(row, other *Limit) bool {
	for _, p := range row.Portions {
		of := other.portion(p.Region)
		if of == nil && p.Held > 0 || of != nil && p.Held > of.Held {
			return false
		}
	}
	return true
}
