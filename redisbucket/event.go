package redisbucket

import "time"

// EventKind says what changed at a Node.
type EventKind uint8

// The kinds of events.
const (
	// BreakerOpened: calls failed, and Redis is not asked for a while. It is told
	// once, not again for each failed probe.
	BreakerOpened EventKind = iota + 1
	// BreakerClosed: Redis answers again.
	BreakerClosed
	// VersionTooOld: the server is older than Redis 6.2 and is not used.
	VersionTooOld
	// EvictingPolicy: the server's maxmemory-policy lets it evict buckets, which
	// refills them. It is told once, at the first connection.
	EvictingPolicy
	// Unreached: no connection is up, and none could be made. It is told once.
	Unreached
	// Reached: a connection could be made after that.
	Reached
	// ClusterNode: the server is a node of a Redis Cluster and has not all keys, so
	// that it cannot decide alone. It is told once.
	ClusterNode
)

// String returns a short phrase for logs.
func (k EventKind) String() string {
	switch k {
	case BreakerOpened:
		return "redis breaker opened"
	case BreakerClosed:
		return "redis breaker closed"
	case VersionTooOld:
		return "redis version is too old"
	case EvictingPolicy:
		return "redis may evict rate limits"
	case Unreached:
		return "redis cannot be reached"
	case Reached:
		return "redis can be reached again"
	case ClusterNode:
		return "redis is a node of a cluster, which is not yet supported"
	default:
		return ""
	}
}

// Event is a change of a Node's state, for a log. It holds no secret.
type Event struct {
	// Kind says what happened.
	Kind EventKind

	// Address is the Node's identity.
	Address string

	// Detail is the Reason of the last failure for BreakerOpened and Unreached, the version for
	// VersionTooOld, and the policy for EvictingPolicy.
	Detail string

	// At is when it happened.
	At time.Time
}

// Status is a Node's state at one moment. It holds no secret.
type Status struct {
	// Address is the Node's identity, "host:port/db".
	Address string

	// Breaker is closed, open, half-open, or off.
	Breaker string

	// Since is when the breaker entered its state; zero before the first change.
	Since time.Time

	// Connections is how many are up now.
	Connections int

	// LastReason and LastFailure are the Reason and the time of the last failed
	// call or connection attempt; zero where there was none.
	LastReason  string
	LastFailure time.Time

	// Traffic is what was asked so far.
	Traffic Traffic
}
