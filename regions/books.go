package regions

import "github.com/caddygate/ratelimit/limit"

// Books are all that a Job has to know, as they were at one moment.
type Books struct {
	// Version is that of the last change.
	Version int64
	// Next is the version that a change gets, above Version. PostgreSQL's is a
	// time: where it was set back to an earlier state, no later version is one
	// that a gateway has read before. Default: Version and 1.
	Next int64
	// Due tells whether shares are to be reckoned from demand. Without it, Limits
	// are those that are under way only, and there are no Demands.
	Due bool
	// Regions are those that have made themselves known, in that order.
	Regions []Region
	// Acked is the version that every live gateway of a region has read and goes
	// by. A region without live gateways is missing.
	Acked map[string]int64
	// Gateways is how many live gateways a region has.
	Gateways map[string]int
	// Limits are the rows.
	Limits []Limit
	// Demands are what was asked of limits, by region, and under Elapsed in which time.
	Demands []Demand
}

// Changes are what a Job does to the books.
type Changes struct {
	// Version is that of the books afterward.
	Version int64
	// Limits are the rows that are new or differ.
	Limits []Limit
	// Deleted are the keys of rows that are no longer needed.
	Deleted []limit.Key
	// Reckoned tells whether demand was looked at.
	Reckoned bool
	// Waiting is how many limits are still under way.
	Waiting int
}

const (
	// maxLimits is how many limits have shares of their own at most.
	maxLimits = 1000
	// ownUnits is the demand from which on a limit may have shares of its own, and
	// keptUnits that from which on it keeps them.
	ownUnits, keptUnits = 200, 50
	// generalUnits is for how many units of demand a single limit counts at most
	// where the share of all limits is reckoned.
	generalUnits = 1000
)

// rebalance says what to change. It does nothing else, so that all that moves
// shares can be run through in a test.
func (b *Books) rebalance() Changes {
	w := work{books: b, before: map[limit.Key]Limit{}, after: map[limit.Key]*Limit{}, retired: map[limit.Key]bool{}, next: max(b.Next, b.Version+1)}
	for i := range b.Limits {
		row := b.Limits[i].clone()
		w.before[row.Key], w.after[row.Key] = b.Limits[i], &row
	}
	if b.Due && !w.lost() {
		w.reckon()
		w.reckoned = true
	}
	for _, row := range w.after {
		row.step(func(region string) bool {
			acked, alive := b.Acked[region]
			return !alive || acked >= row.Version
		})
		w.part(row)
	}
	return w.changes()
}
