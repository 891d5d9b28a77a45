// Package regions shares each limit between regions that have a Redis each, by
// the demand that they measure. A Source is a gateway's part: it counts demand in
// memory, reports it, and knows the shares in force. A Job moves shares from
// region to region through Books that PostgreSQL keeps. Neither is ever on a
// request's way.
//
// The invariant: at every moment, and for every limit, the shares in force sum to
// Whole at most. It rests on two numbers for each region. The share is what its
// gateways are to give; what is held is the most that one of them may still be
// giving. The table's own constraint keeps the sum of what is held within Budget.
// Held is lowered to the share only when every gateway of the region has read it,
// or has been out of touch for so long that it has fallen back to its safe share,
// which no share is below. A share is raised only as far as what is held allows.
package regions

import (
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Share is a part of a limit, in millionths.
type Share int32

// The shares that everything rests on.
const (
	// Whole is all of a limit.
	Whole Share = 1_000_000
	// Unknown is what a region gives that has not been given a share yet, or
	// cannot know it.
	Unknown Share = 500
	// MaxRegions is how many regions there may be.
	MaxRegions = 16
	// Budget is what may be held of a limit by all regions together. The rest,
	// less than a hundredth, is for as many as MaxRegions that give Unknown.
	Budget = Whole - MaxRegions*Unknown
	// DefaultSafe is the least that a region has of every limit, and what its
	// gateways give when they have not reached PostgreSQL for too long.
	DefaultSafe Share = 50_000
)

// Fraction returns the share as a part of 1, for limit.Rule.Scale.
func (s Share) Fraction() float64 { return float64(s) / float64(Whole) }

// Everything is the key of the row for all limits that have none of their own.
func Everything() limit.Key { return limit.Key{Tenant: "*", Route: "*"} }

// The defaults and bounds of the times.
const (
	// DefaultRebalance is how often shares follow the demand.
	DefaultRebalance = 2 * time.Minute
	// MinRebalance and MaxRebalance bound it. More often than gateways report their
	// demand there is nothing to reckon from.
	MinRebalance, MaxRebalance = defaultRefresh, 24 * time.Hour

	// DefaultValid is how long the shares that were read last count while
	// PostgreSQL cannot be reached.
	DefaultValid = 5 * time.Minute
	// MinValid and MaxValid bound it.
	MinValid, MaxValid = 10 * time.Second, 24 * time.Hour

	// Margin is what the job waits beyond a gateway's Valid, and beyond a
	// twentieth of it, before it holds that the gateway gives its safe share: for
	// clocks that run apart, and for decisions that were under way.
	Margin = 15 * time.Second
)

// Portion is one region's part of a limit.
type Portion struct {
	// Region is the name of the region.
	Region string
	// Target is the share that the region is on its way to.
	Target Share
	// Share is what its gateways are to give.
	Share Share
	// Held is the most that one of them may be giving, never below Share.
	Held Share
}

// Limit is how one limit is shared.
type Limit struct {
	// Key names the limit as its bucket is named, or is Everything.
	Key limit.Key
	// Version is that of the books when the row was changed last.
	Version int64
	// Portions are in the order in which the regions came.
	Portions []Portion
}

// Demand is what one region asked of a limit, in units of cost. Older demand
// counts less: half for each time that shares were reckoned since.
type Demand struct {
	Key    limit.Key
	Region string
	Units  float64
}

// Region is one that has made itself known.
type Region struct {
	// Name is 1 to 64 of A-Z a-z 0-9 . _ -.
	Name string
	// Safe is the least that it has of every limit.
	Safe Share
}
